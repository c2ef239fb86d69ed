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
LZ4 = 0x2000
ZSTD = 0x8000
LONGEST_TEXT = 1 << 28

_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHI8xQ8xQ")  # kind … uncompressed size


@dataclass(frozen=True)
class Entry:
    kind: int
    isa: int  # 85 for PTX 8.5
    target: int  # 80 for sm_80
    flags: int
    payload: bytes
    text_size: int

    def text(self) -> bytes:
        """The PTX text, decompressed, without the NULs that follow it."""
        if self.flags & LZ4:
            raw = _lz4(self.payload, self.text_size)
        elif self.flags & ZSTD:
            raw = _zstd(self.payload)
        else:
            raw = self.payload
        return raw.split(b"\0", 1)[0]


def is_container(image: bytes) -> bool:
    return image[:4] == MAGIC.to_bytes(4, "little")


def container_size(image: bytes) -> int:
    """Bytes of the container at the start of `image`."""
    if len(image) < _CONTAINER.size:
        raise _damaged("is cut short")
    magic, _, header_size, size = _CONTAINER.unpack_from(image)
    if magic != MAGIC or header_size < _CONTAINER.size:
        raise _damaged("has no valid header")
    if header_size + size > len(image):
        raise _damaged("is cut short")
    return int(header_size + size)


def entries(container: bytes) -> Iterator[Entry]:
    end = container_size(container)
    at = _CONTAINER.unpack_from(container)[2]
    while at < end:
        if end - at < _ENTRY.size:
            raise _damaged("has an entry that is cut short")
        fields = _ENTRY.unpack_from(container, at)
        kind, _, header, stored, compressed, _, minor, major, target, flags, text_size = fields
        if header < _ENTRY.size or header + stored > end - at or compressed > stored:
            raise _damaged("has an entry of a wrong size")
        start = at + header
        payload = container[start : start + (compressed or stored)]
        yield Entry(kind, major * 10 + minor, target, flags, payload, text_size)
        at = start + stored


def _damaged(what: str) -> ImageError:
    return ImageError(INVALID_IMAGE, f"the fatbin {what}")


def _lz4(block: bytes, declared: int) -> bytes:
    """One raw block. The declared size is a hint: LZ4 expands at most 255 times."""
    limit = min(255 * len(block) + 64, LONGEST_TEXT)
    size = min(max(declared, 1024), limit)
    while True:
        try:
            return bytes(lz4.block.decompress(block, uncompressed_size=size))
        except lz4.block.LZ4BlockError:
            if size >= limit:
                raise _damaged("has an entry that LZ4 cannot expand") from None
            size = min(2 * size, limit)


def _zstd(frame: bytes) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(frame) as reader:
            text = bytes(reader.read(LONGEST_TEXT + 1))
    except zstandard.ZstdError as error:
        raise _damaged(f"has an entry that zstd cannot expand ({error})") from None
    if len(text) > LONGEST_TEXT:
        raise _damaged("has an entry that expands to more than 256 MiB")
    return text
