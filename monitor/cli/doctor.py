"""`gpuferry doctor`: everything that a program needs, checked one by one, each failure with what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from .checks import jail, machine, monitor, settings
from .checks.check import Check
from .errors import Exit

SCHEMA = "gpuferry.doctor/1"
_STYLES = {"ok": "green", "note": "yellow", "failed": "bold red"}


def checks(address: str | None, token_file: str | None) -> Iterator[Check]:
    """Everything that is checked, in the order in which things depend on each other."""
    yield machine.guest_library()
    yield machine.gpu()
    yield from machine.simulated_device()
    yield from settings.settings_checks(machine.monitor_runs())
    yield from machine.runtime_folder()
    yield machine.offer()
    yield from jail.jail()
    yield from monitor.monitor_checks(address, token_file)


def run_doctor(monitor: str | None, token_file: str | None, as_json: bool) -> int:
    """Print every finding. Returns the exit status: 0 if nothing failed."""
    console = Console(highlight=False, soft_wrap=True)
    done = []
    for check in checks(monitor, token_file):
        done.append(check)
        if not as_json:
            console.print(
                Text.assemble((f"{check.result:7}", _STYLES[check.result]), f"{check.name}: {check.detail}")
            )
            if check.next_step:
                console.print(Text(f"       -> {check.next_step}"))
    failed = any(check.result == "failed" for check in done)
    if as_json:
        print(
            json.dumps(
                {"schema": SCHEMA, "ok": not failed, "checks": [asdict(check) for check in done]}, indent=2
            )
        )
    return Exit.FAILED if failed else Exit.OK
