"""Processes of one program share its lease: memory, place, and an API server for each at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.monitor import Monitor, monitor

PROGRAM = Path(__file__).with_name("processes.py")


@pytest.fixture(scope="module")
def small() -> Iterator[Monitor]:
    """One API server in the pool, so that whoever queues behind his parent waits for ever."""
    arguments = "--pool", "1", "--memory", "512MiB", "--max-wait", "3600"
    with monitor(*arguments, environment={"GPUFERRY_SIM_DEVICES": "2"}) as running:
        yield running


@pytest.mark.parametrize(
    ("method", "gpus", "device"), [("spawn", 1, 0), ("forkserver", 1, 0), ("spawn", 2, 1)]
)
def test_memory_is_shared(small: Monitor, method: str, gpus: int, device: int) -> None:
    """Whoever asks for more than is left gets CUDA_ERROR_OUT_OF_MEMORY, and what is freed is for all."""
    found = small.run([sys.executable, PROGRAM, method, str(device)], extra={"GPUFERRY_GPUS": str(gpus)})
    assert (found.status, found.stdout) == (0, "as it should be\n"), found.stderr
