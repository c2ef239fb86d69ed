"""The frames that the mechanism itself reads or makes (specs/WIRE.md). All others it only passes on."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuferry.specs._generated import wire

HEADER = struct.Struct("<IHHII")  # size, op, flags, request, context (status in a reply)
PREFIX = struct.Struct("<iHH")  # latched, latched_op
STATUS = struct.Struct("<i")
ANSWER = struct.Struct("<Q")
FRAME_MAX = 16 << 20
CHUNK = 4 << 20
REPLY = 1
PAGE = 2 << 20
PRIMARY = 1  # header value of the primary context
OP_WELCOME, OP_REFUSED, OP_OUTPUT, OP_ACKNOWLEDGE = 0xFF03, 0xFF04, 0xFF05, 0xFF09

OPERATIONS = {name: id for id, name in wire.OPERATIONS.items()}
RANGE = struct.Struct("<QQ")  # maps and unmaps; address and size, or pages, of restore operations
LOAD_IMAGE = struct.Struct("<32sQQ")
LOADED = struct.Struct("<4I")  # known, kernel_count, table_size, log_size
IMAGE_DATA = struct.Struct("<32sQQ")
HANDLE = struct.Struct("<Q")
COPY_IN = struct.Struct("<5Q")
RESUMABLE = struct.Struct("<5Q")  # received, told, begin, boundary, written
REFUSED = struct.Struct("<II")
KIND_LIBRARY = 3


class Kept(NamedTuple):
    """A frame that a session's state consists of, and the digest of its answer (0: it had none)."""

    frame: bytes
    answer: int


class Header(NamedTuple):
    size: int
    op: int
    flags: int
    request: int
    context: int


def name(op: int) -> str:
    return str(wire.OPERATIONS.get(op, f"operation {op}"))


def describe(frame: bytes) -> str:
    """What a frame asks for, for people."""
    head = header(frame)
    if head.op == OPERATIONS["sessionGetGlobal"]:
        return f"the address of the variable {frame[HEADER.size + HANDLE.size :].decode(errors='replace')}"
    return name(head.op)


def header(frame: bytes | memoryview) -> Header:
    return Header(*HEADER.unpack_from(frame))


def pack(op: str, body: bytes, payload_size: int = 0, context: int = 0, request: int = 0) -> bytes:
    """A frame up to its payload."""
    size = HEADER.size + len(body) + payload_size
    return HEADER.pack(size, OPERATIONS[op], 0, request, context) + body


def digest(op: int, status: int, body: bytes | memoryview) -> int:
    """What the journal of a session remembers of an answer; the JIT's log is no part of it."""
    if op == OPERATIONS["sessionLoadImage"] and len(body) >= LOADED.size:
        known, kernels, table, _ = LOADED.unpack_from(body)
        body = LOADED.pack(known, kernels, table, 0) + bytes(body[LOADED.size : LOADED.size + table])
    return int(ANSWER.unpack_from(hashlib.sha256(STATUS.pack(status) + body).digest())[0])


def of(kept: Iterable[Kept], *names: str) -> Iterator[tuple[Header, bytes]]:
    """Header and body of the frames of these operations."""
    wanted = {OPERATIONS[name] for name in names}
    for frame, _ in kept:
        head = header(frame)
        if head.op in wanted:
            yield head, frame[HEADER.size :]


def owners(kept: list[Kept]) -> list[tuple[int, int, bytes]]:
    """Handle, context and image's hash: of modules, and of libraries once per context that has used them."""
    modules: list[tuple[int, int, bytes]] = []
    images: dict[int, bytes] = {}
    for head, body in of(kept, "sessionLoadImage"):
        image, handle, _ = LOAD_IMAGE.unpack_from(body)
        images[handle] = image
        if handle >> 40 & 0xFF != KIND_LIBRARY:
            modules.append((handle, head.context, image))
    uses = [(HANDLE.unpack_from(body)[0], head.context) for head, body in of(kept, "sessionRestoreUse")]
    return modules + [(library, context, images[library]) for library, context in uses]
