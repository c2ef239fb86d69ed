"""A GPU server is upgraded from release 0.1, as it was, while a program runs on it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.paths import GUEST_LIBRARY
from tests.migration.rounds import migrate, native, program, same_pointers
from tests.monitor import harness

from . import literal
from .test_moves import DONE, DRIVER, SETTINGS, session_of

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
OPTIONS = ("--pool", "2", "--orphan-grace", "60")
ROUNDS = 3
MACHINE = SETTINGS | DRIVER
NAME = "moving_structures"


@pytest.fixture(scope="module")
def cli() -> list[str]:
    return [str(literal.server_python()), "-m", "gpuferry.monitor.cli.main"]


@pytest.mark.parametrize("is_old", [True, False], ids=["a guest of the release", "a guest of today"])
def test_a_session_outlives_the_upgrade(is_old: bool, cli: list[str]) -> None:
    """The new monitor adopts it with its old API server, moves it to a new one, and away to a 0.1 server:
    it was promised no more than that has."""
    library: Path = literal.guest_library() if is_old else GUEST_LIBRARY
    with (
        harness.monitor("--pool", "1", server=None, cli=cli, **MACHINE) as elsewhere,
        harness.monitor(*OPTIONS, server=None, cli=cli, GPUFERRY_SIM_DEVICES="2", **MACHINE) as old,
        program(NAME, old, ROUNDS, LD_PRELOAD=str(library)) as running,
    ):
        running.to_round(1)
        session = session_of(old, running.pid)
        old.process.send_signal(signal.SIGUSR2)
        new = old.succeed(*OPTIONS)
        with new.channel:
            new.wait_for(
                lambda s: len(s.devices) == 2 and all(one.pool_idle for one in s.devices), "new API servers"
            )
            (before,) = new.status().sessions
            assert before.id == session
            running.go()
            running.to_round(2)
            moved = migrate(new, session, device=1 - before.device)
            assert moved.state == DONE, moved.reason
            running.go()
            running.to_round(3)
            moved = migrate(new, session, server=elsewhere.tcp)
            assert moved.state == DONE, moved.reason
            running.go()
            status, stdout, stderr = running.finish()
            assert stdout.splitlines() == native(NAME, ROUNDS).splitlines()
            assert status == 0, stderr
            same_pointers(stderr)
