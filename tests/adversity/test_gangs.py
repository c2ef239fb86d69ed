"""A program of several processes is moved, and something fails in the middle: none of it is split."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from gpuferry.specs._generated import control_pb2, migration_pb2

from tests.helpers.points import Points
from tests.helpers.running import guest_environment
from tests.ipc.members import Member, program
from tests.monitor import harness

from .gpus import gpus, whole

SOURCE = "gpuferry.migration.source:Source."
BEFORE = [f"{SOURCE}{name}" for name in ("_prepare", "_snapshot", "_rebuild", "_hold", "_drain", "_catch_up")]
BEFORE += ["gpuferry.migration.sharing:Shared.show", "gpuferry.migration.sharing:Shared.open"]
BEFORE += [f"{SOURCE}_verify", f"{SOURCE}_take_over"]
# Where a process of the program dies, these are in `make test` and the others in `make test-all`.
SOME = (
    f"{SOURCE}_snapshot",
    f"{SOURCE}_drain",
    "gpuferry.migration.sharing:Shared.open",
    f"{SOURCE}_take_over",
)
EACH = [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in BEFORE]
COMMITTED = "gpuferry.migration.targets:Local.take_over"
LEAVE = f"{SOURCE}_leave"
OPTIONS = ("--pool", "1", "--memory", "512MiB", "--orphan-grace", "60")
EXPORT = "gpuferry.apiserver.ipc:Ipc.export"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def points() -> Iterator[Points]:
    with Points(*BEFORE, COMMITTED, LEAVE, EXPORT) as points:
        yield points


@pytest.fixture(scope="module")
def shared(points: Points) -> Iterator[harness.Monitor]:
    with gpus(points, 2, "both", *OPTIONS) as running:
        yield running


@pytest.fixture
def monitor(shared: harness.Monitor, points: Points) -> Iterator[harness.Monitor]:
    """Whole before and after each test."""
    yield from whole(shared, points, 2)


def environment(monitor: harness.Monitor) -> dict[str, str]:
    return guest_environment({"GPUFERRY_MONITOR": monitor.address, "GPUFERRY_TOKEN": monitor.token})


class Trio:
    """A program of three processes on GPU 0: one has made memory, another has it open, the third has none of
    it.
    """

    def __init__(self, monitor: harness.Monitor, members: list[Member]) -> None:
        self.monitor = monitor
        self.maker, self.opener, self.third = self.members = members
        self.memory, self.own = self.maker.allocate(8), self.third.allocate(4)
        self.handle = self.maker.handle(self.memory)
        self.opened = self.opener.open(self.handle)
        assert self.maker.write(self.memory, 7) == self.third.write(self.own, 9) == 0
        (first, *_) = self.sessions()
        self.number = first.id

    def sessions(self) -> list[Any]:
        return sorted(self.monitor.status().sessions, key=lambda one: one.id)

    def begin(self, device: int = 1) -> Any:
        """The steps of its move to this GPU."""
        request = control_pb2.MigrateRequest(session=self.number, device=device)
        return self.monitor.stub.Migrate(request, metadata=self.monitor.metadata, timeout=harness.DEADLINE)

    def move(self, device: int = 1) -> Any:
        """How it ended."""
        return list(self.begin(device))[-1]

    def is_whole_on(self, device: int) -> None:
        assert {one.device for one in self.sessions()} == {device}
        assert self.opener.read(self.opened) == self.maker.read(self.memory) == 7
        assert self.opener.write(self.opened, 8) == 0
        assert self.maker.read(self.memory) == 8
        assert self.third.read(self.own) == 9
        assert self.maker.write(self.memory, 7) == 0

    def answers(self) -> list[bool]:
        """Which of them still have a session."""
        memories = (self.memory, self.opened, self.own)
        return [one.read(at) in (7, 9) for one, at in zip(self.members, memories, strict=True)]


@contextmanager
def trio(monitor: harness.Monitor) -> Iterator[Trio]:
    with program(environment(monitor), 3) as members:
        yield Trio(monitor, members)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("point", EACH)
def test_what_fails_for_one_fails_for_all(monitor: harness.Monitor, points: Points, point: str) -> None:
    """They stay, whole; and can be moved after that."""
    with trio(monitor) as three:
        points.fail(point, "raise")
        assert three.move().state == control_pb2.MIGRATION_STATE_FAILED
        three.is_whole_on(0)
        assert three.move().state == control_pb2.MIGRATION_STATE_DONE
        three.is_whole_on(1)


@pytest.mark.some(1)
@pytest.mark.parametrize("point", EACH)
def test_an_api_server_dies(monitor: harness.Monitor, points: Points, point: str) -> None:
    """Its process gets an error; the others stay, and go on."""
    with trio(monitor) as three:
        points.fail(point, "kill")
        assert three.move().state == control_pb2.MIGRATION_STATE_FAILED
        monitor.wait_for(lambda status: len(status.sessions) == 2, "its session is over")
        assert {one.device for one in three.sessions()} == {0}
        assert sum(three.answers()) == 2


@pytest.mark.system
def test_one_dies_once_it_is_settled_that_all_move(monitor: harness.Monitor, points: Points) -> None:
    """It is lost, as if it had died afterwards; the others have moved."""
    with trio(monitor) as three:
        points.fail(COMMITTED, "kill")
        three.move()
        monitor.wait_for(
            lambda status: [one.device for one in status.sessions] == [1, 1], "the others have moved"
        )
        assert sum(three.answers()) == 2


@pytest.mark.system
def test_a_source_that_dies_afterwards(monitor: harness.Monitor, points: Points) -> None:
    with trio(monitor) as three:
        points.fail(LEAVE, "kill")
        assert three.move().state == control_pb2.MIGRATION_STATE_DONE
        three.is_whole_on(1)


@pytest.mark.system
def test_a_destination_dies(monitor: harness.Monitor, points: Points) -> None:
    """When it is to give another one what it has made."""
    with trio(monitor) as three, points.hold(f"{SOURCE}_catch_up") as held:
        steps = three.begin()
        held.wait()
        points.fail(EXPORT, "kill")
        held.go()
        assert list(steps)[-1].state == control_pb2.MIGRATION_STATE_FAILED
        three.is_whole_on(0)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("point", EACH)
def test_a_process_of_the_program_is_killed(monitor: harness.Monitor, points: Points, point: str) -> None:
    with trio(monitor) as three, points.hold(point) as held:
        steps = three.begin()
        held.wait()
        three.third.kill()
        held.go()
        state = list(steps)[-1].state
        monitor.wait_for(lambda status: len(status.sessions) == 2, "its session is over")
        there = {one.device for one in three.sessions()}
        assert there == {int(state == control_pb2.MIGRATION_STATE_DONE)}
        assert three.maker.read(three.memory) == three.opener.read(three.opened) == 7


def end_all(members: list[Member]) -> None:
    for one in members:
        one.end()


@pytest.mark.some(1)
@pytest.mark.parametrize("point", [f"{SOURCE}_rebuild", f"{SOURCE}_catch_up"])
def test_a_process_that_is_born_meanwhile(monitor: harness.Monitor, points: Points, point: str) -> None:
    """It waits until the others are where they go, and is there too."""
    with trio(monitor) as three, ExitStack() as stack:
        with points.hold(point) as held:
            steps = three.begin()
            held.wait()
            born: list[Member] = []
            thread = threading.Thread(target=lambda: born.append(Member(three.members[0].environment)))
            thread.start()
            stack.callback(end_all, born)
            time.sleep(0.5)  # it comes, and nobody sees it wait
        assert list(steps)[-1].state == control_pb2.MIGRATION_STATE_DONE
        thread.join(harness.DEADLINE)
        assert born[0].read(born[0].open(three.handle)) == 7
        three.is_whole_on(1)


def test_a_stream_that_waits_for_what_its_program_writes(monitor: harness.Monitor, points: Points) -> None:
    """While it moves: it is let go on, and the move is done once nothing waits any more. The word may be
    written and all be still before the program has asked whether it is: then that waits for the move.
    """
    with trio(monitor) as three, ThreadPoolExecutor(1) as aside:
        gate = three.third.allocate(2)
        assert three.third.write(gate, 0) == 0
        event = three.third.event()
        assert three.third.record_behind(event, gate) == 0
        with points.hold(f"{SOURCE}_catch_up") as held:
            steps = three.begin()
            for step in steps:
                if step.phase == migration_pb2.PHASE_DRAIN:
                    break
            written = aside.submit(three.third.set_word, gate, 1)
            held.wait()
        assert list(steps)[-1].state == control_pb2.MIGRATION_STATE_DONE
        assert written.result(harness.DEADLINE) == 0
        three.is_whole_on(1)
        assert three.third.synchronize(event) == 0


@pytest.mark.system
def test_a_process_that_does_not_come_to_an_end(monitor: harness.Monitor, points: Points) -> None:
    """Its device works on: all of them stay."""
    with trio(monitor) as three:
        gate = three.third.allocate(2)
        assert three.third.write(gate, 0) == 0
        assert three.third.record_behind(three.third.event(), gate) == 0
        for _ in three.members:
            points.at(f"{SOURCE}_drain").go(set={f"{SOURCE}_drain_seconds": 1.0})
        assert three.move().state == control_pb2.MIGRATION_STATE_FAILED
        three.is_whole_on(0)
        assert three.third.set_word(gate, 1) == 0
        assert three.move().state == control_pb2.MIGRATION_STATE_DONE
        three.is_whole_on(1)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("point", [f"{SOURCE}_rebuild", f"{SOURCE}_verify", LEAVE])
def test_the_monitor_is_killed_and_another_comes(points: Points, point: str) -> None:
    """They settle it among themselves, and the next monitor finds them where they are."""
    with gpus(points, 2, "both", *OPTIONS) as first, trio(first) as three:
        with points.hold(point) as held:
            steps = three.begin()
            held.wait()
            first.process.kill()
            steps.cancel()
            three.monitor = second = first.succeed(*OPTIONS)
            second.wait_for(lambda status: len(status.sessions) == 3, "all are back")
        moved = {control_pb2.MIGRATION_STATE_DONE, control_pb2.MIGRATION_STATE_FAILED}
        second.wait_for(
            lambda status: (
                all(one.state in moved for one in status.migrations)
                and all(one.state == control_pb2.SESSION_STATE_RUNNING for one in status.sessions)
            ),
            "it is over",
        )
        device = three.sessions()[0].device
        three.is_whole_on(device)
        assert three.move(1 - device).state == control_pb2.MIGRATION_STATE_DONE
        three.is_whole_on(1 - device)
        end_all(three.members)
        status = second.wait_for(lambda status: not status.sessions, "all of them have ended")
        assert [each.memory_granted for each in status.devices] == [0, 0]
