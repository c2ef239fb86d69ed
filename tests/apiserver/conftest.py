from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
