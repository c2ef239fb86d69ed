"""Guests that are gone, whatever their API servers see of it: those that hang are ended, others are not."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from unittest.mock import MagicMock

import pytest
from gpuferry.monitor.broker.departures import Departures

from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest

DEPARTURES = "gpuferry.monitor.broker.departures"
QUICK = {
    f"{DEPARTURES}:FAREWELL_SECONDS": 0.05,
    f"{DEPARTURES}:ANSWER_SECONDS": 0.5,
    f"{DEPARTURES}:AGAIN_SECONDS": 0.05,
}
TOKEN = token_of("departures")
OPTIONS = ("--pool", "1", "--orphan-grace", "60")
system = pytest.mark.system


@pytest.fixture
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor(*OPTIONS, constants=QUICK, GPUFERRY_TOKEN=TOKEN) as running:
        yield running


def is_free_again(monitor: harness.Monitor, pid: int) -> None:
    """The session's process is gone, what it was granted is free, and another one is in its place."""
    status = monitor.wait_for(
        lambda s: not s.sessions and s.devices[0].pool_idle == 1 and not harness.alive({pid}),
        "the end of one that hangs",
    )
    assert status.devices[0].memory_granted == 0


@system
def test_an_api_server_that_hangs_is_ended_when_its_guest_is_gone(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.tcp, TOKEN) as guest:
        os.kill(guest.server_pid, signal.SIGSTOP)
        assert monitor.status().sessions
    is_free_again(monitor, guest.server_pid)
    monitor.wait_for_log("it hung when its guest was gone")


@system
def test_so_it_is_by_the_next_monitor(monitor: harness.Monitor) -> None:
    """Which never had the guest's connection."""
    with FakeGuest(monitor.tcp, TOKEN) as guest:
        monitor.process.kill()
        successor = monitor.succeed(*OPTIONS, constants=QUICK)
        successor.wait_for(lambda s: s.sessions, "adoption")
        os.kill(guest.server_pid, signal.SIGSTOP)
    is_free_again(successor, guest.server_pid)


@system
def test_one_that_lives_ends_its_session_by_itself(monitor: harness.Monitor) -> None:
    """Here, after it was asked three times."""
    with FakeGuest(monitor.tcp, TOKEN, function=b"tidies") as guest:
        pass
    status = monitor.wait_idle(1)
    assert not status.sessions
    assert guest.server_pid in {server.pid for server in status.servers}


@system
def test_one_that_lives_and_never_ends_it_is_ended() -> None:
    constants = {**QUICK, f"{DEPARTURES}:LONGEST_SECONDS": 0.2}
    options = (*OPTIONS, "--resume-grace", "0")
    with harness.monitor(*options, constants=constants, GPUFERRY_TOKEN=TOKEN) as monitor:
        with FakeGuest(monitor.tcp, TOKEN, function=b"keeps") as guest:
            pass
        is_free_again(monitor, guest.server_pid)


def test_nobodys_connection_is_held() -> None:
    """The API server's end is the guest's: the monitor has an eye on a connection, not the connection."""

    async def look() -> None:
        departures = Departures({}, 0.0)
        ours, guests = socket.socketpair()
        departures.watch(1, ours)
        ours.close()
        assert guests.recv(1) == b""
        guests.close()
        departures.ended(1)

    asyncio.run(look())


def test_where_no_descriptor_is_free_a_guest_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the monitor's hearing of the API server, and with it that."""

    def none(_: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("select.epoll", none)
    departures = Departures({}, 0.0)
    ours, guests = socket.socketpair()
    with ours, guests:
        departures.watch(1, ours)
    departures.ended(1)
    assert not departures.absent


def gone(leave: Callable[[socket.socket], object]) -> bool:
    """Whether it is noticed when the guest leaves like this, though somebody else has the other end."""

    async def look() -> bool:
        sessions = {1: MagicMock(server=None)}
        departures = Departures(sessions, 0.0)
        ours, guests = socket.socketpair()
        elsewhere = ours.dup()
        with ours, guests, elsewhere:
            departures.watch(1, ours)
            ours.close()
            before = departures.absent
            leave(guests)
            await asyncio.sleep(0)  # the loop looks for events, and then calls
            await asyncio.sleep(0)
            found = departures.absent
            departures.ended(1)
            assert not before
            assert not departures.absent
            return found == {1}

    return asyncio.run(look())


def test_a_guest_is_gone_when_it_closes_or_says_that_it_is_done() -> None:
    assert gone(lambda guest: guest.close())
    assert gone(lambda guest: guest.shutdown(socket.SHUT_WR))
    assert not gone(lambda guest: guest.send(b"its next call"))
