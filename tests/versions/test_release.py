"""A guest generated as of a release with today's server, and the reverse."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.specs._generated import frames, operations

from codegen.emit.releases import needs
from codegen.load import load
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.programs import Program
from tests.helpers.running import Outcome, loading
from tests.monitor.fake_guest import connect, read_frame

from . import builds
from .suite import FEW, POOL, PROGRAMS, lacking, later

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]
RELEASE = "0.1"
FIRST = operations.RELEASES[0]


@pytest.fixture(scope="module")
def generated() -> Path:
    return builds.as_of(RELEASE)


@pytest.fixture(scope="module")
def old_guest(generated: Path) -> Path:
    """The guest library of the release."""
    return builds.guest_library(generated)


@pytest.fixture(scope="module")
def new_server() -> Iterator[Monitor]:
    with monitor("--pool", POOL, "--log-level", "warning") as running:
        yield running


@pytest.fixture(scope="module")
def old_server(generated: Path) -> Iterator[Monitor]:
    """A server of the release."""
    environment = builds.server_environment(generated)
    with monitor("--pool", POOL, "--log-level", "warning", environment=environment) as running:
        yield running


def check(program: Program, missing: set[str]) -> None:
    assert missing <= later()
    assert not missing or program.name not in FEW


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_old_guest_and_a_new_server(program: Program, old_guest: Path, new_server: Monitor) -> None:
    check(program, lacking(program, new_server, loading(old_guest)))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_new_guest_and_an_old_server(program: Program, old_server: Monitor) -> None:
    check(program, lacking(program, old_server, {}))


def test_they_are_of_other_builds(old_guest: Path, old_server: Monitor, new_server: Monitor) -> None:
    """Or nothing was tested."""
    library = old_guest.read_bytes()
    assert FIRST.spec_hash in library
    assert FIRST.version.encode() in library
    found = []
    for server in (old_server, new_server):
        with connect(server.tcp) as connection:
            found.append(frames.Greeting.unpack(read_frame(connection)[1]).build)
    assert found == [int.from_bytes(FIRST.spec_hash[:2], "little"), operations.BUILD]
    assert found[0] != found[1]


USE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address, handle = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print([getattr(cuda, "{name}")(*[ctypes.byref(ctypes.c_uint64())] * 6) for _ in range(3)])
print(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)), cuda.cuCtxSynchronize())
"""


def added() -> str:
    """A function that goes by an operation which the release had not."""
    later = operations.SPOKEN.keys() - FIRST.spoken.keys()
    return next(symbol for symbol, number in needs(load()) if number in later)


def told_once(outcome: Outcome, *versions: str) -> None:
    """What it goes by is not there: it says so once, with both versions, and has no effect."""
    assert outcome.stdout == "[801, 801, 801]\n0 0\n", outcome.stderr
    (line,) = outcome.stderr.splitlines()
    for word in (added(), *versions):
        assert word in line


def test_what_an_old_server_lacks(old_server: Monitor) -> None:
    program = [sys.executable, "-c", USE.format(name=added())]
    told_once(old_server.run(program), operations.VERSION, FIRST.version)


def test_what_an_old_guest_lacks(old_guest: Path, new_server: Monitor) -> None:
    program = [sys.executable, "-c", USE.format(name=added())]
    outcome = new_server.run(program, extra=loading(old_guest))
    told_once(outcome, FIRST.version, operations.VERSION)
