"""Programs that are moved at random boundaries of their calls do what they do when nobody moves them."""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.differential.differences import comparable
from tests.helpers import programs, toolchain
from tests.helpers.programs import Program
from tests.helpers.running import Outcome, guest_environment, native_environment, real_gpu, run
from tests.migration.carriage import Carriage, Journey, Stop
from tests.migration.moving import PRECOPY
from tests.migration.moving import STOP as STOP_AND_COPY

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(real_gpu(), reason="needs two simulated devices")]

MOST_STOPS = 3
SEEDS = 5  # of the long suite, for each way to go
ALL = [*programs.programs(), *programs.programs("long")]
# Short ones that together have streams, events, modules, variables, contexts, errors, threads and both APIs.
SOME = {
    "bad_copies",
    "bad_launch",
    "contexts",
    "copies_2d",
    "count_exactly",
    "destroy_pending",
    "device_copies",
    "event_ordering",
    "events",
    "fork_after_use",
    "function_attributes",
    "globals_driver",
    "histogram",
    "host_register",
    "illegal_address",
    "launch_extra",
    "legacy_stream",
    "library_and_module",
    "memsets",
    "moving_contexts",
    "null_handles",
    "per_thread_stream",
    "primary_context",
    "reuse_across_streams",
    "shared_stream_threads",
    "stale_handles",
    "struct_parameters",
    "symbols",
    "vector_add_driver",
    "vector_add_runtime",
}
SOME_BY_FILE = {
    "contexts",
    "events",
    "globals_driver",
    "memsets",
    "moving_contexts",
    "symbols",
    "vector_add_runtime",
}


# What a program may be doing that keeps it from being moved, just then or for good.
REFUSALS = (
    "the session is over",
    "the session ended",
    "its program ended",
    "no other server is idle",
    "its device has failed",
    "the device has failed",
    "it is just unloading code",
)
# Their device fails, which is seen when it is asked for something next.
REFUSED = {
    "illegal_address",
    "illegal_address_runtime",
    "trap",
    "misaligned",
    "device_assert",
    "use_after_free",
}


@pytest.fixture(scope="session")
def carriage() -> Iterator[Carriage]:
    # Not below pytest's own folder: the path of a Unix socket may have 107 characters.
    with (
        tempfile.TemporaryDirectory(prefix="gpuferry-test-", dir="/tmp") as folder,
        Carriage(Path(folder)) as running,
    ):
        yield running


@functools.cache
def native(program: Program) -> Outcome:
    return run([built(program)], native_environment())


@functools.cache
def built(program: Program) -> Path:
    return toolchain.program(program.source, program.flags)


@functools.cache
def frames(program: Program, carriage: Carriage) -> int:
    """How many the program's guest sends; in one run, for threads make it vary."""
    return carried(program, carriage, []).frames


def carried(program: Program, carriage: Carriage, stops: Sequence[Stop]) -> Journey:
    journey = carriage.begin(stops)
    there = run([built(program)], guest_environment(carriage.settings))
    carriage.finish()
    here = native(program)
    in_any_order = program.sorted_output
    assert comparable(program.name, there.stdout, in_any_order=in_any_order) == comparable(
        program.name, here.stdout, in_any_order=in_any_order
    ), there.stderr
    assert there.status == here.status, there.stderr
    return journey


def stops(program: Program, carriage: Carriage, seed: int, by_file: bool) -> list[Stop]:
    """Chosen by the seed: anywhere in the program."""
    chance = random.Random(f"{program.name} {seed} {by_file}")
    last = max(1, frames(program, carriage) - 2)  # the very last one ends the session
    places = sorted({chance.randint(1, last) for _ in range(1 if by_file else chance.randint(1, MOST_STOPS))})
    return [
        Stop(place, by_file, chance.random() < 0.8, chance.choice([STOP_AND_COPY, PRECOPY]))
        for place in places
    ]


def case(program: Program, seed: int, by_file: bool, short: bool) -> object:
    marks = [pytest.mark.xdist_group("carriage")]
    if not short:
        marks.append(pytest.mark.slow)
    return pytest.param(program, seed, by_file, id=f"{program.name}-{seed}{'-file' * by_file}", marks=marks)


CASES = [
    case(program, seed, by_file, seed == 0 and program.name in (SOME_BY_FILE if by_file else SOME))
    for program in ALL
    for by_file in (False, True)
    for seed in range(SEEDS)
]


@pytest.mark.parametrize(("program", "seed", "by_file"), CASES)
def test_a_program_that_is_moved(carriage: Carriage, program: Program, seed: int, by_file: bool) -> None:
    wanted = stops(program, carriage, seed, by_file)
    journey = carried(program, carriage, wanted)
    for reason in journey.refused:
        fails = program.name in REFUSED and "CUDA_ERROR" in reason
        assert fails or any(known in reason for known in REFUSALS), journey
    if program.name not in REFUSED and any(stop.holds for stop in wanted):
        assert journey.moved, journey
