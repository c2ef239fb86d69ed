"""A driver that loads an image only when the device has nothing to do, and takes no other call until then.

NVIDIA's does, it seems: JAX hung on a GPU while a function of the program was on its way and an image was
loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers import programs
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import native_environment, real_gpu, run

from .test_programs import built

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(real_gpu(), reason="a setting of the simulated device"),
]
WAITING = {"GPUFERRY_SIM_LOADS": "wait"}
NAMES = (
    "loads_beside_host_functions",
    "host_function_beside",
    "host_function",
    "library_and_module",
    "graph_runtime",
)


@pytest.fixture(scope="module")
def waiting() -> Iterator[Monitor]:
    with monitor("--pool", "1", "--log-level", "warning", environment=WAITING) as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_nothing_waits_for_ever(name: str, waiting: Monitor) -> None:
    command = [built(programs.program(name))]
    native = run(command, native_environment() | WAITING)
    assert native.status == 0, native.stdout + native.stderr
    remote = waiting.run(command)
    assert (remote.status, remote.stdout) == (0, native.stdout), remote.stderr
