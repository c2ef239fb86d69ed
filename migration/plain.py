"""Files of release 0.1: checksummed, not encrypted. They are only read, and only if somebody wants it.

A head of 4096 bytes says where the last part is, a `Snapshot` (snapshot.proto), which has the digests of
all others: frames, each behind the digest of its answer; gaps; and pages of 2 MiB, with their addresses.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from gpuferry.specs._generated import snapshot_pb2
from gpuferry.specs._generated.frames import FRAME_MAX

from .errors import SnapshotError
from .frames import ANSWER, HEADER, PAGE, Kept
from .head import MAGIC
from .place import ExistingFile

VERSION = 1
HEAD = struct.Struct("<18sHIQQ32s")  # magic, version, nothing, the last part's place, size, SHA-256
HEAD_SIZE = 4096  # the rest is zero, but for the SHA-256 of it all at the end
DIGEST = 32
PAGE_DIGEST = 16
TRAILER_MAX = 1 << 30

Part = snapshot_pb2.Part


def page_digest(page: bytes | memoryview) -> bytes:
    return hashlib.blake2b(page, digest_size=PAGE_DIGEST).digest()


class PlainReader:
    """An open snapshot of release 0.1 whose description was checked. The rest is checked by `check`. Raises
    SnapshotError.
    """

    def __init__(self, file: ExistingFile) -> None:
        self.name = file.name
        self._file = file
        self._size = file.size
        self.done = 0
        self.snapshot = self._trailer()

    @property
    def size(self) -> int:
        return self._size

    def check(self) -> None:
        """Read all of the file. Raises SnapshotError if a single bit is not what was written."""
        for item in self.contents():
            del item

    def contents(self) -> Iterator[Kept | tuple[int, bytes]]:
        """Frames, and pages with their addresses, in the order in which they are played. Each is checked
        again.
        """
        at = HEAD_SIZE
        for part in self.snapshot.parts:
            self.done = at
            if part.kind == Part.FRAMES:
                yield from self._frames(part, at)
            elif part.kind == Part.PAGES:
                yield from self._pages(part, at)
            elif hashlib.sha256(self._read(part.size, at)).digest() != part.digest:
                raise self._damaged("there is something between its parts")
            at += part.size

    def _trailer(self) -> snapshot_pb2.Snapshot:
        head = self._read(min(HEAD_SIZE, self._size), 0)
        if not head.startswith(MAGIC):
            raise SnapshotError(f"{self.name} is no snapshot of a session")
        if len(head) < HEAD_SIZE:
            raise self._damaged("it is cut short")
        version = HEAD.unpack_from(head)[1]
        if hashlib.sha256(head[:-DIGEST]).digest() != head[-DIGEST:]:
            raise self._damaged("its head does not have its checksum")
        if version != VERSION:
            raise SnapshotError(f"{self.name} has format version {version}; this gpuferry reads {VERSION}")
        _, _, _, at, size, digest = HEAD.unpack_from(head)
        if at + size != self._size or size > TRAILER_MAX:
            raise self._damaged(f"it has {self._size} bytes and should have {at + size}")
        trailer = self._read(size, at)
        if hashlib.sha256(trailer).digest() != digest:
            raise self._damaged("its table does not have its checksum")
        try:
            snapshot = snapshot_pb2.Snapshot.FromString(trailer)
        except DecodeError:
            raise self._damaged("its table cannot be read") from None
        self._check_parts(snapshot, at)
        return snapshot

    def _check_parts(self, snapshot: snapshot_pb2.Snapshot, end: int) -> None:
        if snapshot.bytes_per_page != PAGE or HEAD_SIZE + sum(part.size for part in snapshot.parts) != end:
            raise self._damaged("its parts do not fit")
        for part in snapshot.parts:
            pages = len(part.addresses)
            if part.kind == Part.PAGES and (
                part.size != pages * PAGE or len(part.hashes) != pages * PAGE_DIGEST
            ):
                raise self._damaged("its pages do not fit")
            if part.kind == Part.GAP and part.size >= PAGE:
                raise self._damaged("its parts do not fit")

    def _frames(self, part: snapshot_pb2.Part, at: int) -> Iterator[Kept]:
        self._check_digest(part, at)
        end = at + part.size
        while at < end:
            if end - at < ANSWER.size + HEADER.size:
                raise self._damaged("a frame is cut short")
            head = self._read(ANSWER.size + HEADER.size, at)
            size = HEADER.unpack_from(head, ANSWER.size)[0]
            at += ANSWER.size
            if not HEADER.size <= size <= min(FRAME_MAX, end - at):
                raise self._damaged("a frame has an impossible size")
            yield Kept(self._read(size, at), ANSWER.unpack_from(head)[0])
            at += size

    def _check_digest(self, part: snapshot_pb2.Part, at: int) -> None:
        digest = hashlib.sha256()
        for start in range(at, at + part.size, PAGE):
            digest.update(self._read(min(PAGE, at + part.size - start), start))
        if digest.digest() != part.digest:
            raise self._damaged("its frames do not have their checksum")

    def _pages(self, part: snapshot_pb2.Part, at: int) -> Iterator[tuple[int, bytes]]:
        for i, address in enumerate(part.addresses):
            page = self._read(PAGE, at + i * PAGE)
            if page_digest(page) != part.hashes[i * PAGE_DIGEST :][:PAGE_DIGEST]:
                raise self._damaged(f"the page at {address:#x} does not have its checksum")
            yield address, page

    def _read(self, size: int, at: int) -> bytes:
        data = self._file.read(size, at)
        if len(data) < size:
            raise self._damaged("it is cut short")
        return data

    def _damaged(self, what: str) -> SnapshotError:
        return SnapshotError(f"{self.name} is damaged: {what}")
