"""Fixtures: the simulated driver in this process, and programs of their own process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .driver import Driver, driver


@pytest.fixture
def cu() -> Driver:
    return driver()


@pytest.fixture
def context(cu: Driver) -> Iterator[int]:
    with cu.context() as handle:
        yield handle
