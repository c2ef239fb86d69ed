"""A headless Chromium that says everything it asked the network for."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.monitor.harness import wait_until

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PACKAGES = {"chromium-headless-shell": "chromium-headless-shell", "chromedriver": "chromium-driver"}
SECONDS = 120.0


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, (
        f"{name} is not installed, and the page cannot be tested without it: "
        f"apt-get install {PACKAGES[name]} (`make setup` does it when it runs as root)"
    )
    return found


class Browser:
    """One window."""

    def __init__(self) -> None:
        from selenium import webdriver  # which takes its time to import, in every worker
        from selenium.webdriver.chrome.service import Service

        self._profile = tempfile.mkdtemp(prefix="gpuferry-chromium-")
        options = webdriver.ChromeOptions()
        options.binary_location = str(self._shell())
        for flag in (*FLAGS, f"--user-data-dir={self._profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(_program("chromedriver")))
        self.driver.set_script_timeout(SECONDS)

    def _shell(self) -> Path:
        """A headless shell has no window until it is told of a page, which chromedriver leaves to others."""
        shell = Path(self._profile, "shell")
        shell.write_text(f'#!/bin/sh\nexec {_program("chromium-headless-shell")} "$@" about:blank\n')
        shell.chmod(0o755)
        return shell

    def look(self, width: int, height: int = 900, dark: bool = False) -> None:
        """The window's size, and what the user prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, url: str) -> None:
        """A page, of which nothing is remembered; of a link with a key, what it opens."""
        self.driver.get("about:blank")
        self.requests()
        self.complaints()  # of a page whose monitor is gone, up to its very end
        self.driver.get(url)
        wait_until(lambda: "/login" not in self.driver.current_url, "the page behind the login")

    def leave(self) -> None:
        """Show nothing: a page that stays open goes on drawing, and asks for its monitor."""
        self.driver.get("about:blank")

    def run(self, script: str, *arguments: Any) -> Any:
        """What the script returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, what: str) -> Any:
        """Until a JavaScript expression is true; the page itself watches, after each change."""
        script = """
            const [milliseconds, done] = arguments;
            const test = () => { try { return CONDITION; } catch { return false; } };
            const late = setTimeout(() => done(null), milliseconds);
            const watcher = new MutationObserver(check);
            function check() {
                const value = test();
                if (!value) return;
                watcher.disconnect();
                clearTimeout(late);
                done(value);
            }
            const all = {subtree: true, childList: true, attributes: true, characterData: true};
            watcher.observe(document, all);
            check();
        """
        script = script.replace("CONDITION", f"({condition})")
        value = self.driver.execute_async_script(script, (SECONDS - 1) * 1000)
        assert value, f"{what}: not within {SECONDS - 1:g} s; the page says:\n{self.text()}"
        return value

    def text(self, selector: str = "body") -> str:
        """What a reader sees."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def _log(self, kind: str) -> list[dict[str, str]]:
        return list(self.driver.get_log(kind))  # type: ignore[no-untyped-call]

    def requests(self) -> list[str]:
        """What was asked for since the last question."""
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self, accept: Callable[[str], bool] = lambda message: False) -> list[str]:
        """Errors in the console since the last question."""
        entries = [entry["message"] for entry in self._log("browser") if entry["level"] == "SEVERE"]
        return [message for message in entries if not accept(message)]

    def close(self) -> None:
        self.driver.quit()
        shutil.rmtree(self._profile, ignore_errors=True)
