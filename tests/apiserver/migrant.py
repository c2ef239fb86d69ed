"""Moves a session from one engine to another, as migration/ does, step by step for tests."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import time
from collections.abc import Collection, Iterable
from typing import Any

from gpuferry.migration.versions import counters
from gpuferry.specs._generated.frames import CHUNK

from tests.apiserver.engine import Engine
from tests.apiserver.guest import HEADER, Guest, Reply, encode, layout, operations

PAGE = 2 << 20
LOCAL = 1  # flag of TAKE OVER: the guest's socket is beside it
Kept = tuple[bytes, int]


def operation(frame: bytes) -> str:
    wanted = HEADER.unpack_from(frame)[1]
    return next(name for name, m in operations().items() if m.variant.id == wanted)


def digest(op: str, reply: Reply) -> int:
    """As the journal remembers an answer."""
    values = {**reply.values, "log_size": 0, "error_size": 0, "info_size": 0}
    fields = operations()[op].reply
    body = layout(fields).pack(*(values[f.name] for f in fields)) if reply.values else b""
    told = 0 if "error_size" in reply.values else len(reply.payload)
    payload = reply.payload[: values.get("table_size", told)]
    return int.from_bytes(
        hashlib.sha256(struct.pack("<i", reply.status) + body + payload).digest()[:8], "little"
    )


def ask_with(link: Guest, op: str, descriptor: int, **values: Any) -> Reply:
    """A call with a descriptor beside it."""
    link._request += 1
    link._waiting[link._request] = op
    socket.send_fds(link.socket, [encode(op, link._request, 0, b"", values)], [descriptor])
    return link.answer(link._request)


def replay(link: Guest, kept: Iterable[Kept]) -> None:
    """Every frame must have the answer that it had."""
    asked = []
    for frame, answer in kept:
        size, op, flags, _, context = HEADER.unpack_from(frame)
        link._request += 1
        name = operation(frame)
        link._waiting[link._request] = name
        link.socket.sendall(HEADER.pack(size, op, flags, link._request, context) + frame[HEADER.size :])
        asked.append((link._request, name, answer))
    for request, name, answer in asked:
        reply = link.answer(request)
        assert digest(name, reply) == answer if answer else reply.status == 0, (name, reply)


def rebuild(source: Engine, link: Guest) -> list[Kept]:
    """Everything but contents of memory; returns what was replayed."""
    kept: list[Kept] = source.call("snapshot")
    for hash, image in source.call("images"):
        link.send("sessionImageData", hash=hash, size=len(image), offset=0, payload=image)
    replay(link, kept)
    return kept


def copy(source: Engine, link: Guest) -> None:
    for address, size in source.call("alias"):
        descriptor = source.call("share", address)
        try:
            assert ask_with(link, "sessionRestoreShare", descriptor, address=address, size=size).status == 0
        finally:
            os.close(descriptor)
        link.send("sessionRestoreCopy", address=address, size=size)


def tell_state(source: Engine, link: Guest, lacks: Collection[int] = ()) -> None:
    """What no frame says, to a destination that lacks these operations; the source is held."""
    for event, flags, age in source.call("events"):
        link.send("sessionRestoreEvent", event=event, flags=flags, age=age)
    raw(link, *counters(source.call("state"), lacks))
    resumable = source.call("resume_state")
    if resumable is not None:
        raw(link, "sessionRestoreResumable", resumable)
    link.send("sessionRestoreInput", payload=source.call("unread"))
    head = source.call("unsent_head")
    unsent = source.call("unsent")
    for at in range(0, len(unsent), CHUNK):
        link.send("sessionRestoreOutput", head=0 if at else head, payload=unsent[at : at + CHUNK])


def raw(link: Guest, op: str, body: bytes) -> None:
    link.socket.sendall(HEADER.pack(HEADER.size + len(body), operations()[op].variant.id, 0, 0, 0) + body)


def take_over(link: Guest, connection: socket.socket, mapped: int) -> Reply:
    """The guest's socket goes with it."""
    done = link.call("sessionRestoreDone", mapped_bytes=mapped)
    assert done.status == 0, done
    return ask_with(link, "sessionRestoreTakeOver", connection.fileno(), flags=LOCAL)


def move(
    source: Engine, target: Engine, link: Guest, connection: socket.socket, lacks: Collection[int] = ()
) -> None:
    """All of it; `connection` is a second descriptor of the source's end of the guest's connection."""
    rebuild(source, link)
    copy(source, link)
    assert source.call("hold", 60.0)
    assert source.call("drain", 60.0) == ""
    replay(link, source.call("tail"))
    copy(source, link)
    tell_state(source, link, lacks)
    reply = take_over(link, connection, sum(size for _, size in source.call("mappings")))
    assert reply.status == 0, reply
    source.call("leave")
    assert source.ended() == ("moved", True)
    while not target.call("taken_over"):
        time.sleep(0.001)
