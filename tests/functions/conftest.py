"""One server for all tests of a worker that harm nobody's but their own function."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .serving import Server, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving("--driver", "none", "--grace", "5") as server:
        yield server
