"""`gpuferry doctor`: everything that a program needs, checked one by one, each failure with what to do.

Standard library only, but for what a machine with the server's packages is asked besides.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict

from gpuferry.guest.paths import LibraryMissing

from ..settings.errors import ConfigError
from . import reach
from .checks import machine, monitor
from .checks.check import Check
from .checks.open_secrets import open_secrets
from .errors import CliError, Exit, plain
from .quick import QUICK, not_for_servers

SCHEMA = "gpuferry.doctor/1"
_COLOURS = {"ok": "32", "note": "33", "failed": "1;31"}

Look = Callable[[], Iterable[Check]]


def _found(name: str, look: Look) -> Iterator[Check]:
    """The findings of one look. That it cannot be taken is one too, and keeps nobody from the others."""
    try:
        yield from look()
    except (CliError, ConfigError) as error:
        yield Check(name, "failed", str(error), error.hint or "see `gpuferry config show`")
    except LibraryMissing as error:
        yield Check(name, "failed", str(error), "build it with `make build`, or install a wheel")
    except Exception as error:
        if "GPUFERRY_DEBUG" in os.environ:
            raise
        detail = f"this could not be looked at: {type(error).__name__}: {error}"
        yield Check(name, "failed", detail, "GPUFERRY_DEBUG=1 shows where")


def _server_looks() -> Iterator[tuple[str, Look]]:
    if reason := not_for_servers():
        name, detail = "what a monitor needs", f"not looked at, for here are guests only ({reason})"
        yield name, lambda: [Check(name, "note", detail, "else: pip install 'gpuferry[server]'")]
        return
    from .checks import jail, settings, sharing

    yield "settings", lambda: settings.settings_checks(machine.monitor_runs())
    yield "runtime folder", machine.runtime_folder
    yield "state folder", machine.state_folder
    yield "what a monitor would offer", lambda: [machine.offer()]
    yield "sharing by hardware", lambda: [sharing.sharing()]
    yield "jail", jail.jail


def _looks(address: str | None, token_file: str | None) -> Iterator[tuple[str, Look]]:
    yield "guest library", lambda: [machine.guest_library()]
    yield "GPU", lambda: [machine.gpu()]
    yield "simulated device", machine.simulated_device
    yield "secrets in the open", open_secrets
    yield from _server_looks()
    yield "monitor", lambda: monitor.monitor_checks(address, token_file)


def checks(address: str | None, token_file: str | None) -> Iterator[Check]:
    """Everything that is checked, in the order in which things depend on each other."""
    for name, look in _looks(address, token_file):
        yield from _found(name, look)


def _show(check: Check) -> None:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    result = f"{check.result:7}"
    if colour:
        result = f"\x1b[{_COLOURS[check.result]}m{result}\x1b[0m"
    print(f"{result}{check.name}: {plain(check.detail)}")  # some of it is a server's word
    if check.next_step:
        print(f"       -> {plain(check.next_step)}")


def main(arguments: list[str]) -> int:
    """Print every finding. Returns the exit status: 0 if nothing failed."""
    options = argparse.ArgumentParser(prog="gpuferry doctor", description=QUICK["doctor"], allow_abbrev=False)
    options.add_argument(
        "--monitor", metavar="ADDRESS", help="HOST:PORT, tls://HOST:PORT or unix:PATH [GPUFERRY_MONITOR]"
    )
    options.add_argument(
        "--token-file", metavar="FILE", help="The token [GPUFERRY_TOKEN, GPUFERRY_TOKEN_FILE]"
    )
    reach.add_tls_option(options)
    options.add_argument("--json", action="store_true", help="Machine-readable, with a stable schema")
    chosen = options.parse_args(arguments)
    reach.take_tls_option(chosen)
    done = []
    for check in checks(chosen.monitor, chosen.token_file):
        done.append(check)
        if not chosen.json:
            _show(check)
    failed = any(check.result == "failed" for check in done)
    if chosen.json:
        report = {"schema": SCHEMA, "ok": not failed, "checks": [asdict(check) for check in done]}
        print(json.dumps(report, indent=2))
    return Exit.FAILED if failed else Exit.OK
