"""Programs whose memory leaves and returns at random calls do what they do when nobody disturbs them."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.programs import Program
from tests.helpers.running import real_gpu
from tests.migration.gate import Way
from tests.migration.test_differential import (
    FAILING,
    MOVABLE,
    REFUSALS,
    SEVERAL,
    SOME,
    WAITING,
    WAITS,
    calls,
    carried,
    stops,
)
from tests.residency.departures import BUSY, BUSY_SECONDS, SHARES, WAITING_SECONDS, Lodging

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(real_gpu(), reason="needs the simulated device")]

SEEDS = 4  # of the long suite; the first one of some is in the short one
ALL = [program for program in MOVABLE if program.name not in SEVERAL]


@pytest.fixture(scope="session")
def lodging() -> Iterator[Lodging]:
    # Not below pytest's own folder: the path of a Unix socket may have 107 characters.
    with (
        tempfile.TemporaryDirectory(prefix="gpuferry-test-", dir="/tmp") as folder,
        Lodging(Path(folder), 2) as running,
    ):
        assert isinstance(running, Lodging)
        yield running


def case(program: Program, seed: int) -> object:
    marks = [pytest.mark.slow] if seed > 0 or program.name not in sorted(SOME)[::2] else []
    return pytest.param(program, seed, id=f"{program.name}-{seed}", marks=marks)


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("program", "seed"), [case(program, seed) for program in ALL for seed in range(SEEDS)]
)
def test_a_program_whose_memory_comes_and_goes(
    record_property: Callable[[str, int], None], lodging: Lodging, program: Program, seed: int
) -> None:
    """Every stop counts: a program that gets past one with its memory on the device proves nothing."""
    chance = random.Random(f"{program.name} {seed} residency")
    wanted = stops(chance, calls(program, lodging), Way.GPU)
    may_stay_busy = program.name in FAILING | WAITING
    lodging.busy_seconds = WAITING_SECONDS if may_stay_busy else BUSY_SECONDS
    journey = carried(program, lodging, wanted)
    record_property("moved", journey.moved)
    if may_stay_busy:
        known = (*REFUSALS, *WAITS, BUSY)
        assert all(any(each in reason for each in known) for reason in journey.refused), journey
        assert journey.moved + len(journey.refused) >= len(wanted), journey
    elif journey.sessions == 1:
        assert (journey.moved, journey.refused) == (len(wanted), []), journey
    else:  # those that share memory stay
        assert all(SHARES in reason or reason in REFUSALS for reason in journey.refused), journey
