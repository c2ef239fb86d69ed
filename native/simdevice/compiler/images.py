"""From an image's bytes to the PTX texts that fit the device."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from . import fatbin
from .errors import INVALID_IMAGE, INVALID_PTX, NO_BINARY_FOR_GPU, UNSUPPORTED_PTX_VERSION, ImageError

NEWEST_ISA = 95
LINKED_MAGIC = b"GFSIMLNK"

_LINKED = struct.Struct("<8sQII")
_SPACE = rb"(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*"
_HEAD = re.compile(_SPACE + rb"\.version\s+(\d+)\.(\d+)\s" + _SPACE + rb"\.target\s+sm_(\d+)([af]?)\b")


def texts(image: bytes, cc: int) -> list[bytes]:
    """The PTX texts that together make the module."""
    if image.startswith(LINKED_MAGIC):
        return [text for part in _linked_parts(image) for text in texts(part, cc)]
    if fatbin.is_container(image):
        return [_from_containers(image, cc)]
    text = image.split(b"\0", 1)[0]
    isa, target, variant = _head(text)
    _check_isa(isa)
    if not _fits(target, variant, cc):
        raise ImageError(INVALID_PTX, f"the PTX is for sm_{target}{variant}, the device is sm_{cc}")
    return [text]


def _linked_parts(image: bytes) -> Iterator[bytes]:
    at = _LINKED.size
    if len(image) < at:
        raise ImageError(INVALID_IMAGE, "the linked image is cut short")
    count = _LINKED.unpack_from(image)[2]
    if count == 0:
        raise ImageError(INVALID_IMAGE, "nothing was linked")
    for _ in range(count):
        if len(image) - at < 8:
            raise ImageError(INVALID_IMAGE, "the linked image is cut short")
        size = int.from_bytes(image[at : at + 8], "little")
        if size > len(image) - at - 8:
            raise ImageError(INVALID_IMAGE, "the linked image is cut short")
        yield image[at + 8 : at + 8 + size]
        at += 8 + -(-size // 8) * 8


def _from_containers(image: bytes, cc: int) -> bytes:
    """The best PTX of the first container that has any (a wrapper of -rdc=true code yields several)."""
    kinds: set[str] = set()
    while image:
        size = fatbin.container_size(image)
        found = list(fatbin.entries(image[:size]))
        text = _best(found, cc, kinds)
        if text is not None:
            return text
        image = image[size:]
    held = ", ".join(sorted(kinds)) or "nothing"
    raise ImageError(NO_BINARY_FOR_GPU, f"the fatbin holds {held}, but no PTX for sm_{cc} or lower")


def _best(found: list[fatbin.Entry], cc: int, kinds: set[str]) -> bytes | None:
    newer = 0
    for entry in sorted(found, key=lambda each: each.target, reverse=True):
        name = f"sm_{entry.target}"
        kinds.add(f"PTX for {name}" if entry.kind == fatbin.KIND_PTX else f"machine code for {name}")
        if entry.kind != fatbin.KIND_PTX or entry.target > cc:
            continue
        text = entry.text()
        isa, target, variant = _head(text)
        if not _fits(target, variant, cc):
            continue
        if isa > NEWEST_ISA:
            newer = max(newer, isa)
            continue
        return text
    if newer:
        _check_isa(newer)
    return None


def _head(text: bytes) -> tuple[int, int, str]:
    """(ISA, target, variant) as in (85, 90, "a")."""
    match = _HEAD.match(text)
    if match is None:
        raise ImageError(INVALID_PTX, "the PTX does not begin with .version and .target")
    return int(match[1]) * 10 + int(match[2]), int(match[3]), match[4].decode()


def _fits(target: int, variant: str, cc: int) -> bool:
    if variant == "a":
        return target == cc
    if variant == "f":  # a family: its own major version
        return target <= cc and target // 10 == cc // 10
    return target <= cc


def _check_isa(isa: int) -> None:
    if isa > NEWEST_ISA:
        newest = f"{NEWEST_ISA // 10}.{NEWEST_ISA % 10}"
        raise ImageError(UNSUPPORTED_PTX_VERSION, f"PTX ISA {isa // 10}.{isa % 10} is newer than {newest}")
