"""Release 0.1 as it was: its guest library with today's server, and today's guest with its server.

The server is built as a whole, which takes a minute: its half belongs to `make test-all`.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from gpuferry.specs._generated import operations

from tests.differential.test_programs import built, native, require_device
from tests.helpers import programs
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.programs import Program
from tests.helpers.running import loading

from . import literal
from .suite import FEW, PATIENCE, POOL, PROGRAMS, lacking

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
FIRST = operations.RELEASES[0]
# Programs of 0.1 that were to show what is not carried.
SHOW_WHAT_LACKS = {"host_function", "unsupported"}
# Guest and server lay the launch out alike, but the server of 0.1 takes fewer attributes (WIRE.md 2).
FEWER_VALUES = {"launch_attributes"}
# What the guest of 0.1 answers by itself where the driver says something else, as today's guest does.
MENDED = {
    "runtime_errors": (  # a grid that no device can have
        "cudaPeekAtLastError() -> cudaErrorInvalidValue",
        "cudaPeekAtLastError() -> cudaErrorInvalidConfiguration",
    )
}


@pytest.fixture(scope="module")
def old_guest() -> Path:
    return literal.guest_library()


@pytest.fixture(scope="module")
def new_server() -> Iterator[Monitor]:
    with monitor("--pool", POOL, "--log-level", "warning") as running:
        yield running


@pytest.fixture(scope="module")
def old_server() -> Iterator[Monitor]:
    with monitor("--pool", POOL, "--log-level", "warning", python=literal.server_python()) as running:
        yield running


def check(program: Program, server: Monitor, extra: Mapping[str, str]) -> None:
    """A program of the release's own suite, as it was, does what it does natively. A later one may count on
    what 0.1 lacks, and be wrong: the server goes on.
    """
    own = literal.sources() / "tests" / "programs" / program.source.name
    if own.exists():
        assert bool(lacking(programs.read(own), server, extra)) == (program.name in SHOW_WHAT_LACKS)
        return
    require_device(program)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.run([built(program)], extra=extra, timeout=PATIENCE)
    assert lacking(programs.program("vector_add_driver"), server, extra) == set()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_guest_and_a_new_server(program: Program, old_guest: Path, new_server: Monitor) -> None:
    if program.name in MENDED:
        own = programs.read(literal.sources() / "tests" / "programs" / program.source.name)
        require_device(own)
        theirs = new_server.run([built(own)], extra=loading(old_guest)).stdout
        then, now = MENDED[program.name]
        assert then in theirs
        assert theirs.replace(then, now) == native(own).stdout
        return
    check(program, new_server, loading(old_guest))


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_new_guest_and_the_server(program: Program, old_server: Monitor) -> None:
    if program.name in FEWER_VALUES:
        require_device(program)
        assert "later 801" in old_server.run([built(program)]).stdout
        return
    check(program, old_server, {})


def test_it_is_the_release(old_guest: Path) -> None:
    """Or nothing was tested."""
    library = old_guest.read_bytes()
    assert FIRST.spec_hash in library
    assert FIRST.version.encode() not in library, "it knows of versions: it is no literal 0.1"
    suite = {path.stem for path in (literal.sources() / "tests" / "programs").iterdir()}
    assert suite >= FEW
