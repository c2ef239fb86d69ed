"""Release 0.1 as it was: its guest library with today's server, and today's guest with its server.

The server is built as a whole, which takes a minute: its half belongs to `make test-all`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.specs._generated import operations

from tests.differential.test_programs import built, require_device
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.programs import Program

from . import literal
from .suite import FEW, PROGRAMS, lacking

pytestmark = pytest.mark.timeout(600)
FIRST = operations.RELEASES[0]
# Guest and server lay the launch out alike, but the server of 0.1 takes fewer attributes (WIRE.md 2).
FEWER_VALUES = {"launch_attributes"}


@pytest.fixture(scope="module")
def old_guest() -> Path:
    return literal.guest_library()


@pytest.fixture(scope="module")
def new_server() -> Iterator[Monitor]:
    with monitor("--pool", "2", "--log-level", "warning") as running:
        yield running


@pytest.fixture(scope="module")
def old_server() -> Iterator[Monitor]:
    with monitor("--pool", "2", "--log-level", "warning", python=literal.server_python()) as running:
        yield running


def check(program: Program, missing: set[str]) -> None:
    """What the release's own suite has is the same; a later program may use what 0.1 lacks."""
    suite = literal.sources() / "tests" / "programs"
    assert not missing or not (suite / program.source.name).exists()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_guest_and_a_new_server(program: Program, old_guest: Path, new_server: Monitor) -> None:
    check(program, lacking(program, new_server, {"LD_PRELOAD": str(old_guest)}))


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_new_guest_and_the_server(program: Program, old_server: Monitor) -> None:
    if program.name in FEWER_VALUES:
        require_device(program)
        assert "later 801" in old_server.run([built(program)]).stdout
        return
    check(program, lacking(program, old_server, {}))


def test_it_is_the_release(old_guest: Path) -> None:
    """Or nothing was tested."""
    library = old_guest.read_bytes()
    assert FIRST.spec_hash in library
    assert FIRST.version.encode() not in library, "it knows of versions: it is no literal 0.1"
    suite = {path.stem for path in (literal.sources() / "tests" / "programs").iterdir()}
    assert suite >= FEW
