from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apiserver.server import Server
from tests.migration.moving import MEMORY, Faulty, devices


class Shelf:
    """Servers that one test after the other uses; one that a test left in disorder is replaced."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._servers: dict[str, Server] = {}
        self._count = 0

    def take(self, name: str, make: Callable[[Path], Server]) -> Server:
        server = self._servers.get(name)
        if server is None or not is_idle(server):
            self._count += 1
            folder = self._folder / f"{name}{self._count}"
            folder.mkdir()
            server = self._servers[name] = self._stack.enter_context(make(folder))
            server.ready()
        return server


def is_idle(server: Server) -> bool:
    """It lives, has no session, and has nothing to say: not even what it said a little later than others."""
    if server.process.poll() is not None or select.select([server.control], [], [], 0)[0]:
        return False
    server.order(stats={})
    message = server.message()
    return message.HasField("stats") and message.stats.session == 0


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    with contextlib.ExitStack() as stack:
        yield Shelf(stack, tmp_path_factory.mktemp("servers"))


@pytest.fixture
def source(shelf: Shelf) -> Server:
    """A warm API server on device 0."""
    return shelf.take("source", lambda folder: Server(folder / "log", 0, **devices(MEMORY)))


@pytest.fixture
def destination(shelf: Shelf) -> Server:
    """A warm API server on device 1."""
    return shelf.take("destination", lambda folder: Server(folder / "log", 1, **devices(MEMORY)))


@pytest.fixture
def faulty(shelf: Shelf) -> Iterator[Faulty]:
    """A source that fails as it is told."""
    server = shelf.take("faulty", lambda folder: Faulty(folder, 0, **devices(MEMORY)))
    assert isinstance(server, Faulty)
    yield server
    server.let_go()
