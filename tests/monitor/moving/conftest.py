"""Monitors of two devices, for sessions that move or go into a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitor import harness
from tests.monitor.moves import SURPLUS, start, whole


@pytest.fixture(scope="module")
def shared() -> Iterator[harness.Monitor]:
    with start("--pool", "1", constants=SURPLUS) as running:
        yield running


@pytest.fixture
def monitor(shared: harness.Monitor) -> Iterator[harness.Monitor]:
    with whole(shared):
        yield shared


@pytest.fixture
def first() -> Iterator[harness.Monitor]:
    """One that ends in the middle of it, so that another takes over."""
    with start("--pool", "1", "--orphan-grace", "60") as running:
        running.wait_idle(2)
        yield running
