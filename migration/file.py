"""A session in a file: frames and pages, encrypted and authenticated. DESIGN.md, "File", has the format."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

from google.protobuf.message import DecodeError
from gpuferry.specs._generated import snapshot_pb2
from gpuferry.specs._generated.frames import FRAME_MAX

from . import frames
from .chunks import Opener, Sealer
from .frames import ANSWER, HEADER, PAGE, Kept
from .head import damaged, read_head
from .place import ExistingFile, GivenFile, NewFile

# Records: one byte says what follows.
DESCRIPTION, FRAME, CONTENTS, END = range(1, 5)
SIZE = struct.Struct("<I")  # of the description
PLACE = struct.Struct("<QI")  # address of a page; which of its blocks are there, the others are zero
TOTAL = struct.Struct("<Q")  # bytes that are mapped
BLOCK = 64 << 10
ZEROES = bytes(PAGE)
DESCRIPTION_MAX = 1 << 20

Content = Kept | tuple[int, bytes]  # a frame, or a page's address and bytes


class Snapshot(Protocol):
    """An open snapshot file, of this release or of 0.1."""

    name: str
    snapshot: snapshot_pb2.Snapshot

    @property
    def size(self) -> int:
        """Bytes of the file."""

    @property
    def done(self) -> int:
        """How many of them the running pass has read."""

    def check(self) -> None:
        """Read all of the file. Raises SnapshotError if a single bit is not what was written."""

    def contents(self) -> Iterator[Content]:
        """Frames, and pages with their addresses, in the order in which they are played."""


class Writer:
    """Writes a snapshot into a new file, which gets its name at `finish`."""

    def __init__(
        self, file: NewFile | GivenFile, head: bytes, key: bytes, snapshot: snapshot_pb2.Snapshot
    ) -> None:
        self._file = file
        self._sealer = Sealer(file, head, key)
        description = snapshot.SerializeToString()
        self._sealer.write(bytes([DESCRIPTION]) + SIZE.pack(len(description)) + description)

    def replay(self, kept: Kept, what: str) -> None:
        """Write a frame and the digest that its answer must have."""
        self._frame(kept.answer, kept.frame, b"")

    def tell(self, op: str, body: bytes = b"", payload: bytes | memoryview = b"", context: int = 0) -> None:
        self._frame(0, frames.pack(op, body, len(payload), context), payload)

    def settle(self) -> None:
        """Do nothing: what is written needs no answer."""

    def page(self, address: int, page: memoryview) -> bool:
        """Write a page of device memory. Returns False for one that is zero, which is left out."""
        if page == ZEROES:
            return False
        blocks = [page[at : at + BLOCK] for at in range(0, PAGE, BLOCK)]
        there = [block != ZEROES[:BLOCK] for block in blocks]
        bits = sum(1 << i for i, one in enumerate(there) if one)
        self._sealer.write(bytes([CONTENTS]) + PLACE.pack(address, bits))
        for block, one in zip(blocks, there, strict=True):
            if one:
                self._sealer.write(block)
        return True

    def finish(self, mapped_bytes: int) -> None:
        """Write the end, sync the file to the disk, then give it its name."""
        self._sealer.write(bytes([END]) + TOTAL.pack(mapped_bytes))
        self._sealer.finish()
        self._file.publish()

    def withdraw(self) -> None:
        """Remove the finished file: the session did not leave after all."""
        self._file.withdraw()

    def _frame(self, answer: int, head: bytes, payload: bytes | memoryview) -> None:
        self._sealer.write(bytes([FRAME]) + ANSWER.pack(answer) + head)
        self._sealer.write(payload)


class Reader:
    """An open snapshot whose beginning was checked. The rest is checked by `check`. Raises SnapshotError."""

    def __init__(self, file: ExistingFile, key: bytes) -> None:
        self.name, self.size = file.name, file.size
        self._opener = Opener(file, read_head(file), key)
        self._pass = _Pass(self._opener, self.name)
        self.snapshot = self._pass.description()

    @property
    def done(self) -> int:
        return self._pass.read

    def check(self) -> None:
        """Read all of the file. Raises SnapshotError if a single bit is not what was written."""
        for item in self.contents():
            del item

    def contents(self) -> Iterator[Content]:
        """Frames, and pages with their addresses, in the order in which they are played. Each is checked
        again.
        """
        self._pass = _Pass(self._opener, self.name)
        self._pass.description()
        yield from self._pass.contents()
        self.snapshot.mapped_bytes = self._pass.mapped_bytes


class _Pass:
    """Reads the records once, from the first to the last."""

    def __init__(self, opener: Opener, name: str) -> None:
        self._chunks = opener.chunks()
        self._name = name
        self._waiting = bytearray()
        self.read = 0
        self.mapped_bytes = 0

    def description(self) -> snapshot_pb2.Snapshot:
        if self._kind() != DESCRIPTION:
            raise damaged(self._name, "it does not say what it is")
        (size,) = SIZE.unpack(self._take(SIZE.size))
        if size > DESCRIPTION_MAX:
            raise damaged(self._name, "its description has an impossible size")
        try:
            return snapshot_pb2.Snapshot.FromString(self._take(size))
        except DecodeError:
            raise damaged(self._name, "its description cannot be read") from None

    def contents(self) -> Iterator[Content]:
        while (kind := self._kind()) != END:
            if kind == FRAME:
                yield self._frame()
            elif kind == CONTENTS:
                yield self._page()
            else:
                raise damaged(self._name, f"there is no record of kind {kind}")
        (self.mapped_bytes,) = TOTAL.unpack(self._take(TOTAL.size))
        if self._waiting or next(self._chunks, None) is not None:
            raise damaged(self._name, "there is something behind its end")

    def _frame(self) -> Kept:
        (answer,) = ANSWER.unpack(self._take(ANSWER.size))
        head = self._take(HEADER.size)
        size = HEADER.unpack(head)[0]
        if not HEADER.size <= size <= FRAME_MAX:
            raise damaged(self._name, "a frame has an impossible size")
        return Kept(head + self._take(size - HEADER.size), answer)

    def _page(self) -> tuple[int, bytes]:
        address, bits = PLACE.unpack(self._take(PLACE.size))
        blocks = [self._take(BLOCK) if bits >> i & 1 else ZEROES[:BLOCK] for i in range(PAGE // BLOCK)]
        return address, b"".join(blocks)

    def _kind(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        while len(self._waiting) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise damaged(self._name, "a record is cut short")
            self.read += len(chunk)
            self._waiting += chunk
        taken = bytes(memoryview(self._waiting)[:size])
        del self._waiting[:size]
        return taken
