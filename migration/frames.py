"""The frames that the mechanism itself reads or makes (specs/WIRE.md). All others it only passes on."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuferry.specs._generated import wire
from gpuferry.specs._generated.frames import Header

HEADER = Header.LAYOUT
STATUS = struct.Struct("<i")
ANSWER = struct.Struct("<Q")
PAGE = 2 << 20
PRIMARY = 1  # header value of the primary context

OPERATIONS = {name: id for id, name in wire.OPERATIONS.items()}
RANGE = wire.REQUESTS["sessionMemMap"]  # unmaps, and restore operations about a range, likewise
MAP_ON = wire.REQUESTS["sessionMemMapOn"]
LOAD_IMAGE = wire.REQUESTS["sessionLoadImage"]
LOADED = wire.REPLIES["sessionLoadImage"]
IMAGE_DATA = wire.REQUESTS["sessionImageData"]
LINK_ADD = wire.REQUESTS["sessionLinkAdd"]
LINKED = {OPERATIONS[name]: wire.REPLIES[name] for name in ("sessionLinkAdd", "sessionLinkComplete")}
HANDLE = wire.REQUESTS["sessionRestoreUse"]
ARRAY_IN = wire.REQUESTS["sessionArrayIn"]
COPY_IN = wire.REQUESTS["sessionCopyIn"]
RESUMABLE = wire.REQUESTS["sessionRestoreResumable"]
LOCATE = OPERATIONS["sessionRestoreVariable"]
FIND = OPERATIONS["sessionFindMemory"]
VARIABLE_FOUND = wire.REPLIES["sessionRestoreVariable"]
KIND_LIBRARY = 3


class Kept(NamedTuple):
    """A frame that is part of a session's state, with the digest of its answer (0: it had none)."""

    frame: bytes
    answer: int


def name(op: int) -> str:
    return str(wire.OPERATIONS.get(op, f"operation {op}"))


def describe(frame: bytes) -> str:
    """What a frame asks for, as a text for messages."""
    head = header(frame)
    if head.op == FIND:
        address = wire.REQUESTS["sessionFindMemory"].unpack_from(frame, HEADER.size)[0]
        return f"the address {address:#x} in its code"
    if tells_address(frame) or head.op == LOCATE:
        return f"the address of the variable {frame[HEADER.size + HANDLE.size :].decode(errors='replace')}"
    if head.op in (OPERATIONS["sessionTextureCreate"], OPERATIONS["sessionSurfaceCreate"]):
        return f"{name(head.op)} (kernels know the object by the number that this device's driver gave it)"
    return name(head.op)


def tells_address(frame: bytes) -> bool:
    """Whether its answer tells the program where something of a module lies."""
    return header(frame).op in (OPERATIONS["sessionGetGlobal"], OPERATIONS["sessionGetManaged"], FIND)


def header(frame: bytes | bytearray | memoryview) -> Header:
    return Header.unpack(frame)


def pack(op: str, body: bytes, payload_size: int = 0, context: int = 0, request: int = 0) -> bytes:
    """The header and body of a frame; its payload, of so many bytes, follows."""
    size = HEADER.size + len(body) + payload_size
    return Header(size, OPERATIONS[op], 0, request, context).pack() + body


def digest(op: int, status: int, body: bytes | memoryview) -> int:
    """The digest of an answer that a session's journal keeps. What JIT and linker said is no part of it."""
    if op in LINKED and len(body) >= LINKED[op].size:
        *told, _, _ = LINKED[op].unpack_from(body)
        body = LINKED[op].pack(*told, 0, 0)
    if op == OPERATIONS["sessionLoadImage"] and len(body) >= LOADED.size:
        known, kernels, table, _ = LOADED.unpack_from(body)
        body = LOADED.pack(known, kernels, table, 0) + bytes(body[LOADED.size : LOADED.size + table])
    return int(ANSWER.unpack_from(hashlib.sha256(STATUS.pack(status) + body).digest())[0])


def of(kept: Iterable[Kept], *names: str) -> Iterator[tuple[Header, bytes]]:
    """Header and body of each frame of these operations, in order."""
    wanted = {OPERATIONS[name] for name in names}
    for frame, _ in kept:
        head = header(frame)
        if head.op in wanted:
            yield head, frame[HEADER.size :]


def owners(kept: list[Kept]) -> list[tuple[int, int, bytes]]:
    """(handle, context, image's hash) of each module, and of each library once for every context that has
    used it.
    """
    modules: list[tuple[int, int, bytes]] = []
    images: dict[int, bytes] = {}
    for head, body in of(kept, "sessionLoadImage"):
        image, handle, _ = LOAD_IMAGE.unpack_from(body)
        images[handle] = image
        if handle >> 40 & 0xFF != KIND_LIBRARY:
            modules.append((handle, head.context, image))
    uses = [(HANDLE.unpack_from(body)[0], head.context) for head, body in of(kept, "sessionRestoreUse")]
    return modules + [(library, context, images[library]) for library, context in uses]
