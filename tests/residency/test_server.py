"""One API server: its session's memory leaves the device and comes back, and its program notices nothing."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from pathlib import Path
from typing import Any, ClassVar

import pytest
from gpuferry.monitor.residency.files import CopyFile, on_disk
from gpuferry.specs._generated import node_pb2

from tests.apiserver.server import Server
from tests.helpers.points import Points
from tests.migration.moving import (
    PAGE,
    PRECOPY,
    STOP,
    Keeper,
    Work,
    close,
    expect,
    move,
    offer,
    order,
    order_move,
    settled,
    stayed,
    suspend,
    suspended,
)
from tests.residency.ordering import (
    DISK,
    HOST,
    RESIDENT,
    answer,
    at_rest,
    back,
    come_back,
    demote,
    gone,
    learned,
    leave,
    wants_back,
)


class Impatient(Server):
    """One API server, with constants that a test sets."""

    command: ClassVar[list[str]] = Points.command("gpuferry.apiserver")


@pytest.mark.parametrize("where", ["host", "disk"])
def test_there_and_back(server: Server, tmp_path: Path, where: str) -> None:
    guest = server.connect()
    work = Work(guest)
    folder = tmp_path if where == "disk" else None
    told = gone(server, guest, 6, folder)
    assert told.copied_bytes == 6 * PAGE
    asked = guest.ask_read(work.memory, PAGE)
    assert wants_back(server, guest) == 6 * PAGE
    assert back(server, guest).copied_bytes == 5 * PAGE  # one is zero everywhere
    assert guest.answer(asked).payload == work.contents[0]
    work.check()
    close(guest, server)


def test_what_was_not_written_since_is_not_copied_again(server: Server) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    back(server, guest)
    assert gone(server, guest, 0).copied_bytes == 0
    back(server, guest)
    work.contents[3] = bytes([7]) * PAGE
    guest.write(work.memory + 3 * PAGE, work.contents[3])
    assert guest.sync().status == 0
    assert gone(server, guest, 0).copied_bytes == PAGE
    back(server, guest)
    work.check()
    close(guest, server)


def test_what_is_written_by_way_of_an_alias_is_copied_again(server: Server) -> None:
    """Also if there is no alias any more when it is copied."""
    guest = server.connect()
    work = Work(guest)
    shown = guest.window + guest.window_size // 2
    guest.send("sessionMemAlias", address=shown, size=4 * PAGE, home=work.memory)
    guest.send("sessionMemAccess", address=shown, size=4 * PAGE, access=3)
    assert guest.sync().latched == 0
    gone(server, guest, 6)
    back(server, guest)
    work.contents[3] = bytes([7]) * PAGE
    guest.write(shown + 3 * PAGE, work.contents[3])
    assert guest.sync().status == 0
    assert gone(server, guest, 0).copied_bytes == PAGE
    back(server, guest)
    work.contents[1] = bytes([8]) * PAGE
    guest.write(shown + PAGE, work.contents[1])
    guest.send("sessionMemUnalias", address=shown, size=4 * PAGE)
    assert guest.sync().status == 0
    assert gone(server, guest, 0).copied_bytes == PAGE
    back(server, guest)
    work.check()
    close(guest, server)


def test_hashes_tell_which_pages_a_kernel_wrote(server: Server) -> None:
    guest = server.connect()
    work = Work(guest)
    at_rest(server, guest)
    assert leave(server, guest, 6, copy_only=True).copied_bytes == 6 * PAGE
    learned(server)  # an order that came earlier would have kept it from that
    work.scale(5)
    assert gone(server, guest, 0).copied_bytes == PAGE
    back(server, guest)
    work.check()
    close(guest, server)


def test_a_kernel_without_hashes_makes_all_doubtful(server: Server) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    back(server, guest)
    work.scale(5)
    assert gone(server, guest, 1).copied_bytes == 6 * PAGE
    back(server, guest)
    work.check()
    close(guest, server)


def test_memory_that_changed_while_it_was_there(server: Server) -> None:
    """What is unmapped loses its copy; what is mapped where it was begins with zeroes."""
    guest = server.connect()
    first = guest.map(2)
    guest.write(first, b"a" * (2 * PAGE))
    gone(server, guest, 2)
    back(server, guest)
    guest.send("sessionMemUnmap", address=first, size=2 * PAGE)
    again = guest.map(2, at=(first - guest.window) // PAGE)
    assert again == first
    assert guest.sync().latched == 0
    gone(server, guest, 0)
    back(server, guest)
    assert guest.read(first, 2 * PAGE) == bytes(2 * PAGE)
    close(guest, server)


def test_copies_go_from_memory_to_a_disk(server: Server, tmp_path: Path) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    told = demote(server, guest, asyncio.run(on_disk(tmp_path, 6 * PAGE)), 6 * PAGE)
    assert (told.reason, told.where, told.copied_bytes) == ("", DISK, 5 * PAGE)
    assert (told.host_bytes, told.disk_bytes) == (0, 6 * PAGE)
    assert back(server, guest).copied_bytes == 5 * PAGE
    assert gone(server, guest, 0, tmp_path).copied_bytes == 0, "they are true, wherever they are"
    back(server, guest)
    work.check()
    close(guest, server)


def test_copies_in_memory_and_on_a_disk_become_one(server: Server, tmp_path: Path) -> None:
    guest = server.connect()
    work = Work(guest)
    leave(server, guest, 2)  # too little: it stays, and the file with it
    gone(server, guest, 4, tmp_path)
    told = demote(server, guest, asyncio.run(on_disk(tmp_path, 2 * PAGE)), 2 * PAGE)
    assert (told.reason, told.host_bytes, told.disk_bytes) == ("", 0, 6 * PAGE)
    back(server, guest)
    work.check()
    close(guest, server)


@pytest.mark.parametrize("fault", ["it cannot be written", "it is too small", "less than was said"])
def test_a_disk_that_fails_loses_nothing(server: Server, tmp_path: Path, fault: str) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    size = 2 * PAGE if fault == "it is too small" else 6 * PAGE
    (tmp_path / "file").write_bytes(bytes(size if fault != "less than was said" else PAGE))
    mode = os.O_RDONLY if fault == "it cannot be written" else os.O_RDWR
    file = CopyFile(os.open(tmp_path / "file", mode), size, on_disk=True)
    told = demote(server, guest, file, size)
    assert told.reason
    assert (told.where, told.host_bytes, told.disk_bytes) == (HOST, 6 * PAGE, 0)
    back(server, guest)
    work.check()
    close(guest, server)


def test_only_what_is_away_goes_to_a_disk(server: Server, tmp_path: Path) -> None:
    guest = server.connect()
    work = Work(guest)
    assert demote(server, guest, asyncio.run(on_disk(tmp_path, PAGE)), PAGE).reason == "it is not away"
    work.check()
    close(guest, server)


def test_what_was_unmapped_is_not_brought_back(server: Server) -> None:
    guest = server.connect()
    kept, given_up = guest.map(1), guest.map(2, at=4)
    guest.write(kept, b"k" * PAGE)
    guest.write(given_up, b"a" * PAGE)
    gone(server, guest, 3)
    back(server, guest)
    guest.send("sessionMemUnmap", address=given_up, size=2 * PAGE)
    assert guest.sync().latched == 0
    assert gone(server, guest, 0).mapped == PAGE
    assert back(server, guest).copied_bytes == PAGE
    assert guest.read(kept, PAGE) == b"k" * PAGE
    close(guest, server)


def test_copies_that_are_too_small(server: Server) -> None:
    guest = server.connect()
    work = Work(guest)
    at_rest(server, guest)
    told = leave(server, guest, 4)
    assert (told.where, told.missing) == (RESIDENT, 2 * PAGE)
    assert "lack" in told.reason
    work.check()
    gone(server, guest, 2)
    back(server, guest)
    work.check()
    close(guest, server)


def test_a_program_that_ends_while_it_is_away(server: Server) -> None:
    guest = server.connect()
    Work(guest)
    gone(server, guest, 6)
    guest.close()
    ended = expect(server, "ended").ended
    assert (ended.reason, ended.clean) == ("closed", True)
    expect(server, "ready")


def test_a_program_that_is_gone_while_it_waits(server: Server) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    guest.ask_read(work.memory, PAGE)
    wants_back(server, guest)
    guest.socket.close()
    ended = expect(server, "ended").ended
    assert (ended.reason, ended.clean) == ("connection lost", True)
    expect(server, "ready")


def test_an_operator_ends_what_is_away(server: Server) -> None:
    guest = server.connect()
    Work(guest)
    gone(server, guest, 6)
    server.order(revoke={"session": guest.session, "reason": "enough"})
    assert guest.expect_end().text == "revoked: enough"
    assert expect(server, "ended").ended.clean
    expect(server, "ready")


def test_who_works_stays(server: Server) -> None:
    guest = server.connect()
    work = Work(guest)
    value = work.memory + PAGE
    guest.write(value, bytes(4))
    guest.send("cuStreamWaitValue32_v2", stream=work.stream, addr=value, value=1, flags=0)
    assert leave(server, guest, 6).reason == "it works"
    guest.write(value, work.contents[1][:4])
    guest.write(value, struct.pack("<I", 1))
    assert guest.call("cuStreamSynchronize", hStream=work.stream).status == 0
    guest.write(value, work.contents[1][:4])
    work.check()
    close(guest, server)


def test_out_of_memory_only_when_it_is_refused(server: Server) -> None:
    """More than may be on the device waits for room, and gets it."""
    guest = server.connect(elastic=True, allowance=4 * PAGE)
    memory = guest.map(4)
    more = guest.map(3, at=8)
    wanted = expect(server, "room_wanted").room_wanted
    assert (wanted.bytes, wanted.away) == (7 * PAGE, False)
    server.order(allow=node_pb2.Allow(session=guest.session, number=9, allowance=7 * PAGE))
    assert answer(server, 9).allowance == 7 * PAGE
    guest.write(more, b"m" * PAGE)
    assert guest.read(more, PAGE) == b"m" * PAGE
    assert guest.read(memory, PAGE) == bytes(PAGE)
    guest.map(1, at=16)
    assert expect(server, "room_wanted").room_wanted.bytes == 8 * PAGE
    server.order(allow=node_pb2.Allow(session=guest.session, number=9, allowance=7 * PAGE, refused=True))
    answer(server, 9)
    assert guest.sync().latched == 2  # CUDA_ERROR_OUT_OF_MEMORY
    close(guest, server)


def test_who_waits_for_room_can_be_sent_away(server: Server) -> None:
    """Two that wait for each other's memory would wait for ever."""
    guest = server.connect(elastic=True, allowance=2 * PAGE)
    memory = guest.map(2)
    guest.write(memory, b"a" * PAGE)
    more = guest.map(2, at=8)  # and nothing that its server does not read until there is room
    assert expect(server, "room_wanted").room_wanted.bytes == 4 * PAGE
    assert gone(server, guest, 2, insist=True).allowance == 0, "others may have what it waits for"
    assert wants_back(server, guest) == 4 * PAGE
    assert come_back(server, guest, 4 * PAGE).reason == ""
    guest.write(more, b"b" * PAGE)
    assert guest.read(memory, PAGE) == b"a" * PAGE
    assert guest.read(more, PAGE) == b"b" * PAGE
    close(guest, server)


def test_who_waits_for_room_keeps_none_of_it(server: Server) -> None:
    """What it may have, and neither has nor could do with, is others': they may wait for just that."""
    guest = server.connect(elastic=True, allowance=5 * PAGE)
    guest.map(2)
    more = guest.map(4, at=8)
    assert expect(server, "room_wanted").room_wanted.bytes == 6 * PAGE
    for allowance, left in ((0, 2), (3, 3), (6, 6), (0, 6)):  # the last comes when it has what it wanted
        order = node_pb2.Allow(session=guest.session, number=9, allowance=allowance * PAGE)
        server.order(allow=order)
        assert answer(server, 9).allowance == left * PAGE
    guest.write(more, b"b" * PAGE)
    assert guest.read(more, PAGE) == b"b" * PAGE
    close(guest, server)


def test_who_is_away_is_allowed_nothing_there(server: Server) -> None:
    """It was about to have room when it was sent away in the middle of its call, and others wait for that."""
    guest = server.connect(elastic=True, allowance=2 * PAGE)
    guest.map(2)
    more = guest.map(2, at=8)
    assert expect(server, "room_wanted").room_wanted.bytes == 4 * PAGE
    gone(server, guest, 2, insist=True)
    assert wants_back(server, guest) == 4 * PAGE
    server.order(allow=node_pb2.Allow(session=guest.session, number=9, allowance=4 * PAGE))
    assert answer(server, 9).allowance == 0
    assert come_back(server, guest, 4 * PAGE).allowance == 4 * PAGE
    guest.write(more, b"b" * PAGE)
    assert guest.read(more, PAGE) == b"b" * PAGE
    close(guest, server)


def test_not_enough_room_to_come_back(server: Server) -> None:
    guest = server.connect(elastic=True, allowance=6 * PAGE)
    work = Work(guest)
    gone(server, guest, 6)
    told = come_back(server, guest, 5 * PAGE)
    assert (told.where, told.reason) == (HOST, f"it needs {6 * PAGE} bytes on the device")
    back(server, guest)
    work.check()
    close(guest, server)


@pytest.mark.some(2)
@pytest.mark.parametrize("where", ["host", "disk"])
@pytest.mark.parametrize("strategy", [STOP, PRECOPY])
def test_it_moves_out_of_its_copies(
    server: Server, destination: Server, tmp_path: Path, where: str, strategy: Any
) -> None:
    """Nobody is asked to bring it back first."""
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6, tmp_path if where == "disk" else None)
    moved = move(server, destination, guest.session, strategy)
    assert (moved.report.mapped_bytes, moved.report.copied_bytes) == (6 * PAGE, 5 * PAGE)
    settled(server, destination, moved)
    work.check()
    close(guest, destination)


def test_it_moves_with_a_call_that_waits_for_its_memory(server: Server, destination: Server) -> None:
    """What the monitor was told of that call is void: a move that is under way has the copies."""
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    asked = guest.ask_read(work.memory, PAGE)
    assert wants_back(server, guest) == 6 * PAGE
    settled(server, destination, move(server, destination, guest.session))
    assert guest.answer(asked).payload == work.contents[0]
    work.check()
    close(guest, destination)


def test_it_is_suspended_out_of_its_copies(server: Server, destination: Server, tmp_path: Path) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(server, keeper, suspend(server, keeper, guest.session, tmp_path / "file"))
        moved = keeper.play(guest.session, tmp_path / "file", destination)
        assert moved.report.copied_bytes == 5 * PAGE
        expect(destination, "taken_over")
        assert keeper.wait_for_exit() == 0
    work.check()
    close(guest, destination)


def test_who_does_not_move_after_all_wishes_for_its_memory_again(server: Server, destination: Server) -> None:
    guest = server.connect()
    work = Work(guest)
    gone(server, guest, 6)
    asked = guest.ask_read(work.memory, PAGE)
    wants_back(server, guest)
    link = offer(destination, guest.session, memory_quota=PAGE)  # which it is too large for
    order_move(server, [link], guest.session, local={"device": 1})
    stayed(server, destination, expect(server, "moved").moved)
    assert wants_back(server, guest) == 6 * PAGE
    back(server, guest)
    assert guest.answer(asked).payload == work.contents[0]
    work.check()
    close(guest, server)


def test_who_waits_within_a_call_is_brought_back_before_it_moves(server: Server, destination: Server) -> None:
    guest = server.connect(elastic=True, allowance=2 * PAGE)
    memory = guest.map(2)
    guest.write(memory, b"a" * PAGE)
    guest.map(2, at=8)
    assert expect(server, "room_wanted").room_wanted.bytes == 4 * PAGE
    gone(server, guest, 2, insist=True)
    assert wants_back(server, guest) == 4 * PAGE
    link = offer(destination, guest.session)
    order_move(server, [link], guest.session, local={"device": 1})
    assert wants_back(server, guest) == 4 * PAGE
    assert come_back(server, guest, 4 * PAGE).reason == ""
    settled(server, destination, expect(server, "moved").moved)
    assert guest.read(memory, PAGE) == b"a" * PAGE
    close(guest, destination)


def test_orders_that_cannot_be(server: Server) -> None:
    over = node_pb2.Leave(session=999, number=3)
    order(server, [], leave=over)
    assert expect(server, "resides").resides.reason == "the session is over"


def test_a_monitor_that_says_nothing(tmp_path: Path) -> None:
    """Its silence has an end for a call that wants more room."""
    constants = json.dumps({"gpuferry.apiserver.residing:ROOM_SECONDS": 0.05})
    with Impatient(tmp_path / "log", GPUFERRY_TEST_SET=constants) as server:
        server.ready()
        guest = server.connect(elastic=True, allowance=2 * PAGE)
        guest.map(4)
        assert expect(server, "room_wanted").room_wanted.bytes == 4 * PAGE
        assert guest.sync().latched == 2  # CUDA_ERROR_OUT_OF_MEMORY
        close(guest, server)
