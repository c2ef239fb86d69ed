from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.apiserver.server import Server
from tests.migration.conftest import Shelf
from tests.migration.moving import MEMORY, devices


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    with contextlib.ExitStack() as stack:
        yield Shelf(stack, tmp_path_factory.mktemp("servers"))


@pytest.fixture
def server(shelf: Shelf) -> Server:
    """A warm API server, whose device's new memory is not zero."""
    return shelf.take("server", lambda folder: Server(folder / "log", 0, **devices(MEMORY)))


@pytest.fixture
def destination(shelf: Shelf) -> Server:
    """Another one, on another device."""
    return shelf.take("destination", lambda folder: Server(folder / "log", 1, **devices(MEMORY)))
