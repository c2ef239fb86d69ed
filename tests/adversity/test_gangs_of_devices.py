"""A program of several processes with two GPUs is moved, and something fails: all or none go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.points import Points
from tests.helpers.running import guest_environment
from tests.ipc.members import Member, program
from tests.monitor import harness

from .gpus import gpus, whole

SOURCE = "gpuferry.migration.source:Source."
SHARED = "gpuferry.migration.sharing:Shared."
BEFORE = [f"{SOURCE}_rebuild", f"{SOURCE}_catch_up", f"{SHARED}show", f"{SHARED}open", f"{SOURCE}_take_over"]
# The first and the last of what only several devices have; the others are in `make test-all`.
SOME = (BEFORE[0], BEFORE[-1])
EACH = [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in BEFORE]
COMMITTED = "gpuferry.migration.targets:Local.take_over"
HERE, THERE = [0, 1], [1, 2]
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def points() -> Iterator[Points]:
    with Points(*BEFORE, COMMITTED) as points:
        yield points


@pytest.fixture(scope="module")
def shared(points: Points) -> Iterator[harness.Monitor]:
    """A monitor with three GPUs."""
    with gpus(points, 3, "gangs of devices", "--pool", "1", "--memory", "512MiB") as running:
        yield running


@pytest.fixture
def monitor(shared: harness.Monitor, points: Points) -> Iterator[harness.Monitor]:
    """Whole before and after each test."""
    yield from whole(shared, points, 3)


class Pair:
    """Two processes on GPUs 0 and 1: one has made memory on each, which the other has open on the second."""

    def __init__(self, monitor: harness.Monitor, members: list[Member]) -> None:
        self.monitor = monitor
        self.maker, self.opener = members
        assert self.opener.use(1) == 0
        first = self.maker.allocate(8)
        assert self.maker.use(1) == 0
        self.memory = [first, self.maker.allocate(8)]
        self.opened = [self.opener.open(self.maker.handle(one)) for one in self.memory]
        assert [self.maker.write(one, 7) for one in self.memory] == [0, 0]

    def move(self) -> int:
        """The exit status of the command."""
        number = min(one.id for one in self.monitor.status().sessions)
        return self.monitor.run("migrate", str(number), "--to", "gpu:1,2").returncode

    def is_whole_on(self, devices: list[int]) -> None:
        status = self.monitor.status()
        assert [list(one.devices) for one in status.sessions] == [devices] * 2
        granted = [device.memory_granted >> 20 for device in status.devices]
        assert granted == [512 * (device in devices) for device in range(3)]
        for made, opened in zip(self.memory, self.opened, strict=True):
            assert self.opener.read(opened) == 7
            assert self.opener.write(opened, 8) == 0
            assert self.maker.read(made) == 8
            assert self.maker.write(made, 7) == 0


@contextmanager
def pair(monitor: harness.Monitor) -> Iterator[Pair]:
    settings = {"GPUFERRY_MONITOR": monitor.address, "GPUFERRY_TOKEN": monitor.token, "GPUFERRY_GPUS": "2"}
    with program(guest_environment(settings), 2) as members:
        yield Pair(monitor, members)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("point", EACH)
def test_what_fails_for_one_fails_for_both(monitor: harness.Monitor, points: Points, point: str) -> None:
    """They stay, whole, on both GPUs; and can be moved after that."""
    with pair(monitor) as two:
        points.fail(point, "raise")
        assert two.move() != 0
        two.is_whole_on(HERE)
        assert two.move() == 0
        two.is_whole_on(THERE)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("point", EACH)
def test_an_api_server_dies(monitor: harness.Monitor, points: Points, point: str) -> None:
    """Its process gets an error; the other stays, and goes on."""
    with pair(monitor) as two:
        points.fail(point, "kill")
        assert two.move() != 0
        monitor.wait_for(lambda status: len(status.sessions) == 1, "its session is over")
        assert [list(one.devices) for one in monitor.status().sessions] == [HERE]
        found = [two.maker.read(two.memory[1]), two.opener.read(two.opened[1])]
        assert sorted(one == 7 for one in found) == [False, True]


@pytest.mark.system
def test_one_dies_once_it_is_settled_that_both_move(monitor: harness.Monitor, points: Points) -> None:
    """It is lost, as if it had died afterwards; the other has moved."""
    with pair(monitor) as two:
        points.fail(COMMITTED, "kill")
        two.move()
        monitor.wait_for(
            lambda status: [list(one.devices) for one in status.sessions] == [THERE], "the other has moved"
        )
