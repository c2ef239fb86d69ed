"""Host objects and libraries of them: the fatbins that nvcc has put inside."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from . import fatbin
from .errors import INVALID_IMAGE, ImageError

ARCHIVE = b"!<arch>\n"
ELF = b"\x7fELF"

_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_LONGEST = max(map(len, _SECTIONS)) + 1
_MEMBER = struct.Struct("<16s12s6s6s8s10s2s")  # name … size, end
_HEADER = struct.Struct("<16s24xQ10xHHH")  # identity, section table, size of an entry, entries, their names
_SECTION = struct.Struct("<II16xQQ")  # name, kind, offset, size
_HOST_64 = b"\x7fELF\x02\x01"


def is_library(image: bytes) -> bool:
    return image.startswith(ARCHIVE)


def containers(image: bytes) -> Iterator[bytes]:
    """The fatbins of an object, or of all objects of a library."""
    if not is_library(image):
        yield from _of_object(image)
        return
    at = len(ARCHIVE)
    while len(image) - at >= _MEMBER.size:
        *_, size, end = _MEMBER.unpack_from(image, at)
        start = at + _MEMBER.size
        if end != b"`\n" or not size.strip().isdigit() or start + int(size) > len(image):
            raise _damaged("library")
        member = image[start : start + int(size)]
        if member.startswith(ELF):
            yield from _of_object(member)
        at = start + int(size) + int(size) % 2


def _of_object(image: bytes) -> Iterator[bytes]:
    if not image.startswith(_HOST_64) or len(image) < _HEADER.size:
        raise _damaged("object")
    _, table, entry, count, names_index = _HEADER.unpack_from(image)
    if entry < _SECTION.size or table + entry * count > len(image) or names_index >= count:
        raise _damaged("object")
    sections = [_SECTION.unpack_from(image, table + entry * i) for i in range(count)]
    names = _content(image, sections[names_index])
    for section in sections:
        if names[section[0] : section[0] + _LONGEST].split(b"\0", 1)[0] in _SECTIONS:
            yield from _split(_content(image, section))


def _content(image: bytes, section: tuple[int, ...]) -> bytes:
    _, _, offset, size = section
    if offset + size > len(image):
        raise _damaged("object")
    return image[offset : offset + size]


def _split(content: bytes) -> Iterator[bytes]:
    """One fatbin follows the other, at multiples of 8."""
    at = 0
    while fatbin.is_container(content, at):
        size = fatbin.container_size(content, at)
        yield content[at : at + size]
        at += -(-size // 8) * 8


def _damaged(what: str) -> ImageError:
    return ImageError(INVALID_IMAGE, f"the {what} is damaged, or none")
