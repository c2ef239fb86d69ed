"""A monitor with several simulated GPUs, whose API servers stop at named points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.helpers.points import Points
from tests.helpers.tokens import token_of
from tests.monitor import harness


@contextmanager
def gpus(points: Points, count: int, token: str, *options: str) -> Iterator[harness.Monitor]:
    """With an idle API server on each."""
    changes: dict[str, Any] = {
        "GPUFERRY_SIM_DEVICES": str(count),
        "GPUFERRY_SIM_MEMORY": "2GiB",
        "GPUFERRY_TOKEN": token_of(token),
        **points.environment,
    }
    server = " ".join(points.command("gpuferry.apiserver"))
    with harness.monitor(*options, server=server, **changes) as running:
        running.wait_idle(count)
        yield running


def whole(shared: harness.Monitor, points: Points, count: int) -> Iterator[harness.Monitor]:
    """For a fixture: what a test leaves behind is nothing, and the next program comes to GPU 0, where an API
    server is idle again.
    """
    yield shared
    points.let_all_go()
    status = shared.wait_for(
        lambda status: not status.sessions and all(device.pool_idle for device in status.devices),
        "all of them have ended, and each GPU has an idle API server",
    )
    assert [device.memory_granted for device in status.devices] == [0] * count
