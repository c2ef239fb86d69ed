"""Programs whose connection breaks."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor
from tests.helpers.running import Outcome, guest_environment, native_environment, run

RECONNECT = {"GPUFERRY_ON_LOSS": "reconnect"}


@functools.cache
def built(name: str) -> Path:
    """A program of tests/programs."""
    program = programs.program(name)
    return toolchain.program(program.source, program.flags)


@functools.cache
def native(name: str) -> Outcome:
    """What it does on the device itself."""
    return run([built(name)], native_environment())


def remote(monitor: Monitor, name: str, address: str, **settings: str) -> Outcome:
    """Through gpuferry, by way of `address`."""
    changes = {**monitor.settings(), **RECONNECT, "GPUFERRY_MONITOR": address, **settings}
    return run([built(name)], guest_environment(changes))


def same(there: Outcome, name: str) -> None:
    """As if nothing had happened."""
    here = native(name)
    assert (there.status, there.stdout) == (here.status, here.stdout), there.stderr + here.stderr
