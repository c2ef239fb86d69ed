"""Two real API servers, shared, with dirty device memory; that tests leave them whole is checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adversity.sessions import Bystander, session
from tests.monitor import harness

POOL = 2


@pytest.fixture(scope="package")
def shared_monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", str(POOL), server=None, GPUFERRY_SIM_DIRTY="1") as running:
        running.wait_idle(POOL)
        yield running


@pytest.fixture
def monitor(shared_monitor: harness.Monitor) -> Iterator[harness.Monitor]:
    """Afterwards the pool is whole, and nothing is granted."""
    yield shared_monitor
    status = shared_monitor.wait_idle(POOL)
    assert not status.sessions
    assert status.devices[0].memory_granted == 0


@pytest.fixture
def bystander(monitor: harness.Monitor) -> Iterator[Bystander]:
    """Somebody else's session: undisturbed, whatever the test does."""
    with session(monitor, program=b"bystander") as guest:
        other = Bystander(guest)
        other.is_fine()
        yield other
        other.is_fine()
