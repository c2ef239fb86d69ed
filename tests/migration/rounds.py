"""A program that works in rounds (tests/programs/rounds.h), between which it may be moved."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpuferry.specs._generated import control_pb2

from tests.helpers import programs, toolchain
from tests.helpers.running import guest_environment, native_environment
from tests.monitor.harness import DEADLINE, Monitor, wait_until

RUNNING, MOVED = control_pb2.SESSION_STATE_RUNNING, control_pb2.SESSION_STATE_MOVED
BUSY, IDLE = control_pb2.SERVER_STATE_BUSY, control_pb2.SERVER_STATE_IDLE


class Program:
    """The process, and what it said."""

    def __init__(self, name: str, environment: dict[str, str], rounds: int) -> None:
        source = programs.program(name)
        self.command = [str(toolchain.program(source.source, source.flags)), str(rounds)]
        self.process = subprocess.Popen(
            self.command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def to_round(self, number: int) -> None:
        """Until it waits before this round; the first is 1."""
        assert self.process.stdout
        while (line := self.process.stdout.readline()) != f"round {number}\n":
            assert line, f"it ended: {self.process.communicate()[1]}"
            self.lines.append(line)
        self.lines.append(line)

    def go(self) -> None:
        """Lets it do the round."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> tuple[int, str, str]:
        """Status, and all that it wrote."""
        stdout, stderr = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, "".join(self.lines) + stdout, stderr


@contextlib.contextmanager
def program(name: str, monitor: Monitor | None, rounds: int, **settings: str) -> Iterator[Program]:
    """Through this monitor; None: natively."""
    if monitor:
        found = {"GPUFERRY_MONITOR": monitor.address, "GPUFERRY_TOKEN": monitor.token, **settings}
        environment = guest_environment(found)
    else:
        environment = native_environment()
    running = Program(name, environment, rounds)
    try:
        yield running
    finally:
        running.process.kill()
        if said := running.process.communicate()[1]:
            print(said)  # shown with a failure


def native(name: str, rounds: int) -> str:
    """What it writes to stdout if nobody moves it."""
    with program(name, None, rounds) as running:
        for number in range(1, rounds + 1):
            running.to_round(number)
            running.go()
        status, stdout, stderr = running.finish()
    assert status == 0, stderr
    return stdout


def session_of(monitor: Monitor, pid: int) -> Any:
    """Of a program that was started here. It may have gone to another server, and come back, before the
    keeper that it left here has ended.
    """
    (found,) = [one for one in monitor.status().sessions if one.guest_pid == pid and one.state != MOVED]
    return found


def has_begun(monitor: Monitor, session: int) -> None:
    """Its API server has said so: before, it cannot be moved. Its program may be in the first round."""
    said = f'"event": "session started", "session": {session},'
    wait_until(lambda: said in monitor.log.read_text(), f"the beginning of session {session}")


def migrate(monitor: Monitor, session: int, **target: Any) -> Any:
    """How it ended."""
    has_begun(monitor, session)
    request = control_pb2.MigrateRequest(session=session, **target)
    *_, last = monitor.stub.Migrate(request, metadata=monitor.metadata, timeout=DEADLINE)
    return last


def resume(monitor: Monitor, file: Path, **target: Any) -> Any:
    """Likewise."""
    request = control_pb2.ResumeSessionRequest(file=str(file), **target)
    *_, last = monitor.stub.ResumeSession(request, metadata=monitor.metadata, timeout=DEADLINE)
    return last


def same_pointers(stderr: str) -> None:
    """What it said of its device pointers at the start and at the end."""
    said: dict[str, list[str]] = {}
    for line in stderr.splitlines():
        when, separator, rest = line.partition(": ")
        if separator and " 0x" in rest:
            said.setdefault(when, []).append(rest)
    assert len(said) == 2, stderr
    first, last = said.values()
    assert first == last


@contextlib.contextmanager
def destination_waits(
    monitor: Monitor, device: int, ask: Callable[..., Iterator[Any]], request: Any
) -> Iterator[tuple[Iterator[Any], int]]:
    """The steps of what was asked for, which has begun, and its destination's pid, which waits (SIGSTOP)."""
    here = [one for one in monitor.status().servers if one.device == device]
    (idle,) = [one for one in here if one.state == IDLE]  # one that was killed may not be reaped yet
    os.kill(idle.pid, signal.SIGSTOP)
    try:
        steps = ask(request, metadata=monitor.metadata, timeout=DEADLINE)
        monitor.wait_for(
            lambda s: any(one.pid == idle.pid and one.state == BUSY for one in s.servers), "a destination"
        )
        yield steps, idle.pid
    finally:
        with contextlib.suppress(ProcessLookupError):  # a test may have killed it
            os.kill(idle.pid, signal.SIGCONT)
