"""A registry of today sends guests to GPU servers of its release; guest or API server is of release 0.1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from gpuferry.monitor.cluster.registry.client import CallFailed

from tests.differential.test_programs import built, native
from tests.helpers import programs
from tests.helpers.paths import GUEST_LIBRARY
from tests.helpers.running import guest_environment, run
from tests.monitor import harness
from tests.registry.running import Registry, registry

from . import builds, literal

pytestmark = pytest.mark.timeout(240)
PROGRAM = programs.program("vector_add_driver")


@pytest.fixture(scope="module")
def sends() -> Iterator[Registry]:
    with registry() as running:
        yield running


def assert_works(sends: Registry, library: Path, environment: dict[str, Any]) -> None:
    """The registry knows one server, and the guest knows the registry."""
    joined = ("--registry", sends.control, "--cluster-key-file", sends.key_file)
    with harness.monitor("--pool", "1", *joined, server=None, **environment) as server:
        sends.register(server.tcp)
        sends.wait_for(server.tcp, alive=True)
        settings = {"GPUFERRY_MONITOR": sends.address, "GPUFERRY_TOKEN": sends.token}
        there = run([built(PROGRAM)], guest_environment({**settings, "LD_PRELOAD": str(library)}))
        assert (there.status, there.stdout) == (0, native(PROGRAM).stdout), there.stderr
        sends.on("Drain", server.tcp)
        server.wait_for(lambda status: not status.sessions, "the end of the session")

        def removed() -> bool:
            """A heartbeat that was written before may be on its way yet."""
            try:
                sends.on("Remove", server.tcp)
            except CallFailed as error:
                if error.code is not grpc.StatusCode.FAILED_PRECONDITION:
                    raise
                return False
            return True

        harness.wait_until(removed, "the server's removal")


@pytest.mark.system
def test_a_guest_of_the_release(sends: Registry) -> None:
    assert_works(sends, literal.guest_library(), {})


@pytest.mark.system
def test_a_server_of_the_release(sends: Registry) -> None:
    """The guest is of the registry's build, and not of the server's."""
    assert_works(sends, GUEST_LIBRARY, {**builds.server_environment(builds.as_of("0.1"))})
