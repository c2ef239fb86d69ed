"""A session in a file: frames and pages, checksummed and sparse. DESIGN.md, "File", has the format."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError
from gpuferry.specs._generated import snapshot_pb2
from gpuferry.specs._generated.frames import FRAME_MAX

from . import frames
from .errors import Refused, SnapshotError
from .frames import ANSWER, HEADER, PAGE, Kept

MAGIC = b"GPUFERRY SNAPSHOT\0"
VERSION = 1
HEAD = struct.Struct("<18sHIQQ32s")  # magic, version, nothing, the last part's place, size, SHA-256
HEAD_SIZE = 4096  # the rest is zero, but for the SHA-256 of it all at the end
DIGEST = 32
PAGE_DIGEST = 16
BLOCK = 64 << 10  # blocks of zeroes are holes
TRAILER_MAX = 1 << 30
ZEROES = bytes(PAGE)

Part = snapshot_pb2.Part
Result = TypeVar("Result")


def page_digest(page: bytes | memoryview) -> bytes:
    return hashlib.blake2b(page, digest_size=PAGE_DIGEST).digest()


class Writer:
    """Writes a snapshot beside its name: nothing is there under the name before `finish`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        if not path.is_absolute():
            raise Refused(f"{path} is no absolute path")
        if path.exists():
            raise Refused(f"{path} exists already")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = self._try(lambda: os.open(self._partial, flags, 0o600))
        self._at = HEAD_SIZE
        self._parts: list[snapshot_pb2.Part] = []
        self._digest = hashlib.sha256()

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
        if not self._parts or self._parts[-1].kind != Part.PAGES:
            self._close_frames()
            if gap := -self._at % PAGE:
                self._parts.append(Part(kind=Part.GAP, size=gap, digest=hashlib.sha256(bytes(gap)).digest()))
                self._at += gap
            self._parts.append(Part(kind=Part.PAGES))
        for at in range(0, PAGE, BLOCK):
            block = page[at : at + BLOCK]
            if block != ZEROES[:BLOCK]:
                self._write(block, self._at + at)
        part = self._parts[-1]
        part.size += PAGE
        part.addresses.append(address)
        part.hashes += page_digest(page)
        self._at += PAGE
        return True

    def finish(self, snapshot: snapshot_pb2.Snapshot) -> None:
        """Sync the file to the disk, then give it its name."""
        self._close_frames()
        snapshot.bytes_per_page = PAGE
        snapshot.parts.extend(self._parts)
        trailer = snapshot.SerializeToString()
        self._write(trailer, self._at)
        head = HEAD.pack(MAGIC, VERSION, 0, self._at, len(trailer), hashlib.sha256(trailer).digest())
        head = head.ljust(HEAD_SIZE - DIGEST, b"\0")
        self._write(head + hashlib.sha256(head).digest(), 0)
        self._try(lambda: os.fsync(self._fd))
        self._try(lambda: os.rename(self._partial, self.path))
        with contextlib.ExitStack() as stack:
            folder = self._try(lambda: os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY))
            stack.callback(os.close, folder)
            self._try(lambda: os.fsync(folder))

    def close(self) -> None:
        os.close(self._fd)
        with contextlib.suppress(FileNotFoundError):
            self._partial.unlink()

    def withdraw(self) -> None:
        """Remove the finished file: the session did not leave after all, and must not be resumed from it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def _frame(self, answer: int, head: bytes, payload: bytes | memoryview) -> None:
        if not self._parts or self._parts[-1].kind != Part.FRAMES:
            self._parts.append(Part(kind=Part.FRAMES))
            self._digest = hashlib.sha256()
        for data in (ANSWER.pack(answer) + head, payload):
            self._digest.update(data)
            self._write(data, self._at)
            self._at += len(data)
            self._parts[-1].size += len(data)

    def _close_frames(self) -> None:
        if self._parts and self._parts[-1].kind == Part.FRAMES:
            self._parts[-1].digest = self._digest.digest()

    def _write(self, data: bytes | memoryview, at: int) -> None:
        view = memoryview(data)
        while view:
            written = self._try(lambda rest=view, to=at: os.pwrite(self._fd, rest, to))  # type: ignore[misc]
            view, at = view[written:], at + written

    def _try(self, do: Callable[[], Result]) -> Result:
        try:
            return do()
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}") from None


class Reader:
    """An open snapshot whose description was checked. The rest is checked by `check`. Raises
    SnapshotError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SnapshotError(f"cannot read {path}: {error.strerror}") from None
        try:
            self._size = os.fstat(self._fd).st_size
            self.snapshot = self._trailer()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
            raise SnapshotError(f"{self.path} is no snapshot of a session")
        if len(head) < HEAD_SIZE:
            raise self._damaged("it is cut short")
        version = HEAD.unpack_from(head)[1]
        if hashlib.sha256(head[:-DIGEST]).digest() != head[-DIGEST:]:
            raise self._damaged("its head does not have its checksum")
        if version != VERSION:
            raise SnapshotError(f"{self.path} has format version {version}; this gpuferry reads {VERSION}")
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
        data = bytearray()
        while len(data) < size:
            try:
                piece = os.pread(self._fd, size - len(data), at + len(data))
            except OSError as error:
                raise SnapshotError(f"cannot read {self.path}: {error.strerror}") from None
            if not piece:
                raise self._damaged("it is cut short")
            data += piece
        return bytes(data)

    def _damaged(self, what: str) -> SnapshotError:
        return SnapshotError(f"{self.path} is damaged: {what}")
