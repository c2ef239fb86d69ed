"""An environment that a user made."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.monitor.harness import wait_until


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel in it, and a home of its own."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        venv.create(self.folder / "venv", symlinks=True)

    def install(self, *what: str) -> None:
        """Install with pip, as a user would."""
        python = str(self.folder / "venv/bin/python")
        command = [sys.executable, "-m", "pip", "--python", python, "install", "-q", *what]
        subprocess.run(command, check=True)

    def packages(self) -> set[str]:
        """The distributions that pip sees there, as NAME==VERSION."""
        python = str(self.folder / "venv/bin/python")
        command = [sys.executable, "-m", "pip", "--python", python, "freeze", "--all"]
        return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n"))

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("GPUFERRY_", "PYTHON"))
        }
        return kept | {
            "PATH": f"{self.folder / 'venv/bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "GPUFERRY_DEVICE": "sim",
            "GPUFERRY_SIM_DEVICES": "2",
            "GPUFERRY_RUNTIME_DIR": str(self.folder / "run"),
            "NO_COLOR": "1",
            **self.settings,
        }

    def run(self, *words: str | Path, status: int = 0) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def monitor(self) -> Iterator[Path]:
        """A monitor with one API server, and its runtime folder."""
        command = ["monitor", "--pool", "1", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        log = self.folder / "log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [str(self.folder / "venv/bin/gpuferry"), *command],
                cwd=self.folder,
                env=self.environment,
                stderr=stderr,
            )
        endpoint = self.folder / "run/endpoint"
        try:
            wait_until(endpoint.exists, f"the monitor's endpoint; log: {log.read_text()}")
            yield endpoint.parent
        finally:
            process.terminate()
            assert process.wait(60) == 0, log.read_text()

    def wait_for_an_api_server(self) -> None:
        """Until the monitor has an idle one."""

        def whole() -> bool:
            return '"pool_idle": 1' in self.run("gpuferry", "status", "--json")

        wait_until(whole, "an idle API server")
