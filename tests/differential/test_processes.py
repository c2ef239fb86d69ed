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
    with monitor("--pool", "1", "--memory", "512MiB", "--max-wait", "3600") as running:
        yield running


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_memory_is_shared(small: Monitor, method: str) -> None:
    """Whoever asks for more than is left gets CUDA_ERROR_OUT_OF_MEMORY, and what is freed is for all."""
    found = small.run([sys.executable, PROGRAM, method])
    assert (found.status, found.stdout) == (0, "as it should be\n"), found.stderr
