"""Programs on two devices: natively, through gpuferry with `--gpus 2`, and on a driver that does no work."""

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

TWO = {"GPUFERRY_SIM_DEVICES": "2"}
PROGRAMS = [pytest.param(program, id=program.name) for program in programs.programs("devices")]


@pytest.fixture(scope="module")
def two_devices() -> Iterator[Monitor]:
    with monitor("--pool", "1", "--device", "sim", "--log-level", "warning", environment=TWO) as running:
        yield running


@functools.cache
def built(program: Program) -> Path:
    return toolchain.program(program.source, program.flags)


@functools.cache
def native(program: Program) -> Outcome:
    return run([built(program)], {**native_environment(), **TWO})


@pytest.mark.parametrize("program", PROGRAMS)
def test_native(program: Program) -> None:
    """CUDA's promises hold on the devices themselves."""
    outcome = native(program)
    assert outcome.status == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_remote_equals_native(program: Program, two_devices: Monitor) -> None:
    """A program that is given two devices finds on them what it finds natively."""
    remote = two_devices.run([built(program)], "tcp", {"GPUFERRY_GPUS": "2"})
    assert remote.stdout == native(program).stdout, remote.stderr
    assert remote.status == native(program).status, remote.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_work_it_fails(program: Program) -> None:
    """No program passes if launches and copies are accepted and not done."""
    outcome = run([built(program)], {**skip_environment(), **TWO})
    assert outcome.status != 0, f"{program.name} proves nothing:\n{outcome.stdout}"
