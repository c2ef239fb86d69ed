"""Every supported CUDA runtime, linked statically and shared, works through the guest library."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import programs, toolchain, toolkits
from tests.helpers.monitor import Monitor
from tests.helpers.running import native_environment, real_gpu, run

MATRIX = [(release, shared) for release in toolkits.RELEASES for shared in (False, True)]


def build(release: str, shared: bool) -> Path:
    """With the release's own nvcc if it has one, else a host program that loads PTX through the runtime."""
    has_compiler = toolkits.toolkit(release).nvcc is not None
    program = programs.program("vector_add_runtime" if has_compiler else "library_runtime")
    return toolchain.program(program.source, program.flags, release=release, shared_runtime=shared)


@pytest.mark.parametrize(
    ("release", "shared"), MATRIX, ids=lambda v: {True: "shared", False: "static"}.get(v, v)
)
def test_runtime(release: str, shared: bool, shared_monitor: Monitor) -> None:
    """The same output as natively."""
    try:
        toolkits.toolkit(release)
    except toolkits.ToolkitMissing as missing:
        if not real_gpu():
            raise
        pytest.skip(f"needs CUDA {release}: {missing}")  # `make gpu` runs without internet
    executable = build(release, shared)
    native = run([executable], native_environment())
    remote = shared_monitor.run([executable])
    assert native.status == 0, native.stdout + native.stderr
    assert (remote.status, remote.stdout) == (native.status, native.stdout), remote.stderr
