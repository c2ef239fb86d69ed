"""`gpuferry doctor`: everything that a program needs, checked one by one, each failure with what to do.

Standard library only, but for what a machine with the server's packages is asked besides.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict

from . import reach
from .checks import machine, monitor
from .checks.check import Check
from .errors import Exit
from .quick import QUICK, not_for_servers

SCHEMA = "gpuferry.doctor/1"
_COLOURS = {"ok": "32", "note": "33", "failed": "1;31"}


def _server_checks() -> Iterator[Check]:
    if reason := not_for_servers():
        detail = f"not looked at, for here are guests only ({reason})"
        yield Check("what a monitor needs", "note", detail, "else: pip install 'gpuferry[server]'")
        return
    from .checks import jail, settings, sharing

    yield from settings.settings_checks(machine.monitor_runs())
    yield from machine.runtime_folder()
    yield machine.offer()
    yield sharing.sharing()
    yield from jail.jail()


def checks(address: str | None, token_file: str | None) -> Iterator[Check]:
    """Everything that is checked, in the order in which things depend on each other."""
    yield machine.guest_library()
    yield machine.gpu()
    yield from machine.simulated_device()
    yield from _server_checks()
    yield from monitor.monitor_checks(address, token_file)


def _show(check: Check) -> None:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    result = f"{check.result:7}"
    if colour:
        result = f"\x1b[{_COLOURS[check.result]}m{result}\x1b[0m"
    print(f"{result}{check.name}: {check.detail}")
    if check.next_step:
        print(f"       -> {check.next_step}")


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
