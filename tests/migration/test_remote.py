"""To another machine: contents are streamed; a keeper takes over, relays, and sends the guest after them."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpuferry.specs._generated import migration_pb2
from gpuferry.specs._generated.frames import Frame, frame

from tests.apiserver.guest import Guest
from tests.apiserver.server import DEADLINE, Server
from tests.migration.moving import (
    MEMORY,
    PAGE,
    PRECOPY,
    STOP,
    Faulty,
    Keeper,
    Work,
    close,
    devices,
    expect,
    offer,
    order,
    order_move,
    settled,
)

KEY = bytes(range(32))


class Follower(Guest):
    """A guest that knows MOVED, and may ignore it."""

    moved = b""
    told_all = False  # the server has said its last here

    def _frame(self) -> tuple[int, bytes, int, int]:
        frame = super()._frame()
        assert not self.told_all
        if frame[0] != Frame.MOVED:
            return frame
        self.told_all = frame[1] == b""
        if not self.told_all:
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
    assert op == Frame.WELCOME
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
        held = source.at("catch_up")
        send_away(source, destination, keeper, guest.session, link=link)
        held.wait()
        cable.shutdown(socket.SHUT_RDWR)
        cable.close()
        held.go()
        moved = expect(source, "moved").moved
        assert not moved.moved
        assert not moved.lost
        assert expect(destination, "ended").ended.clean
        expect(destination, "ready")
        work.check()
        close(guest, source)


@pytest.mark.system
def test_the_source_dies_once_the_keeper_has_it(destination: Server, keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "faulty").mkdir()
    with Faulty(tmp_path / "faulty", 0, **devices(MEMORY)) as source:
        source.ready()
        guest = connect(source)
        work = Work(guest)
        source.fail("take_over!", "kill")
        send_away(source, destination, keeper, guest.session)
        assert source.wait_for_exit() == -signal.SIGKILL
        expect(destination, "taken_over")
        expect(keeper, "taken_over")
        work.check()
        close(guest, destination)


def follow(guest: Follower, destination: Server, meanwhile: Callable[[], object] = lambda: None) -> None:
    """What the guest library does: its last frame here, all until the end, and on by another connection."""
    guest.socket.sendall(frame(Frame.MOVED))
    assert guest.expect_end().text == ""
    assert guest.told_all
    guest.told_all = False
    meanwhile()
    guest.socket.close()
    guest.socket, theirs = socket.socketpair()
    guest.socket.settimeout(DEADLINE)
    order(destination, [theirs], resume={"session": guest.session, "proof": b"r" * 32, "received": 0})
    header = guest.socket.recv(16, socket.MSG_WAITALL)
    size, op = struct.unpack_from("<IH", header)
    assert op == Frame.RESUMED
    assert guest.socket.recv(size - 16, socket.MSG_WAITALL) == b"r" * 32 + bytes(8)


def test_the_guest_follows(source: Server, destination: Server, keeper: Keeper) -> None:
    guest = connect(source)
    work = Work(guest)
    send_away(source, destination, keeper, guest.session)
    settled(source, destination, expect(source, "moved").moved)
    expect(keeper, "taken_over")
    work.check()
    follow(guest, destination)
    assert expect(keeper, "ended").ended.reason == "moved"
    assert keeper.wait_for_exit() == 0
    work.check()
    close(guest, destination)


def test_what_is_under_way_when_the_guest_leaves_arrives(
    source: Server, destination: Server, keeper: Keeper
) -> None:
    """Calls before MOVED are done, and answered, on whichever connection."""
    guest = connect(source)
    work = Work(guest)
    send_away(source, destination, keeper, guest.session)
    settled(source, destination, expect(source, "moved").moved)
    expect(keeper, "taken_over")
    guest.sync()
    guest.write(work.memory + 2 * PAGE, work.contents[1])
    work.contents[2] = work.contents[1]
    asked = [guest.ask_read(work.memory + i * PAGE, PAGE) for i in range(work.pages)]
    follow(guest, destination)
    for i, request in enumerate(asked):
        assert guest.answer(request).payload == work.contents[i]
    assert expect(keeper, "ended").ended.reason == "moved"
    close(guest, destination)


def test_a_guest_that_leaves_and_does_not_come(source: Server, destination: Server, keeper: Keeper) -> None:
    guest = connect(source)
    Work(guest)
    send_away(source, destination, keeper, guest.session)
    settled(source, destination, expect(source, "moved").moved)
    expect(keeper, "taken_over")
    guest.sync()
    guest.socket.sendall(frame(Frame.MOVED))
    assert expect(keeper, "ended").ended.reason == "moved"
    destination.order(revoke={"session": guest.session, "reason": "enough"})
    ended = expect(destination, "ended").ended
    assert (ended.reason, ended.clean) == ("revoked: enough", True)
    expect(destination, "ready")
