"""Monitors whose sessions can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.monitor import Monitor, monitor

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On one worker: they share a monitor."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("resume"))


@pytest.fixture(scope="session")
def shared() -> Iterator[Monitor]:
    with monitor("--pool", "1") as running:
        yield running
