"""Sessions between a GPU server of today and one of release 0.1: by contract alone, and as it was."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from gpuferry.specs._generated import control_pb2, operations, wire

from tests.helpers.paths import SIM_LIBRARY
from tests.helpers.tokens import token_of
from tests.migration.rounds import migrate, native, program, same_pointers
from tests.monitor import harness
from tests.monitor.harness import Monitor

from . import builds, literal

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
FIRST = operations.RELEASES[0]
SETTINGS: dict[str, Any] = {
    "GPUFERRY_SIM_MEMORY": "512MiB",
    "GPUFERRY_SIM_DIRTY": "1",
    "GPUFERRY_TOKEN": token_of("both monitors"),
}
# The driver of today, with its compiler, for a server of the release too: a GPU server is upgraded under it.
DRIVER = {"GPUFERRY_SIM_LIBRARY": str(SIM_LIBRARY), "GPUFERRY_SIM_PYTHON": sys.executable}
DONE, FAILED = control_pb2.MIGRATION_STATE_DONE, control_pb2.MIGRATION_STATE_FAILED
RUNNING = control_pb2.SESSION_STATE_RUNNING
ROUNDS = 3
PROGRAMS = ("moving_structures", "moving_symbols")

undisturbed = functools.cache(native)


@pytest.fixture(scope="module")
def new() -> Iterator[Monitor]:
    with harness.monitor("--pool", "1", server=None, **SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=["contract", pytest.param("literal", marks=pytest.mark.slow)])
def old(request: pytest.FixtureRequest) -> Iterator[Monitor]:
    """A server of the release."""
    cli, settings = [sys.executable], SETTINGS | DRIVER
    if request.param == "literal":
        cli = [str(literal.server_python())]
    else:
        settings |= builds.server_environment(builds.as_of("0.1"))
    cli += ["-m", "gpuferry.monitor.cli.main"]
    with harness.monitor("--pool", "1", server=None, cli=cli, **settings) as running:
        yield running


def session_of(monitor: Monitor, pid: int) -> int:
    """Once it runs there."""
    found: list[int] = []

    def runs(status: Any) -> bool:
        found[:] = [one.id for one in status.sessions if one.guest_pid == pid and one.state == RUNNING]
        return bool(found)

    monitor.wait_for(runs, f"the session of {pid}")
    return found[0]


def travels(name: str, loss: str, first: Monitor, second: Monitor, **settings: str) -> None:
    """There and back between rounds, which it does not notice."""
    here, there = first, second
    with program(name, first, ROUNDS, GPUFERRY_ON_LOSS=loss, **settings) as running:
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            there.wait_idle(1)
            done = migrate(here, session_of(here, running.pid), server=there.tcp)
            assert done.state == DONE, done.reason
            running.go()
            here, there = there, here
        status, stdout, stderr = running.finish()
    assert stdout.splitlines() == undisturbed(name, ROUNDS).splitlines()
    assert status == 0, stderr
    same_pointers(stderr)
    for monitor in (first, second):
        monitor.wait_idle(1)


@pytest.mark.parametrize("loss", ["error", "reconnect"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_guest_of_the_release_goes_to_and_fro(old: Monitor, new: Monitor, name: str, loss: str) -> None:
    """All that it was promised is laid out alike on both."""
    travels(name, loss, new, old, LD_PRELOAD=str(literal.guest_library()))


@pytest.mark.parametrize("loss", ["error", "reconnect"])
def test_a_guest_of_today_that_began_there(old: Monitor, new: Monitor, loss: str) -> None:
    """It was promised no more than the release has."""
    travels("moving_structures", loss, old, new)


def test_a_guest_that_was_promised_more_stays(old: Monitor, new: Monitor) -> None:
    """Refused before the move begins, with an operation and all versions; the program does not notice."""
    lacking = sorted(operations.SPOKEN.keys() - operations.RESTORE - FIRST.spoken.keys())
    with program("moving_structures", new, ROUNDS) as running:
        running.to_round(1)
        session = session_of(new, running.pid)
        refused = migrate(new, session, server=old.tcp)
        assert refused.state == FAILED
        assert not refused.report.mapped_bytes, "something was copied"
        for word in (wire.OPERATIONS[lacking[0]], operations.VERSION, FIRST.version):
            assert word in refused.reason
        assert session_of(new, running.pid) == session
        for number in range(1, ROUNDS + 1):
            if number > 1:
                running.to_round(number)
            running.go()
        status, stdout, stderr = running.finish()
    assert stdout.splitlines() == undisturbed("moving_structures", ROUNDS).splitlines()
    assert status == 0, stderr
    for monitor in (old, new):
        monitor.wait_idle(1)
