"""Real programs, API servers and monitors that are killed while memory is away: nothing is left over."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.specs._generated import control_pb2

from tests.migration.rounds import migrate, program, resume, session_of
from tests.migration.test_monitor import DONE
from tests.migration.test_monitor_deaths import ROUNDS, fails, goes_on
from tests.monitor import harness

NAME = "moving_structures"
QUIET = 0.2  # seconds; a guest sends what it has gathered within a few milliseconds
OPTIONS = ("--pool", "1", "--orphan-grace", "60", "--oversubscribe", "2")
SIMULATED: dict[str, Any] = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "256MiB"}
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor(*OPTIONS, server=None, **SIMULATED) as running:
        running.wait_idle(1)
        yield running


def send_away(monitor: harness.Monitor, number: int) -> None:
    """Once its guest has said all that it had to say: what came later would bring it back at once."""
    monitor.wait_for(lambda status: status.sessions[0].idle_seconds > QUIET, "nothing comes any more")
    request = control_pb2.EvictSessionRequest(session=number)
    monitor.stub.EvictSession(request, metadata=monitor.metadata)
    assert session_where(monitor, number) == control_pb2.RESIDENCY_HOST


def session_where(monitor: harness.Monitor, number: int) -> int:
    (found,) = [session for session in monitor.status().sessions if session.id == number]
    return int(found.residency)


def nothing_is_left(monitor: harness.Monitor) -> None:
    monitor.wait_for(lambda s: not s.sessions and not s.monitor.away_memory_used, "end of the session")
    monitor.wait_idle(1)


@pytest.mark.system
def test_the_program_is_killed(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        send_away(monitor, session_of(monitor, running.pid).id)
        running.process.kill()
        nothing_is_left(monitor)


def test_its_api_server_is_killed(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        found = session_of(monitor, running.pid)
        send_away(monitor, found.id)
        os.kill(found.server_pid, signal.SIGKILL)
        nothing_is_left(monitor)
        fails(running)


@pytest.mark.system
def test_the_monitor_is_killed_and_another_finds_it_away(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        number = session_of(monitor, running.pid).id
        send_away(monitor, number)
        monitor.process.kill()
        second = monitor.succeed(*OPTIONS)
        second.wait_for(lambda s: s.sessions, "the session")
        assert session_where(second, number) == control_pb2.RESIDENCY_HOST
        assert second.status().monitor.away_memory_used > 0
        goes_on(running)
        nothing_is_left(second)


def files_in(folder: Path, pid: int) -> int:
    """How many files without a name that lie there a process has open."""
    open_files = (os.stat(each) for each in Path(f"/proc/{pid}/fd").iterdir() if os.path.exists(each))
    return sum(not each.st_nlink and each.st_dev == folder.stat().st_dev for each in open_files)


def test_the_next_monitor_has_the_files_on_the_disk_again(tmp_path: Path) -> None:
    options = (*OPTIONS, "--away-memory", "1MiB", "--disk", "1GiB", "--disk-folder", str(tmp_path))
    with harness.monitor(*options, server=None, **SIMULATED) as monitor:
        monitor.wait_idle(1)
        with program(NAME, monitor, ROUNDS) as running:
            running.to_round(1)
            number = session_of(monitor, running.pid).id
            others = files_in(tmp_path, monitor.process.pid)
            send_away(monitor, number)
            assert files_in(tmp_path, monitor.process.pid) == others + 1
            monitor.process.kill()
            second = monitor.succeed(*options)
            second.wait_for(lambda s: s.sessions, "the session")
            assert files_in(tmp_path, second.process.pid) == others + 1
            goes_on(running)
            second.wait_for(lambda _: files_in(tmp_path, second.process.pid) == others, "their end")


def test_it_comes_back_without_a_monitor(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        send_away(monitor, session_of(monitor, running.pid).id)
        monitor.process.kill()
        goes_on(running)


def test_the_monitor_is_killed_while_it_wants_back(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        number = session_of(monitor, running.pid).id
        send_away(monitor, number)
        monitor.process.send_signal(signal.SIGSTOP)
        running.go()  # it waits for its memory
        monitor.process.kill()
        second = monitor.succeed(*OPTIONS)
        second.wait_for(lambda s: s.sessions, "the session")
        running.to_round(2)
        goes_on(running, first=2)
        nothing_is_left(second)


@pytest.mark.system
def test_a_session_that_is_away_is_suspended_and_resumed(monitor: harness.Monitor, tmp_path: Path) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        number = session_of(monitor, running.pid).id
        send_away(monitor, number)
        file = tmp_path / "snapshot"
        done = migrate(monitor, number, file=str(file))
        assert done.state == DONE, done.reason
        done = resume(monitor, file, device=0)
        assert done.state == DONE, done.reason
        goes_on(running)
        nothing_is_left(monitor)
