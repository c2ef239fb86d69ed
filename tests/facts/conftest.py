"""One monitor serves all facts of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.monitor import Monitor, monitor


@pytest.fixture(scope="session")
def shared_monitor() -> Iterator[Monitor]:
    with monitor("--pool", "2", "--log-level", "warning") as running:
        yield running


@pytest.fixture(scope="session")
def devices_monitor() -> Iterator[Monitor]:
    devices = {"GPUFERRY_SIM_DEVICES": "3"}
    with monitor("--pool", "1", "--log-level", "warning", environment=devices) as running:
        yield running
