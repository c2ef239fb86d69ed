"""Fat binary containers: their entries, and the PTX text in one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import lz4.block
import zstandard

from .errors import INVALID_IMAGE, ImageError

MAGIC = 0xBA55ED50
KIND_PTX = 1
KIND_MACHINE_CODE = 2
KIND_LTO_IR = 8
LZ4 = 0x2000
ZSTD = 0x8000
EXACT = 0x100000  # machine code for sm_90a and the like: for that capability and no later one
WINDOW = 1 << 27  # bytes that zstd may look back

_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHI8xQ8xQ")  # kind … uncompressed size


class Room:
    """How many bytes of text the parts of one image may still have: they may lie on each other, and each
    that is compressed says its own size.
    """

    MOST = 64 << 20

    def __init__(self, most: int = MOST) -> None:
        self.most = self.left = most

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ImageError(
                INVALID_IMAGE, f"the image holds or expands to more than {self.most >> 20} MiB of text"
            )


@dataclass(frozen=True)
class Entry:
    kind: int
    isa: int  # 85 for PTX 8.5
    target: int  # 80 for sm_80
    flags: int
    payload: bytes
    text_size: int

    def text(self, room: Room) -> bytes:
        """The PTX text, without the NULs that follow it."""
        return self.contents(room).split(b"\0", 1)[0]

    def contents(self, room: Room) -> bytes:
        """The payload, decompressed."""
        if self.flags & LZ4:
            raw = _lz4(self.payload, self.text_size, room.left)
        elif self.flags & ZSTD:
            raw = _zstd(self.payload, room.left)
        else:
            raw = self.payload
        room.take(len(raw))
        return raw


def is_container(image: bytes, at: int = 0) -> bool:
    return image[at : at + 4] == MAGIC.to_bytes(4, "little")


def container_size(image: bytes, at: int = 0) -> int:
    """Bytes of the container that begins at `at`."""
    if len(image) - at < _CONTAINER.size:
        raise _damaged("is cut short")
    magic, _, header_size, size = _CONTAINER.unpack_from(image, at)
    if magic != MAGIC or header_size < _CONTAINER.size:
        raise _damaged("has no valid header")
    if header_size + size > len(image) - at:
        raise _damaged("is cut short")
    return int(header_size + size)


def entries(image: bytes, begin: int = 0) -> Iterator[Entry]:
    """Return the entries of the container that begins at an offset of the image."""
    end = begin + container_size(image, begin)
    at = begin + _CONTAINER.unpack_from(image, begin)[2]
    while at < end:
        if end - at < _ENTRY.size:
            raise _damaged("has an entry that is cut short")
        fields = _ENTRY.unpack_from(image, at)
        kind, _, header, stored, compressed, _, minor, major, target, flags, text_size = fields
        if header < _ENTRY.size or header + stored > end - at or compressed > stored:
            raise _damaged("has an entry of a wrong size")
        start = at + header
        payload = image[start : start + (compressed or stored)]
        yield Entry(kind, major * 10 + minor, target, flags, payload, text_size)
        at = start + stored


def _damaged(what: str) -> ImageError:
    return ImageError(INVALID_IMAGE, f"the fatbin {what}")


def _lz4(block: bytes, declared: int, most: int) -> bytes:
    """One raw block. The declared size is a hint: LZ4 expands at most 255 times."""
    limit = min(255 * len(block) + 64, most + 1)
    size = min(max(declared, 1024), limit)
    while True:
        try:
            return bytes(lz4.block.decompress(block, uncompressed_size=size))
        except lz4.block.LZ4BlockError:
            if size >= limit:
                raise _damaged(f"has an entry that LZ4 cannot expand into {most} bytes") from None
            size = min(2 * size, limit)


def _zstd(frame: bytes, most: int) -> bytes:
    try:
        with zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(frame) as reader:
            return bytes(reader.read(most + 1))
    except zstandard.ZstdError as error:
        raise _damaged(f"has an entry that zstd cannot expand ({error})") from None
