"""Orders to an API server that has no monitor: its session's memory leaves the device, and comes back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from gpuferry.monitor.residency.files import CopyFile, in_memory, on_disk
from gpuferry.specs._generated import node_pb2

from tests.apiserver.guest import Guest
from tests.apiserver.server import Server
from tests.migration.gate import attempts
from tests.migration.moving import PAGE, expect, next_message, order

HOST, DISK = node_pb2.RESIDENCE_HOST, node_pb2.RESIDENCE_DISK
RESIDENT = node_pb2.RESIDENCE_RESIDENT
_early: dict[Server, node_pb2.RoomWanted] = {}


def at_rest(server: Server, guest: Guest) -> None:
    """Until the server knows that nothing of the guest is under way, a little later than the guest does."""
    assert guest.sync().status == 0
    for _ in attempts():
        if server.stats().idle_seconds > 0:
            return
    raise AssertionError("the server does not call the session idle")


def leave(
    server: Server, guest: Guest, pages: int, folder: Path | None = None, **terms: Any
) -> node_pb2.Resides:
    """Sends a session away, with room for so many pages more; into a folder on a disk, if there is one."""
    files: list[CopyFile] = []
    if pages:
        made = asyncio.run(on_disk(folder, pages * PAGE)) if folder else in_memory(pages * PAGE)
        files.append(made)
    wanted = node_pb2.Leave(
        session=guest.session,
        number=7,
        bytes=[file.size for file in files],
        on_disk=[file.on_disk for file in files],
        **terms,
    )
    order(server, files, leave=wanted)
    return answer(server, 7)


def gone(
    server: Server, guest: Guest, pages: int, folder: Path | None = None, **terms: Any
) -> node_pb2.Resides:
    """The same, and it has left; that its last call is over it knows a little later than its guest."""
    told = leave(server, guest, pages, folder, **terms)
    for _ in attempts():
        if told.reason != "it works":
            break
        told = leave(server, guest, 0, **terms)
    assert told.reason == "", (told.reason, server.log.read_text())
    assert told.where == (DISK if folder else HOST)
    return told


def learned(server: Server) -> None:
    """Until the server has told its log that it knows the session's pages by their hashes."""
    for _ in attempts():
        if "by their hashes" in server.log.read_text():
            return
        time.sleep(0.01)
    raise AssertionError(server.log.read_text())


def wants_back(server: Server, guest: Guest) -> int:
    """A call has come: as many bytes are wanted on the device."""
    early = _early.pop(server, None)
    wanted = early or expect(server, "room_wanted").room_wanted
    assert (wanted.session, wanted.away) == (guest.session, True)
    return int(wanted.bytes)


def come_back(server: Server, guest: Guest, allowance: int = 1 << 40) -> node_pb2.Resides:
    server.order(come_back=node_pb2.ComeBack(session=guest.session, number=8, allowance=allowance))
    return answer(server, 8)


def answer(server: Server, number: int) -> node_pb2.Resides:
    message = next_message(server)
    if message.HasField("room_wanted"):  # the next call may come before this is told
        _early[server] = message.room_wanted
        message = next_message(server)
    assert message.resides.number == number, message
    return message.resides


def demote(server: Server, guest: Guest, file: CopyFile, size: int) -> node_pb2.Resides:
    """The copies that are in memory go to this file of so many bytes."""
    order(server, [file], demote=node_pb2.Demote(session=guest.session, number=9, bytes=size))
    return answer(server, 9)


def back(server: Server, guest: Guest) -> node_pb2.Resides:
    """The same, and it is there."""
    told = come_back(server, guest)
    assert (told.reason, told.where) == ("", RESIDENT), server.log.read_text()
    return told
