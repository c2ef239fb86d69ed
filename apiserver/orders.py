"""What a monitor may order: looked at as a whole before any of it is done."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator, Sequence

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from gpuferry.specs._generated import node_pb2
from gpuferry.specs._generated.constants import SEATS

COMMON = frozenset(("home", "resume", "revoke", "cancel", "stats", "shutdown"))
RESIDENCE = frozenset(("leave", "come_back", "allow", "forget", "demote"))
SERVERS = COMMON | RESIDENCE | {"grant", "migrate", "share", "next_launch", "export", "fetched", "turns"}
KEEPERS = COMMON | {"keep", "play"}
SECONDS_MOST = 1e9  # of any time: more than anything lives
OPERATION_MOST = 0xFFFF
PROOF_SIZE = 32
FILE_UNIT = 2 << 20  # of the files of copies: pages
# Descriptors beside each kind: `s` a socket, `f` a regular file; anything else is `?`.
_NONE = re.compile("")
_BESIDE = {
    "grant": re.compile("(sf?)?"),
    "home": re.compile("s?"),
    "resume": re.compile("s?"),
    "migrate": re.compile("(s{0,2}|ssf)f?"),
    "keep": re.compile("s{0,2}"),
    "play": re.compile("(ss?f)?"),
    "share": re.compile("f?"),
    "turns": re.compile("sf"),
    "leave": re.compile("f*"),
    "demote": re.compile("f"),
    "fetched": re.compile(".*"),  # whatever a driver shares memory by
}


class Unsound(Exception):
    """An order that no monitor gives: there is nothing to do but to end."""


def read(packet: bytes, descriptors: Sequence[int]) -> node_pb2.ToServer:
    """The order in a packet, with these descriptors beside it. Raises Unsound. One of a kind that is not
    known is of a later monitor.
    """
    try:
        message = node_pb2.ToServer.FromString(packet)
    except DecodeError:
        raise Unsound(f"{len(packet)} bytes are no message") from None
    kind = message.WhichOneof("message") or ""
    beside = "".join(map(_letter, descriptors))
    if not _BESIDE.get(kind, _NONE).fullmatch(beside):
        raise Unsound(f"{kind}: beside it is {beside or 'nothing'}")
    expected = message.migrate.HasField("file") + bool(message.migrate.members)
    if kind == "migrate" and beside.count("f") != expected:
        raise Unsound(f"migrate: its target and what is beside it do not fit ({beside or 'nothing'})")
    leave = message.leave
    if not len(leave.bytes) == len(leave.on_disk) == len(beside) * (kind == "leave"):
        raise Unsound(f"leave: {len(leave.bytes)} sizes of {len(beside)} files")
    sizes = [message.demote.bytes] if kind == "demote" else leave.bytes
    if any(size % FILE_UNIT or not size for size in sizes):
        raise Unsound(f"{kind}: a file of no whole pages")
    if not all(map(math.isfinite, message.grant.revocations)):
        raise Unsound(f"{kind}: a revocation at no time")
    for name, seconds in _times(message):
        if not (math.isfinite(seconds) and 0 <= seconds <= SECONDS_MOST):
            raise Unsound(f"{kind}: {name} is {seconds}")
    seats = [message.grant.seat, message.share.seat, *(each.seat for each in message.migrate.members)]
    if max(seats) >= SEATS:
        raise Unsound(f"{kind}: seat {max(seats)} of {SEATS}")
    proof = {"grant": message.grant.welcome_proof, "resume": message.resume.proof}.get(kind)
    if proof is not None and len(proof) != PROOF_SIZE and not message.grant.welcomed:
        raise Unsound(f"{kind}: a proof of {len(proof)} bytes")
    if max(message.grant.operations, default=0) > OPERATION_MOST:
        raise Unsound(f"{kind}: no operation has such a number")
    return message


def _letter(descriptor: int) -> str:
    mode = os.fstat(descriptor).st_mode
    return "s" if stat.S_ISSOCK(mode) else "f" if stat.S_ISREG(mode) else "?"


def _times(message: Message) -> Iterator[tuple[str, float]]:
    """Seconds that something may take or has taken, by name; lists have moments, or none."""
    for field, value in message.ListFields():
        if field.is_repeated:
            continue
        if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
            yield field.name, value
        elif field.message_type is not None:
            yield from _times(value)
