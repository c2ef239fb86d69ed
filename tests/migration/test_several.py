"""A session of two GPUs moves to two others, and to another GPU server, with all that it has on each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.running import guest_environment
from tests.helpers.tokens import token_of
from tests.monitor import harness

PROGRAM = Path(__file__).with_name("several_devices.py")
CHANGES: dict[str, Any] = {
    "GPUFERRY_SIM_DEVICES": "4",
    "GPUFERRY_SIM_MEMORY": "2GiB",
    "GPUFERRY_SIM_DIRTY": "1",
    "GPUFERRY_TOKEN": token_of("both servers"),
}
OPTIONS = ("--pool", "1", "--memory", "512MiB")
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def shared() -> Iterator[harness.Monitor]:
    with harness.monitor(*OPTIONS, server=None, **CHANGES) as running:
        running.wait_idle(4)
        yield running


@pytest.fixture
def monitor(shared: harness.Monitor) -> Iterator[harness.Monitor]:
    """Nothing is left of a session, wherever it ended."""
    yield shared
    status = shared.wait_for(
        lambda status: not status.sessions and not any(one.memory_granted for one in status.devices),
        "all that it had is free",
    )
    assert len(status.devices) == 4


class Program:
    """The process; each attribute is a method of several_devices.Program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: object) -> Any:
            assert self._process.stdin
            assert self._process.stdout
            print(json.dumps([name, *arguments]), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

        return ask


@contextmanager
def program(monitor: harness.Monitor, **settings: str) -> Iterator[Program]:
    environment = guest_environment(
        {"GPUFERRY_MONITOR": monitor.tcp, "GPUFERRY_TOKEN": monitor.token, "GPUFERRY_GPUS": "2", **settings}
    )
    pipe = subprocess.PIPE
    command = [sys.executable, str(PROGRAM)]
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield Program(process)
        finally:
            process.communicate(timeout=harness.DEADLINE)
    assert process.returncode == 0


def where(monitor: harness.Monitor) -> list[int]:
    (session,) = monitor.status().sessions
    return list(session.devices)


def migrate(monitor: harness.Monitor, to: str) -> subprocess.CompletedProcess[str]:
    (session,) = monitor.status().sessions
    return monitor.run("migrate", str(session.id), "--to", to)


def goes(monitor: harness.Monitor, to: str, devices: Sequence[int]) -> None:
    moved = migrate(monitor, to)
    assert moved.returncode == 0, moved.stderr
    assert where(monitor) == list(devices)
    granted = [one.memory_granted > 0 for one in monitor.status().devices]
    assert granted == [number in devices for number in range(4)]


@pytest.mark.system
@pytest.mark.parametrize("order", ["", "1,0"])
def test_to_two_others_and_back(monitor: harness.Monitor, order: str) -> None:
    """However the program numbers them: memory, contexts, streams, events, pools, peers and mapped memory."""
    settings = {"CUDA_VISIBLE_DEVICES": order} if order else {}
    with program(monitor, **settings) as running:
        before = running.fill()
        assert running.check() == before
        for to, devices in (("gpu:2,3", (2, 3)), ("gpu:3,1", (3, 1)), ("gpu:any", (0, 2))):
            goes(monitor, to, devices)
            assert running.check() == before
            running.work()
            assert running.check() == before
        running.close_peers()
        goes(monitor, "gpu:0,1", (0, 1))
        assert running.reach_fails()


@pytest.mark.system
def test_a_device_that_is_reset(monitor: harness.Monitor) -> None:
    """What it had is gone, on the one device, and stays gone; the other has all."""
    with program(monitor) as running:
        running.fill()
        running.reset(1)
        goes(monitor, "gpu:2,3", (2, 3))
        assert running.check_first()
        running.fill_second()
        goes(monitor, "gpu:0,1", (0, 1))
        assert running.check_first()


@pytest.mark.system
def test_to_another_server(monitor: harness.Monitor) -> None:
    with harness.monitor(*OPTIONS, server=None, **CHANGES) as other, program(monitor) as running:
        other.wait_idle(4)
        before = running.fill()
        moved = migrate(monitor, other.tcp)
        assert moved.returncode == 0, moved.stderr
        assert running.check() == before
        running.work()
        assert running.check() == before
        assert where(other) == [0, 1]
        monitor.wait_for(lambda status: not status.sessions, "it has followed")
        assert running.check() == before  # it has arrived, too: on its way the session cannot move
        goes(other, "gpu:2,3", (2, 3))
        assert running.check() == before


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("gpu:2", "name as many"),
        ("gpu:1,2,3", "name as many"),
        ("gpu:2,2", "name as many"),
        ("gpu:2,9", "no GPU 9"),
        ("gpu:0,1", "on these GPUs already"),
    ],
)
def test_where_it_cannot_go(monitor: harness.Monitor, to: str, why: str) -> None:
    with program(monitor) as running:
        before = running.fill()
        refused = migrate(monitor, to)
        assert refused.returncode != 0
        assert why in refused.stderr
        assert where(monitor) == [0, 1]
        assert running.check() == before


def test_no_memory_for_one_of_them(monitor: harness.Monitor) -> None:
    """A device of the two has too little to give, when it begins and in the middle of it: all stays."""
    with (
        program(monitor) as running,
        program(monitor, GPUFERRY_GPUS="1", GPUFERRY_MEMORY="1800MiB") as single,
    ):
        before = running.fill()
        assert single.fill_first()
        sessions = monitor.status().sessions
        (crowded,) = [one.device for one in sessions if len(one.devices) < 2]
        number = next(one.id for one in sessions if len(one.devices) == 2)
        free = next(device for device in (2, 3) if device != crowded)
        refused = monitor.run("migrate", str(number), "--to", f"gpu:{free},{crowded}")
        assert refused.returncode != 0
        assert "bytes to give" in refused.stderr
        assert running.check() == before


@pytest.mark.system
def test_the_next_monitor_adopts_it() -> None:
    """With both of its devices; and it can move after that, to another server too."""
    options = (*OPTIONS, "--orphan-grace", "60")
    with harness.monitor(*options, server=None, **CHANGES) as first:
        first.wait_idle(4)
        with program(first) as running:
            before = running.fill()
            first.process.kill()
            second = first.succeed(*options)
            status = second.wait_for(lambda status: status.sessions, "it is back")
            assert list(status.sessions[0].devices) == [0, 1]
            second.wait_for(
                lambda status: sum(one.memory_granted > 0 for one in status.devices) == 2, "its own"
            )
            assert running.check() == before
            second.wait_idle(4)  # before that it may not know of all GPUs
            goes(second, "gpu:2,3", (2, 3))
            running.work()
            assert running.check() == before
            with harness.monitor(*OPTIONS, server=None, **CHANGES) as other:
                other.wait_idle(4)
                moved = migrate(second, other.tcp)
                assert moved.returncode == 0, moved.stderr
                assert running.check() == before
                assert where(other) == [0, 1]
