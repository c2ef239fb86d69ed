"""Every program of tests/programs natively, through gpuferry, and on a driver that does no work.

Native and remote runs must agree in output, exit status and each call's result; without work a program
must fail.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor
from tests.helpers.programs import Program
from tests.helpers.running import Outcome, native_environment, real_gpu, run, skip_environment

from .differences import DIFFERENCES, comparable

pytestmark = pytest.mark.timeout(240)


# Short programs that together go through threads, streams, copies, errors and both APIs. None with threads
# over the runtime API: TSan does not see how NVIDIA's own code orders them.
SANITIZED = {
    "async_alloc",
    "bad_free",
    "capture_basic",
    "contexts",
    "event_ordering",
    "graph_conditional",
    "graph_memory",
    "graph_nodes",
    "illegal_address",
    "link_errors",
    "link_logs",
    "pinned_pipeline",
    "shared_stream_threads",
    "symbols",
    "vector_add_driver",
}

# Over the runtime API, so that nvcc and the compiler of kernels take seconds for each; what they go through
# others do too, most of them over the driver API. They run in `make test-system`.
SYSTEM = {
    "alloc_free_pairs",
    "big_copy",
    "big_parameters",
    "blocking_copies",
    "concurrent_copies",
    "cooperative_full",
    "copies_3d",
    "course_idioms",
    "device_assert",
    "device_queries",
    "full_duplex",
    "function_attributes",
    "gated_streams",
    "graph_symbols",
    "green_runtime",
    "histogram",
    "kernel_errors",
    "late_calls",
    "limits_after_use",
    "many_handles",
    "many_kernels",
    "many_threads_many_streams",
    "mipmaps_runtime",
    "moving_streams",
    "no_sync_exit",
    "overrun",
    "per_thread_copies",
    "polling_large",
    "pool_before_context",
    "printf_points",
    "registered_polling",
    "reset_after_failure",
    "stdout_held",
    "struct_parameters",
    "tiny_launches",
    "virtual_functions",
    "wide_integers",
    "wrong_sides",
}


def case(program: Program) -> object:
    marks = []
    if program.name in SYSTEM:
        marks.append(pytest.mark.system)
    if program.suite == "long":
        marks.append(pytest.mark.slow)
    if program.name in SANITIZED:
        marks.append(pytest.mark.sanitize)
    return pytest.param(program, id=program.name, marks=marks)


ALL = [case(program) for program in programs.with_long_ones()]


@functools.cache
def built(program: Program) -> Path:
    return toolchain.program(program.source, program.flags)


@functools.cache
def native(program: Program) -> Outcome:
    return run([built(program)], native_environment())


def require_device(program: Program) -> None:
    if program.only_sim and real_gpu():
        pytest.skip("needs the simulated device: a GPU's driver promises nothing here")


@pytest.mark.parametrize("program", ALL)
def test_remote_equals_native(program: Program, shared_monitor: Monitor) -> None:
    """CUDA's promises hold on the device itself, and the program sees the same through gpuferry, over TCP."""
    require_device(program)
    here = native(program)
    assert here.status == 0, here.stdout + here.stderr
    assert_same(program, shared_monitor.run([built(program)], "tcp"))


@pytest.mark.slow
@pytest.mark.parametrize("program", ALL)
def test_without_work_it_fails(program: Program) -> None:
    """No program passes if launches and copies are accepted and not done."""
    outcome = run([built(program)], skip_environment())
    assert outcome.status != 0, f"{program.name} proves nothing:\n{outcome.stdout}"


UNIX_SOCKET = (
    "vector_add_runtime",
    "shared_stream_threads",
    "pinned_pipeline",
    "illegal_address",
    "link_errors",
    "link_ptx",
)


@pytest.mark.parametrize("name", UNIX_SOCKET)
def test_remote_over_unix_socket(name: str, shared_monitor: Monitor) -> None:
    """The Unix socket carries the same as TCP."""
    program = programs.program(name)
    assert_same(program, shared_monitor.run([built(program)], "unix"))


def assert_same(program: Program, remote: Outcome) -> None:
    """The native run of the same program is the reference."""
    there, here = (
        comparable(program.name, outcome.stdout, in_any_order=program.sorted_output)
        for outcome in (remote, native(program))
    )
    assert there == here, remote.stderr
    if program.name in DIFFERENCES:
        assert remote.stdout != native(program).stdout, "it no longer differs: take it out of DIFFERENCES"
    assert remote.status == native(program).status, remote.stderr
