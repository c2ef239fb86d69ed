"""Monitors whose sessions can be resumed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.monitor import Monitor, monitor


@pytest.fixture(scope="package")
def shared() -> Iterator[Monitor]:
    with monitor("--pool", "1", in_clear=True) as running:
        yield running
