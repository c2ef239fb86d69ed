from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest
from tests.apiserver.server import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A warm API server, on a device whose new physical memory is not zero (and little: that takes time)."""
    with Server(tmp_path / "server.log", GPUFERRY_SIM_DIRTY="1", GPUFERRY_SIM_MEMORY="256MiB") as server:
        server.ready()
        yield server


@pytest.fixture
def guest(server: Server) -> Guest:
    """A session of it."""
    return server.connect()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Engine]]:
    """A session's engine, and one that it may go to."""
    folder = tmp_path_factory.mktemp("engines")
    with Engine(folder / "source.log") as source, Engine(folder / "target.log") as target:
        yield source, target
