from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest
from tests.apiserver.server import Server, Shared


def start(folder: Path) -> Server:
    """An API server on a device whose new physical memory is not zero (and little: that takes time)."""
    server = Server(folder / "server.log", GPUFERRY_SIM_DIRTY="1", GPUFERRY_SIM_MEMORY="256MiB")
    server.ready()
    return server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with Shared(lambda: start(tmp_path_factory.mktemp("server"))) as shared:
        yield shared


@pytest.fixture
def server(shared: Shared) -> Iterator[Server]:
    """A warm API server: that of the test before, if it is idle and clean again."""
    yield shared.take()
    shared.give_back()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """One that has served nobody."""
    with start(tmp_path) as server:
        yield server


@pytest.fixture
def guest(server: Server) -> Guest:
    """A session of it."""
    return server.connect()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine without an API server around it, for all tests of a module."""
    with Engine(tmp_path_factory.mktemp("engine") / "log") as engine:
        yield engine


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Engine]]:
    """A session's engine, and one that it may go to."""
    folder = tmp_path_factory.mktemp("engines")
    with Engine(folder / "source.log") as source, Engine(folder / "target.log") as target:
        yield source, target
