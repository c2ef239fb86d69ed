from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.server import Server
from tests.migration.moving import MEMORY, devices


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A warm API server on device 0."""
    with Server(tmp_path_factory.mktemp("source") / "log", 0, **devices(MEMORY)) as server:
        server.ready()
        yield server


@pytest.fixture(scope="module")
def destination(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A warm API server on device 1."""
    with Server(tmp_path_factory.mktemp("destination") / "log", 1, **devices(MEMORY)) as server:
        server.ready()
        yield server
