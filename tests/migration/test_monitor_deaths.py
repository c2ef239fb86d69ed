"""Whoever dies in the middle of a migration: real programs, monitors, API servers and keepers.

The destination is stopped (SIGSTOP), so that the middle lasts as long as a test wants.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.specs._generated import control_pb2

from tests.helpers import processes
from tests.migration.rounds import (
    Program,
    destination_waits,
    has_begun,
    migrate,
    program,
    resume,
    session_of,
)
from tests.migration.test_monitor import DONE, SIMULATED, at_rest, undisturbed
from tests.monitor import harness

NAME, ROUNDS = "moving_structures", 2
FAILED = control_pb2.MIGRATION_STATE_FAILED
GRACE = ("--pool", "1", "--orphan-grace", "60")
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def shared() -> Iterator[harness.Monitor]:
    with harness.monitor(*GRACE, server=None, **SIMULATED) as running:
        yield running


@pytest.fixture
def monitor(shared: harness.Monitor) -> Iterator[harness.Monitor]:
    """Whole before and after each test."""
    at_rest(shared)
    yield shared
    at_rest(shared)


@contextlib.contextmanager
def another() -> Iterator[harness.Monitor]:
    """One that may be killed."""
    with harness.monitor(*GRACE, server=None, **SIMULATED) as running:
        running.wait_idle(2)
        yield running


@contextlib.contextmanager
def in_the_middle(monitor: harness.Monitor, running: Program, **order: Any) -> Iterator[tuple[Any, int]]:
    """The steps of a migration to device 1 that has begun, and its destination's pid, which waits."""
    running.to_round(1)
    number = session_of(monitor, running.pid).id
    has_begun(monitor, number)
    request = control_pb2.MigrateRequest(session=number, device=1, **order)
    with destination_waits(monitor, 1, monitor.stub.Migrate, request) as begun:
        yield begun


def goes_on(running: Program, first: int = 1) -> None:
    """To its end, as if nothing had happened."""
    for number in range(first, ROUNDS + 1):
        if number > first:
            running.to_round(number)
        running.go()
    status, stdout, stderr = running.finish()
    assert stdout.splitlines() == undisturbed(NAME, ROUNDS).splitlines()
    assert status == 0, stderr


def fails(running: Program) -> None:
    """It gets a CUDA error, and ends."""
    running.go()
    status, stdout, _ = running.finish()
    assert status != 0
    assert stdout != undisturbed(NAME, ROUNDS)


def last(steps: Any) -> Any:
    return list(steps)[-1]


@pytest.mark.system
def test_the_destination_is_killed(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        with in_the_middle(monitor, running) as (steps, destination):
            os.kill(destination, signal.SIGKILL)
            assert last(steps).state == FAILED
        assert session_of(monitor, running.pid).device == 0
        goes_on(running)


def test_the_source_is_killed(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        with in_the_middle(monitor, running) as (steps, _):
            os.kill(session_of(monitor, running.pid).server_pid, signal.SIGKILL)
            monitor.wait_for(lambda s: s.migrations[-1].seconds > 0.2, "a moment for it to be noticed")
        assert last(steps).state == FAILED
        fails(running)


def test_the_program_is_killed(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        with in_the_middle(monitor, running) as (steps, _):
            running.process.kill()
            monitor.wait_for(lambda s: not s.sessions, "end of the session")
        assert last(steps).state == FAILED


def test_the_session_is_ended_by_an_operator(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        with in_the_middle(monitor, running) as (steps, _):
            request = control_pb2.EndSessionRequest(
                session=session_of(monitor, running.pid).id, reason="enough"
            )
            monitor.stub.EndSession(request, metadata=monitor.metadata)
            monitor.wait_for(lambda s: not s.sessions, "end of the session")
        assert last(steps).state == FAILED
        fails(running)


def test_it_takes_too_long(monitor: harness.Monitor) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        with in_the_middle(monitor, running, timeout_seconds=0.5) as (steps, _):
            monitor.wait_for(lambda s: s.migrations[-1].state == FAILED, "end of the migration")
            assert session_of(monitor, running.pid).device == 0
        assert "not over within 0.5 s" in last(steps).reason
        goes_on(running)


# A Python for the compiler of kernels: while there is a file, it says nothing until nobody waits.
SILENT = """#!/bin/sh
[ -e {flag} ] && exec {python} -c 'import socket; socket.socket(fileno=0).recv(1)'
exec {python} "$@"
"""


@pytest.mark.system
def test_it_takes_too_long_to_compile_at_the_destination(tmp_path: Path) -> None:
    """Kernels that the source compiled long ago are in no cache."""
    flag, python, cache = tmp_path / "flag", tmp_path / "python", tmp_path / "cache"
    python.write_text(SILENT.format(flag=flag, python=sys.executable))
    python.chmod(0o700)
    settings = SIMULATED | {"GPUFERRY_SIM_PYTHON": str(python), "GPUFERRY_SIM_CACHE": str(cache)}
    with harness.monitor("--pool", "1", "--jail", "off", server=None, **settings) as running:
        running.wait_idle(2)
        with program(NAME, running, ROUNDS) as moving:
            moving.to_round(1)
            moving.go()
            moving.to_round(2)
            shutil.rmtree(cache)
            flag.touch()
            session = session_of(running, moving.pid)
            done = migrate(running, session.id, device=1, timeout_seconds=1.0)
            flag.unlink()
            assert done.state == FAILED
            assert "not over within 1 s" in done.reason
            assert session_of(running, moving.pid).device == 0
            goes_on(moving, first=2)
        at_rest(running)


@pytest.mark.system
def test_the_monitor_is_killed_and_another_comes() -> None:
    with another() as first, program(NAME, first, ROUNDS) as running:
        with in_the_middle(first, running) as (steps, _):
            before = session_of(first, running.pid)
            first.process.kill()
            steps.cancel()
            second = first.succeed(*GRACE)
            second.wait_for(lambda s: s.sessions and s.migrations, "the source")
        # What the first monitor had told the destination may be lost with it: then the session stays.
        over = second.wait_for(
            lambda s: (
                s.migrations[-1].state in (DONE, FAILED)
                and s.sessions[0].state == control_pb2.SESSION_STATE_RUNNING
            ),
            "end of the migration",
        )
        assert over.sessions[0].id == before.id
        assert over.sessions[0].device == (over.migrations[-1].state == DONE)
        goes_on(running)
        at_rest(second)


@pytest.mark.system
def test_the_monitor_is_killed_while_a_session_is_suspended(tmp_path: Path) -> None:
    with another() as first, program(NAME, first, ROUNDS) as running:
        running.to_round(1)
        number = session_of(first, running.pid).id
        assert migrate(first, number, file=str(tmp_path / "snapshot")).state == DONE
        running.go()
        first.process.kill()
        second = first.succeed(*GRACE)
        second.wait_for(lambda s: s.sessions, "the keeper")
        done = resume(second, tmp_path / "snapshot", device=1)
        assert done.state == DONE, done.reason
        running.to_round(2)
        assert session_of(second, running.pid).id == number
        goes_on(running, first=2)


def keeper_of(monitor: harness.Monitor) -> int:
    """Once the one of the test before is gone."""

    def the_only_one() -> list[int]:
        found = [pid for pid in processes.descendants(monitor.process.pid) if is_keeper(pid)]
        return found if len(found) == 1 else []

    (pid,) = harness.wait_until(the_only_one, "one keeper")
    return int(pid)


def is_keeper(pid: int) -> bool:
    """And not its jail; nor is one that has just ended."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return command[0].rpartition(b"/")[2] != b"bwrap" and b"gpuferry.apiserver.keeper" in command


def test_the_keeper_of_a_suspended_session_is_killed(monitor: harness.Monitor, tmp_path: Path) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        file = tmp_path / "snapshot"
        assert migrate(monitor, session_of(monitor, running.pid).id, file=str(file)).state == DONE
        os.kill(keeper_of(monitor), signal.SIGKILL)
        monitor.wait_for(lambda s: not s.sessions, "end of the session")
        fails(running)


def test_the_program_of_a_suspended_session_is_killed(monitor: harness.Monitor, tmp_path: Path) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        file = tmp_path / "snapshot"
        assert migrate(monitor, session_of(monitor, running.pid).id, file=str(file)).state == DONE
        keeper = keeper_of(monitor)
        running.process.kill()
        monitor.wait_for(lambda s: not s.sessions, "end of the session")
        harness.wait_until(lambda: not harness.alive({keeper}), "end of the keeper")


def test_a_file_that_cannot_be_written(monitor: harness.Monitor, tmp_path: Path) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        done = migrate(
            monitor, session_of(monitor, running.pid).id, file=str(tmp_path / "nowhere" / "snapshot")
        )
        assert done.state == FAILED
        assert done.reason
        goes_on(running)


@pytest.mark.system
def test_a_file_that_is_damaged(monitor: harness.Monitor, tmp_path: Path) -> None:
    with program(NAME, monitor, ROUNDS) as running:
        running.to_round(1)
        file = tmp_path / "snapshot"
        assert migrate(monitor, session_of(monitor, running.pid).id, file=str(file)).state == DONE
        whole = file.read_bytes()
        file.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
        assert resume(monitor, file, device=1).state == FAILED
        assert session_of(monitor, running.pid).state == control_pb2.SESSION_STATE_SUSPENDED
        file.write_bytes(whole)
        assert resume(monitor, file, device=1).state == DONE
        goes_on(running)
