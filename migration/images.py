"""What an image (WIRE.md 7) is made of: PTX texts and ELF files, out of fatbin containers and link sets."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import lz4.block
import zstandard
from gpuferry.specs._generated.frames import LINK_SET_MAGIC, LinkSet

from .errors import Refused

ELF = b"\x7fELF"
CONTAINER_MAGIC = 0xBA55ED50
KIND_PTX, KIND_ELF = 1, 2
FLAG_LZ4, FLAG_ZSTD = 0x2000, 0x8000
LARGEST = 256 << 20  # bytes that an image may expand to, beyond its own
WINDOW = 1 << 27  # bytes that zstd may look back

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, header, bytes of all entries
_ENTRY = struct.Struct("<H2xIQI4xHHI8xQ8xQ")  # kind, header, stored, compressed, ISA, target, flags, whole
_LINK_SET = LinkSet.LAYOUT


class _Room:
    """How many bytes an image may still expand to: its parts may overlap, and each says its own size."""

    def __init__(self, image: bytes) -> None:
        self.left = len(image) + LARGEST

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise _unreadable(f"an image that expands by more than {LARGEST >> 20} MiB")


def parts(image: bytes) -> Iterator[bytes]:
    """Every PTX text and ELF file in an image. Raises Refused if it cannot be read, or expands by more
    than 256 MiB.
    """
    magic = int.from_bytes(image[:4], "little")
    if magic == LINK_SET_MAGIC:
        yield from _link_set(image)
    elif magic == CONTAINER_MAGIC:
        yield from _container(image, 0, _Room(image))
    else:
        yield image


def _link_set(image: bytes) -> Iterator[bytes]:
    _, count = _unpack(_LINK_SET, image, 0)
    room = _Room(image)
    for i in range(count):
        at = int.from_bytes(image[_LINK_SET.size + 8 * i : _LINK_SET.size + 8 * i + 8], "little")
        yield from _container(image, at, room)


def _container(image: bytes, begin: int, room: _Room) -> Iterator[bytes]:
    magic, _, head, size = _unpack(_CONTAINER, image, begin)
    at, end = begin + head, begin + head + size
    if magic != CONTAINER_MAGIC or end > len(image):
        raise _unreadable("a fatbin that is cut short")
    while at < end:
        kind, header, stored, compressed, _, _, _, flags, whole = _unpack(_ENTRY, image, at)
        start = at + header
        if header < _ENTRY.size or start + stored > end or compressed > stored:
            raise _unreadable("a fatbin whose entries do not fit")
        if kind not in (KIND_PTX, KIND_ELF):
            raise _unreadable(f"a fatbin entry of kind {kind}")
        part = _expand(image[start : start + (compressed or stored)], flags, whole, room.left)
        room.take(len(part))
        yield part
        at = start + stored


def _expand(data: bytes, flags: int, whole: int, most: int) -> bytes:
    if flags & FLAG_LZ4:
        return _lz4(data, whole, most)
    if flags & FLAG_ZSTD:
        with zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(data) as reader:
            try:
                return bytes(reader.read(most + 1))
            except zstandard.ZstdError as error:
                raise _unreadable(f"a fatbin entry that zstd cannot expand ({error})") from None
    return data


def _lz4(data: bytes, whole: int, most: int) -> bytes:
    """A raw block does not tell its size, and what the entry tells need not be all."""
    most = min(255 * len(data) + 64, most + 1)
    room = min(max(whole, 4096), most)
    while True:
        try:
            return bytes(lz4.block.decompress(data, uncompressed_size=room))
        except lz4.block.LZ4BlockError:
            if room == most:
                raise _unreadable("a fatbin entry that LZ4 cannot expand") from None
            room = min(4 * room, most)


def _unpack(layout: struct.Struct, image: bytes, at: int) -> tuple[int, ...]:
    if len(image) - at < layout.size:
        raise _unreadable("an image that is cut short")
    return layout.unpack_from(image, at)


def _unreadable(what: str) -> Refused:
    return Refused(f"the variables of its code cannot be listed: {what}")
