"""What CUDA leaves open varies (design D22), and no program of ours depends on it, natively or remotely.

A whole suite runs under a seed with GPUFERRY_SIM_VARIANCE=SEED in its environment. Here are a few programs
under each kind of choice, and (slow) all of them under ten seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.programs import Program
from tests.helpers.running import native_environment, real_gpu, run

from .differences import comparable

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(real_gpu(), reason="a GPU varies by itself"),
]

# Together these two make each choice otherwise than without a seed (tests/simdevice/test_variance.py).
FEW_SEEDS = (1, 8)
SEEDS = range(1, 11)
PATIENCE = 600.0  # for a program whose every operation may begin late
FEW = ("capture_streams", "event_ordering", "globals_driver", "memory_facts", "pinned_pipeline", "pools_own")


@dataclass(frozen=True)
class Varied:
    """A monitor whose devices vary by a seed."""

    settings: dict[str, str]
    monitor: Monitor

    def assert_passes(self, program: Program) -> None:
        """The program passes natively, and remotely it prints the same."""
        built = toolchain.program(program.source, program.flags)
        native = run([built], {**native_environment(), **self.settings}, PATIENCE)
        assert native.status == 0, native.stdout + native.stderr
        remote = self.monitor.run([built], timeout=PATIENCE)
        there, here = (
            comparable(program.name, outcome.stdout, in_any_order=program.sorted_output)
            for outcome in (remote, native)
        )
        assert there == here, remote.stderr


@pytest.fixture(scope="module")
def varied(request: pytest.FixtureRequest) -> Iterator[Varied]:
    settings = {"GPUFERRY_SIM_VARIANCE": str(request.param)}
    with monitor("--pool", "2", "--log-level", "warning", environment=settings) as running:
        yield Varied(settings, running)


@pytest.mark.some(6)
@pytest.mark.parametrize("varied", FEW_SEEDS, indirect=True)
@pytest.mark.parametrize("name", FEW)
def test_a_few(varied: Varied, name: str) -> None:
    varied.assert_passes(programs.program(name))


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE + 60)
@pytest.mark.parametrize("varied", SEEDS, indirect=True)
@pytest.mark.parametrize("program", programs.programs(), ids=lambda program: program.name)
def test_all(varied: Varied, program: Program) -> None:
    varied.assert_passes(program)
