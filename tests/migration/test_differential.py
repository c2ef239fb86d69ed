"""Programs that are moved at random boundaries of their calls do what they do when nobody moves them."""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.differential.differences import comparable
from tests.helpers import programs, toolchain
from tests.helpers.programs import Program
from tests.helpers.running import Outcome, guest_environment, native_environment, real_gpu, run
from tests.migration.carriage import Carriage
from tests.migration.crossing import Crossing
from tests.migration.gate import Journey, Stop, Way
from tests.migration.moving import PRECOPY
from tests.migration.moving import STOP as STOP_AND_COPY

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(real_gpu(), reason="needs two simulated devices")]

MOST_STOPS = {Way.GPU: 3, Way.FILE: 2, Way.SERVER: 3}
SEEDS = 6  # of the long suite, for each way to go; the first one of some is in the short one
LOSSES = ("error", "reconnect")
Road = Carriage | Crossing
# NVML asks a monitor, and there is none here: test_monitor moves that one.
MOVABLE = [program for program in programs.with_long_ones() if program.name != "moving_identity"]
# Short ones that together have streams, events, modules, variables, contexts, errors, threads and both APIs.
SOME = {
    "array_copies",
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
    "green_contexts",
    "histogram",
    "host_register",
    "illegal_address",
    "launch_extra",
    "kernel_settings",
    "legacy_stream",
    "library_and_module",
    "link_logs",
    "link_symbols",
    "memsets",
    "mipmaps",
    "moving_child_graphs",
    "moving_conditionals",
    "moving_contexts",
    "moving_graph_nodes",
    "moving_graphs",
    "moving_greens",
    "null_handles",
    "per_thread_stream",
    "pools_own",
    "primary_context",
    "reuse_across_streams",
    "shared_stream_threads",
    "stale_handles",
    "struct_parameters",
    "symbols",
    "texture_objects",
    "texture_references",
    "vector_add_driver",
    "vector_add_runtime",
    "vmm_access",
    "vmm_maps",
}
SOME_BY_FILE = {
    "array_copies",
    "contexts",
    "events",
    "globals_driver",
    "graph_arrays",
    "link_ptx",
    "memsets",
    "mipmaps",
    "moving_child_graphs",
    "moving_conditionals",
    "moving_contexts",
    "moving_graph_nodes",
    "moving_graphs",
    "moving_greens",
    "symbols",
    "texture_objects",
    "texture_references",
    "vector_add_runtime",
    "vmm_maps",
}
SOME_BETWEEN_SERVERS = {
    "bad_launch",
    "contexts",
    "copies_2d",
    "count_exactly",
    "event_ordering",
    "events",
    "globals_driver",
    "library_and_module",
    "link_errors",
    "mipmaps",
    "moving_child_graphs",
    "moving_conditionals",
    "moving_greens",
    "per_thread_stream",
    "pinned_pipeline",
    "shared_stream_threads",
    "texture_objects",
    "texture_references",
    "vector_add_runtime",
    "vmm_access",
    "vmm_maps",
}
SOME_OF = {
    Way.GPU: SOME,
    Way.FILE: set(sorted(SOME_BY_FILE)[::2]),
    Way.SERVER: set(sorted(SOME_BETWEEN_SERVERS)[::2]),
}


# Why a session is not moved whose device failed, or failed and ended its program.
REFUSALS = (
    "CUDA_ERROR",
    "its device has failed",
    "the device has failed",
    "its program ended",
    "the session ended",
    "the session is over",
)
# Their streams wait for what the program does next, which a gate of this test may hold: then it is refused.
WAITING = {
    "allocated_beside_waits",
    "async_host_to_device",
    "blocking_copies",
    "cancelled_thread",
    "capture_basic",
    "course_idioms",
    "events_of_contexts",
    "fatal_misuse",
    "free_waits",
    "gated_streams",
    "graph_errors",
    "graph_nodes",
    "graph_outlived",
    "graph_random",
    "graph_runtime",
    "graph_samples",
    "graph_updates",
    "graph_user_objects",
    "green_contexts",
    "host_errors",
    "host_exit",
    "host_function",
    "host_function_beside",
    "host_function_shared",
    "ipc_beside_kernel",
    "loads_beside_host_functions",
    "mapped_polling",
    "moving_graph_nodes",
    "pinned_in_graphs",
    "polling_large",
    "primary_threads",
    "printf_points",
    "registered_mailbox",
    "registered_polling",
    "stream_values",
    "texture_objects",
    "threads_without_context",
    "vmm_beside_streams",
}
# Nobody can enumerate what their kernels have allocated.
ALLOCATING = {"limits_after_use", "printf_points", "virtual_functions"}
ALLOCATED = "its kernels allocate memory themselves (malloc)"
WAITS = ("functions of the program that stand in streams", "the device is still at work")
# They are several processes, which a monitor brings together; they move together, and to no other server.
# Those that come when the first has gone to another one are a program of their own and share nothing with it.
SEVERAL = tuple(
    each.name for each in MOVABLE if each.name.startswith(("ipc_", "processes_", "vmm_share", "wrong_sides"))
)
SHARING = "processes of a program, which move together"
# Their device fails, which is seen when it is asked for something next.
FAILING = {
    "another_stream",
    "asked_of_driver",
    "failed_contexts",
    "illegal_address",
    "illegal_address_runtime",
    "nested_launches",
    "trap",
    "misaligned",
    "reset_after_failure",
    "device_assert",
    "device_messages",
    "use_after_free",
    "vmm_access",
}


@pytest.fixture(scope="session")
def carriage() -> Iterator[Carriage]:
    # Not below pytest's own folder: the path of a Unix socket may have 107 characters.
    with (
        tempfile.TemporaryDirectory(prefix="gpuferry-test-", dir="/tmp") as folder,
        Carriage(Path(folder)) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def crossing() -> Iterator[Crossing]:
    with Crossing() as running:
        yield running


@functools.cache
def native(program: Program) -> Outcome:
    return run([built(program)], native_environment())


@functools.cache
def built(program: Program) -> Path:
    return toolchain.program(program.source, program.flags)


@functools.cache
def calls(program: Program, road: Road) -> int:
    """How many the program makes when nobody moves it."""
    return carried(program, road, []).calls


def carried(
    program: Program, road: Road, stops: Sequence[Stop], way: Way = Way.GPU, loss: str = "error"
) -> Journey:
    journey = road.begin(stops, way)
    there = run([built(program)], guest_environment({**road.settings, "GPUFERRY_ON_LOSS": loss}))
    road.finish()
    if program.name in SEVERAL and journey.moved:  # what came later shares nothing with it
        return journey
    here = native(program)
    in_any_order = program.sorted_output
    assert comparable(program.name, there.stdout, in_any_order=in_any_order) == comparable(
        program.name, here.stdout, in_any_order=in_any_order
    ), there.stderr
    assert there.status == here.status, there.stderr
    return journey


def stops(chance: random.Random, calls: int, way: Way) -> list[Stop]:
    """Anywhere in the program, which goes on meanwhile or does not."""
    last = calls - 1  # the very last one ends the session
    places = sorted({chance.randint(1, last) for _ in range(chance.randint(1, MOST_STOPS[way]))})
    return [
        Stop(
            place,
            place if chance.random() < 0.6 else chance.randint(place, last),
            chance.choice([STOP_AND_COPY, PRECOPY]),
        )
        for place in places
    ]


def case(program: Program, seed: int, way: Way) -> object:
    road = "crossing" if way is Way.SERVER else "carriage"
    marks = [pytest.mark.slow] if seed > 0 or program.name not in SOME_OF[way] else []
    return pytest.param(program, seed, way, road, id=f"{program.name}-{seed}-{way.value}", marks=marks)


CASES = [
    case(program, seed, way)
    for program in MOVABLE
    for way in ([Way.SERVER] if program.name in SEVERAL else Way)
    for seed in range(SEEDS)
]


@pytest.mark.some(10)
@pytest.mark.parametrize(("program", "seed", "way", "road"), CASES)
def test_a_program_that_is_moved(
    request: pytest.FixtureRequest,
    record_property: Callable[[str, int], None],
    program: Program,
    seed: int,
    way: Way,
    road: str,
) -> None:
    """Every stop counts: a program that gets past one unmoved proves nothing."""
    through: Road = request.getfixturevalue(road)
    chance = random.Random(f"{program.name} {seed} {way.value}")
    wanted = stops(chance, calls(program, through), way)
    loss = chance.choice(LOSSES) if way is Way.SERVER else "error"
    journey = carried(program, through, wanted, way, loss)
    record_property("moved", journey.moved)
    record_property("followed", journey.followed)
    known = (*REFUSALS, *(WAITS if program.name in WAITING else ()))
    known += (ALLOCATED,) if program.name in ALLOCATING else ()
    known += (SHARING,) if program.name in SEVERAL else ()
    if program.name in FAILING | WAITING | ALLOCATING | set(SEVERAL):
        assert all(any(each in reason for each in known) for reason in journey.refused), journey
        assert program.name in SEVERAL or journey.moved + len(journey.refused) >= len(wanted), journey
    elif journey.sessions == 1:
        assert (journey.moved, journey.refused) == (len(wanted), []), journey
    else:  # sometimes they are in each other's way
        assert set(journey.refused) <= {"no other server is idle"}, journey
        assert journey.moved > 0, journey
