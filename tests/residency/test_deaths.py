"""Whoever dies, or comes, while a session's memory leaves, is away, or returns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from gpuferry.monitor.residency.files import CopyFile, in_memory, on_disk
from gpuferry.specs._generated import node_pb2

from tests.apiserver.guest import Guest
from tests.apiserver.server import Server
from tests.helpers.points import Points
from tests.migration.moving import MEMORY, PAGE, Work, close, devices, expect, order
from tests.residency.ordering import HOST, answer, at_rest, back, come_back, gone, leave, wants_back

LEAVING = "gpuferry.apiserver.copies:Copies._save"
RETURNING = "gpuferry.apiserver.copies:Copies.restore"
STANDS = "gpuferry.apiserver.residing:Residing._come_to_rest"  # it stands still; its device may work
DEMOTING = "gpuferry.apiserver.copies:_OnDisk.take"
LEFT = "gpuferry.apiserver.copies:Copies.update!"  # all is copied, and nothing has left
LEARNS = "gpuferry.apiserver.residing:Residing._learn"  # it was copied ahead, and goes on


class Pointed(Server):
    """One API server, which waits at these points as it is told."""

    command: ClassVar[list[str]] = Points.command("gpuferry.apiserver")


@pytest.fixture
def points() -> Iterator[Points]:
    with Points(LEAVING, RETURNING, STANDS, LEFT, DEMOTING, LEARNS) as found:
        yield found


@pytest.fixture
def server(tmp_path: Path, points: Points) -> Iterator[Server]:
    with Pointed(tmp_path / "log", 0, **points.environment, **devices(MEMORY)) as running:
        running.ready()
        yield running


def begin_to_leave(server: Server, guest: Guest, pages: int) -> None:
    at_rest(server, guest)
    file = in_memory(pages * PAGE)
    leave = node_pb2.Leave(session=guest.session, number=7, insist=False, bytes=[file.size], on_disk=[False])
    order(server, [file], leave=leave)


@pytest.mark.system
@pytest.mark.parametrize("point", [LEAVING, LEFT])
def test_a_call_that_comes_while_it_leaves_stops_that(server: Server, points: Points, point: str) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    back(server, guest)
    work.scale(2)  # all copies are doubtful
    with points.hold(point) as held:
        begin_to_leave(server, guest, 2)
        held.wait()
        asked = guest.ask_read(work.memory, PAGE)
    told = answer(server, 7)
    assert (told.reason, told.where) == ("it works", node_pb2.RESIDENCE_RESIDENT)
    assert guest.answer(asked).payload == work.contents[0]
    gone(server, guest, 0)
    back(server, guest)
    work.check()
    close(guest, server)


def test_a_device_that_waits_for_the_program_goes_on_until_it_may_leave(
    server: Server, points: Points
) -> None:
    """While the session stands still nobody hears what the program says: that for which its device waits."""
    guest = server.connect()
    work = Work(guest)
    value = work.memory + PAGE
    guest.write(value, bytes(4))
    guest.send("cuStreamWaitValue32_v2", stream=work.stream, addr=value, value=1, flags=0)
    assert guest.call("cuStreamQuery", hStream=work.stream).status == 600  # it waits
    asked = guest.ask("cuStreamSynchronize", hStream=work.stream)
    with points.hold(STANDS) as held:
        file = in_memory(6 * PAGE)
        leave = node_pb2.Leave(
            session=guest.session, number=7, insist=True, bytes=[file.size], on_disk=[False]
        )
        order(server, [file], leave=leave)
        held.wait()
        guest.write(value, work.contents[1][:4])
        guest.write(value, struct.pack("<I", 1))
    told = answer(server, 7)
    assert (told.reason, told.where) == ("", node_pb2.RESIDENCE_HOST)
    back(server, guest)
    assert guest.answer(asked).status == 0
    guest.write(value, work.contents[1][:4])
    work.check()
    close(guest, server)


@pytest.mark.some(1)
@pytest.mark.parametrize("point", [LEAVING, LEFT])
def test_the_program_is_killed_while_its_memory_leaves(server: Server, points: Points, point: str) -> None:
    guest = server.connect()
    Work(guest)
    with points.hold(point) as held:
        begin_to_leave(server, guest, 8)
        held.wait()
        guest.socket.close()
    assert answer(server, 7).reason
    ended = expect(server, "ended").ended
    assert (ended.reason, ended.clean) == ("connection lost", True)
    expect(server, "ready")


def test_the_program_is_killed_while_its_memory_returns(server: Server, points: Points) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    guest.ask_read(work.memory, PAGE)
    wants_back(server, guest)
    with points.hold(RETURNING) as held:
        server.order(come_back=node_pb2.ComeBack(session=guest.session, number=8, allowance=1 << 40))
        held.wait()
        guest.socket.close()
    answer(server, 8)
    ended = expect(server, "ended").ended
    assert (ended.reason, ended.clean) == ("connection lost", True)
    expect(server, "ready")


@pytest.mark.some(1)
@pytest.mark.parametrize("point", [LEAVING, LEFT, RETURNING])
def test_the_api_server_is_killed(server: Server, points: Points, point: str) -> None:
    guest = server.connect()
    Work(guest)
    if point == RETURNING:
        gone(server, guest, 6)
    with points.hold(point) as held:
        if point == RETURNING:
            server.order(come_back=node_pb2.ComeBack(session=guest.session, number=8, allowance=1 << 40))
        else:
            begin_to_leave(server, guest, 6)
        os.kill(held.wait(), signal.SIGKILL)
        assert guest.expect_end().text == ""
    assert server.wait_for_exit() == -signal.SIGKILL


@pytest.mark.parametrize("point", [LEAVING, RETURNING])
def test_an_operator_ends_it_meanwhile(server: Server, points: Points, point: str) -> None:
    guest = server.connect()
    Work(guest)
    if point == RETURNING:
        gone(server, guest, 6)
    with points.hold(point) as held:
        if point == RETURNING:
            server.order(come_back=node_pb2.ComeBack(session=guest.session, number=8, allowance=1 << 40))
        else:
            begin_to_leave(server, guest, 6)
        held.wait()
        server.order(revoke={"session": guest.session, "reason": "enough"})
    answer(server, 8 if point == RETURNING else 7)
    assert guest.expect_end().text == "revoked: enough"
    assert expect(server, "ended").ended.clean
    expect(server, "ready")


@contextlib.contextmanager
def demoting(server: Server, points: Points, guest: Guest, folder: Path) -> Iterator[tuple[int, CopyFile]]:
    """While its copies go on to a disk: the API server's process id, and the file."""
    gone(server, guest, 6)
    file = asyncio.run(on_disk(folder, 6 * PAGE))
    with points.hold(DEMOTING) as held:
        beside = [CopyFile(os.dup(file.fileno()), file.size, on_disk=True)]
        order(server, beside, demote=node_pb2.Demote(session=guest.session, number=8, bytes=file.size))
        yield held.wait(), file
    file.close()


def test_a_call_that_comes_while_its_copies_move_stops_that(
    server: Server, points: Points, tmp_path: Path
) -> None:
    guest = server.connect()
    work = Work(guest)
    with demoting(server, points, guest, tmp_path):
        asked = guest.ask_read(work.memory, PAGE)
        wants_back(server, guest)
    told = answer(server, 8)
    assert (told.reason, told.where, told.disk_bytes) == ("it is wanted back", HOST, 0)
    come_back(server, guest, 1 << 40)
    assert guest.answer(asked).payload == work.contents[0]
    work.check()
    close(guest, server)


def test_the_program_is_killed_while_its_copies_move(server: Server, points: Points, tmp_path: Path) -> None:
    guest = server.connect()
    Work(guest)
    with demoting(server, points, guest, tmp_path):
        guest.socket.close()
    answer(server, 8)
    ended = expect(server, "ended").ended
    assert (ended.reason, ended.clean) == ("connection lost", True)
    expect(server, "ready")


def test_more_is_mapped_before_its_pages_are_known_by_hashes(server: Server, points: Points) -> None:
    """There is no room for the copies of that: nothing is learned, and nothing else comes of it."""
    guest = server.connect()
    work = Work(guest)
    at_rest(server, guest)
    with points.hold(LEARNS) as learning:
        assert leave(server, guest, 6, copy_only=True).copied_bytes == 6 * PAGE
        learning.wait()
        more = guest.map(3, at=16)
        guest.write(more, b"m" * PAGE)
        at_rest(server, guest)
    assert gone(server, guest, 3).copied_bytes == 3 * PAGE
    back(server, guest)
    assert guest.read(more, PAGE) == b"m" * PAGE
    work.check()
    close(guest, server)


def test_its_disk_is_changed_behind_its_back(server: Server, points: Points, tmp_path: Path) -> None:
    """Cut short while copies move there, and once more when they lie there: an end that says why."""
    guest = server.connect()
    work = Work(guest)
    with demoting(server, points, guest, tmp_path) as (_, file):
        os.ftruncate(file.fileno(), 0)
        disk = CopyFile(os.dup(file.fileno()), file.size, on_disk=True)
    assert answer(server, 8).reason == ""  # written anew, all of it
    os.ftruncate(disk.fileno(), PAGE)
    disk.close()
    guest.ask_read(work.memory, PAGE)
    wants_back(server, guest)
    told = come_back(server, guest, 1 << 40)
    assert "has become shorter" in told.reason
    assert "its memory is lost" in guest.expect_end().text
    assert "its memory is lost" in expect(server, "ended").ended.reason
    assert "memory is lost" in server.log.read_text()
