"""Programs on a device that has clusters: natively, through gpuferry, and on a driver that does no work."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.programs import Program
from tests.helpers.running import Outcome, native_environment, run, skip_environment

pytestmark = pytest.mark.timeout(240)

HOPPER = {"GPUFERRY_SIM_CC": "9.0"}
PROGRAMS = [pytest.param(program, id=program.name) for program in programs.programs("clusters")]


@pytest.fixture(scope="module")
def hopper() -> Iterator[Monitor]:
    with monitor("--pool", "1", "--device", "sim", "--log-level", "warning", environment=HOPPER) as running:
        yield running


@functools.cache
def built(program: Program) -> Path:
    return toolchain.program(program.source, program.flags)


@functools.cache
def native(program: Program) -> Outcome:
    return run([built(program)], {**native_environment(), **HOPPER})


@pytest.mark.some(1)
@pytest.mark.parametrize("program", PROGRAMS)
def test_remote_equals_native(program: Program, hopper: Monitor) -> None:
    """What launches, functions and nodes say of clusters arrives, and is refused as the device does it."""
    assert native(program).status == 0, native(program)
    remote = hopper.run([built(program)], "tcp")
    assert remote.stdout == native(program).stdout, remote.stderr
    assert remote.status == native(program).status, remote.stderr


@pytest.mark.system
@pytest.mark.parametrize("program", PROGRAMS)
def test_without_work_it_fails(program: Program) -> None:
    outcome = run([built(program)], {**skip_environment(), **HOPPER})
    assert outcome.status != 0, f"{program.name} proves nothing:\n{outcome.stdout}"
