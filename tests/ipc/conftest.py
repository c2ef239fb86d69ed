"""One monitor serves these tests, and three processes of a program each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import guest_environment

from .members import ALL, Member, program


@pytest.fixture(scope="session")
def server() -> Iterator[Monitor]:
    environment = {"GPUFERRY_SIM_MEMORY": "16GiB"}
    with monitor("--pool", "4", "--memory", f"{ALL}MiB", environment=environment) as running:
        yield running


@pytest.fixture
def three(server: Monitor) -> Iterator[list[Member]]:
    with program(guest_environment(server.settings()), 3) as members:
        yield members
