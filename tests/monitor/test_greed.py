"""API servers that were taken over and keep what is in nobody's books: time, a place, the disk."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.monitor.jail.figures import LARGEST, Figures
from gpuferry.monitor.pool.api_server import ApiServer, Neighbourhood, PoolListener
from gpuferry.monitor.pool.channel import ChannelBroken
from gpuferry.monitor.pool.health import Health
from gpuferry.monitor.service.files import emptied_if_larger
from gpuferry.monitor.sessions.book import SIZE, Book
from gpuferry.specs._generated import node_pb2

from tests.fuzz.control import Said
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest
from tests.monitor.test_programs import Process, some_program, whole

WALL_LIMIT = 4  # extension of HELLO, in seconds
QUICK = {
    "gpuferry.monitor.pool.api_server:CLEAR_SECONDS": 0.1,
    "gpuferry.monitor.pool.pool:SURPLUS_SECONDS": 0.05,
    "gpuferry.monitor.broker.endings:OVERDUE_SECONDS": 0.0,
    "gpuferry.monitor.broker.greed:LOOK_SECONDS": 0.05,
}


@pytest.fixture(scope="module")
def shared_monitor() -> Iterator[harness.Monitor]:
    """Its API servers do not end when they are asked to."""
    options = ("--pool", "1", "--processes", "4")
    with harness.monitor(*options, constants=QUICK, GPUFERRY_FAKE_LEAVING="3600") as running:
        yield running


@pytest.fixture
def monitor(shared_monitor: harness.Monitor) -> Iterator[harness.Monitor]:
    yield from whole(shared_monitor)


def pids(monitor: harness.Monitor) -> set[int]:
    return {server.pid for server in monitor.status().servers}


def test_who_is_never_ready_again_is_ended(monitor: harness.Monitor) -> None:
    """It said that its session is over, which nobody counts any more, and keeps its place."""
    before = pids(monitor)
    with FakeGuest(monitor.address, monitor.token, function=b"lingers"):
        pass
    harness.wait_until(lambda: not harness.alive(before), "its end")
    monitor.wait_idle(1)


@pytest.mark.parametrize("sessions", [(7, 7), (0,)])
def test_a_session_is_over_once_and_is_its_own(sessions: tuple[int, ...]) -> None:
    """Each time it had as long again to be ready, with all that it has in nobody's books, and its turns were
    counted anew, so that no limit of its time held.
    """

    async def hear() -> None:
        ended = (node_pb2.SessionEnded(session=each, clean=True) for each in sessions)
        server = ApiServer((0,), Health(), lambda _: None, PoolListener(), Neighbourhood(tenants=True))
        server._channel = Said(  # type: ignore[assignment]
            node_pb2.FromServer(ended=each).SerializeToString() for each in ended
        )
        server.serve(7)
        await server._read()

    with pytest.raises(ChannelBroken, match="is over"):
        asyncio.run(hear())


def test_who_does_not_end_when_it_is_asked_to_is_ended(monitor: harness.Monitor) -> None:
    """A second process of a program gets an API server beyond the pool, which is not needed afterwards."""
    program = some_program()
    with Process(monitor, program), Process(monitor, program):
        # The one that the test before had ended may be there for a moment.
        servers = monitor.wait_for(lambda status: len(status.servers) == 2, "one for each").servers
        both = {server.pid for server in servers}
    harness.wait_until(lambda: len(harness.alive(both)) < 2, "the end of one of them")


def test_a_session_ends_with_its_time_whatever_its_api_server_does(monitor: harness.Monitor) -> None:
    limit = {WALL_LIMIT: (1).to_bytes(4, "little")}
    with FakeGuest(monitor.address, monitor.token, extensions=limit) as guest:
        assert guest.connection.recv(1) == b""
    monitor.wait_for_log("its limit of 1 s is over")


def test_who_makes_a_leases_book_larger_than_one_is_ended(monitor: harness.Monitor) -> None:
    program = some_program()
    with Process(monitor, program, function=b"hoards"):
        before = pids(monitor)
        with Process(monitor, program):
            harness.wait_until(lambda: not harness.alive(before), "its end")
    monitor.wait_for_log("took more of the disk than it was given")


def test_what_is_larger_than_a_book_is_given_back(tmp_path: Path) -> None:
    book = Book(tmp_path, 7)
    assert not book.takes_too_much()
    book.make()
    assert not book.takes_too_much()
    with book.open() as file:
        os.posix_fallocate(file.fileno(), 0, SIZE + (2 << 20))
        assert book.takes_too_much()
        assert os.fstat(file.fileno()).st_blocks == 0


def test_who_makes_its_figures_larger_than_those_are_takes_too_much(tmp_path: Path) -> None:
    path = Figures(tmp_path / "simdevice").make(0)
    os.truncate(path, LARGEST)
    assert not emptied_if_larger(path, LARGEST)
    os.truncate(path, LARGEST + 1)
    assert emptied_if_larger(path, LARGEST)
    assert path.stat().st_size == 0
    path.unlink()
    assert not emptied_if_larger(path, LARGEST)


def test_a_lease_of_the_file_makes_nobody_wait(tmp_path: Path) -> None:
    """The kernel has whoever truncates by name wait for 45 s until it is given up, and says so by SIGIO (45.6
    s, when the file was truncated by name).
    """
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    path = Figures(tmp_path / "simdevice").make(0)
    os.truncate(path, LARGEST + 1)
    with path.open("rb") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        began = time.monotonic()
        assert emptied_if_larger(path, LARGEST)
        assert time.monotonic() - began < 40
    signal.signal(signal.SIGIO, before)
    assert emptied_if_larger(path, LARGEST)
    assert path.stat().st_size == 0
