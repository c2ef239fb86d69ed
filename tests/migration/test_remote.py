"""To another machine: contents are streamed; a keeper takes over, relays, and sends the guest after them."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.apiserver.relay import OP_MOVED
from gpuferry.specs._generated import migration_pb2

from tests.apiserver.guest import OP_WELCOME, Guest
from tests.apiserver.server import Server
from tests.migration.moving import (
    MEMORY,
    PRECOPY,
    STOP,
    Faulty,
    Keeper,
    Work,
    close,
    devices,
    expect,
    offer,
    order_move,
    settled,
)

KEY = bytes(range(32))


class Follower(Guest):
    """A guest that knows MOVED, and may ignore it."""

    moved = b""

    def _frame(self) -> tuple[int, bytes, int, int]:
        frame = super()._frame()
        if frame[0] != OP_MOVED:
            return frame
        assert not self.moved
        self.moved = frame[1]
        return self._frame()


def connect(source: Server) -> Follower:
    guest = source.connect()
    guest.__class__ = Follower
    assert isinstance(guest, Follower)
    return guest


def welcome(link: socket.socket) -> bytes:
    """What a monitor reads from the destination before the source gets the link."""
    header = link.recv(16, socket.MSG_WAITALL)
    size, op = struct.unpack_from("<IH", header)
    assert op == OP_WELCOME
    return link.recv(size - 16, socket.MSG_WAITALL)


def send_away(
    source: Server,
    destination: Server,
    keeper: Keeper,
    session: int,
    strategy: migration_pb2.Strategy = STOP,
    link: socket.socket | None = None,
) -> None:
    link = link or offer(destination, session)
    remote = {"welcome": welcome(link), "address": "127.0.0.1:1", "key": KEY}
    pair = keeper.keep(session, remote=remote)
    order_move(source, [link, pair], session, strategy, remote=remote)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "keeper.log") as running:
        yield running


@pytest.mark.parametrize("strategy", [STOP, PRECOPY], ids=["stop", "precopy"])
def test_everything_is_there_through_the_relay(
    source: Server, destination: Server, keeper: Keeper, strategy: migration_pb2.Strategy
) -> None:
    guest = connect(source)
    work = Work(guest)
    send_away(source, destination, keeper, guest.session, strategy)
    moved = expect(source, "moved").moved
    settled(source, destination, moved)
    expect(keeper, "taken_over")
    work.check()
    assert guest.moved
    assert moved.report.copied_bytes == (work.pages - 1) << 21  # a page of zeroes is not sent
    close(guest, destination)
    assert expect(keeper, "ended").ended.reason == "connection lost"
    assert keeper.wait_for_exit() == 0


def test_the_network_breaks(destination: Server, keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "faulty").mkdir()
    with Faulty(tmp_path / "faulty", 0, **devices(MEMORY)) as source:
        source.ready()
        guest = connect(source)
        work = Work(guest)
        link = offer(destination, guest.session)
        cable = link.dup()
        source.fail("catch_up", "wait")
        send_away(source, destination, keeper, guest.session, link=link)
        source.wait_until_reached()
        cable.shutdown(socket.SHUT_RDWR)
        cable.close()
        source.go_on()
        moved = expect(source, "moved").moved
        assert not moved.moved
        assert not moved.lost
        assert expect(destination, "ended").ended.clean
        expect(destination, "ready")
        work.check()
        close(guest, source)


def test_the_source_dies_once_the_keeper_has_it(destination: Server, keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "faulty").mkdir()
    with Faulty(tmp_path / "faulty", 0, **devices(MEMORY)) as source:
        source.ready()
        guest = connect(source)
        work = Work(guest)
        source.fail("after_take_over", "kill")
        send_away(source, destination, keeper, guest.session)
        assert source.wait_for_exit() == -signal.SIGKILL
        expect(destination, "taken_over")
        expect(keeper, "taken_over")
        work.check()
        close(guest, destination)
