"""From an image's bytes to the PTX texts that fit the device."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from . import device_runtime, fatbin, objects
from .errors import INVALID_IMAGE, INVALID_PTX, NO_BINARY_FOR_GPU, UNSUPPORTED_PTX_VERSION, ImageError

NEWEST_ISA = 95
LINKED_MAGIC = b"GFSIMLNK"
DEEPEST = 8  # what was linked may be linked again; each is read as often as it is deep
MOST_KINDS = 20  # that a message names
KINDS = {
    fatbin.KIND_PTX: "PTX",
    fatbin.KIND_MACHINE_CODE: "machine code",
    fatbin.KIND_LTO_IR: "LTO-IR (which NVIDIA's compiler alone reads)",
}

_LINKED = struct.Struct("<8sQIII4x")  # magic, size, inputs, what it was linked for, most registers
_INPUT = struct.Struct("<QI4x")  # size, length of the name
_BLANK = re.compile(rb"\s*")
_VERSION = re.compile(rb"\.version\s+(\d+)\.(\d+)(?=\s)")
_TARGET = re.compile(rb"\.target\s+sm_(\d+)([af]?)\b")


@dataclass(frozen=True)
class Source:
    """A PTX text and what its input was called; an image that was never linked has no names."""

    name: str
    text: bytes
    optional: bool = False  # of a library: joined only if it defines what is missing


_DEVICE_RUNTIME = [
    Source("the device runtime", text.encode(), optional=True) for text in device_runtime.TEXTS
]


def sources(image: bytes, cc: int) -> list[Source]:
    """The PTX texts that together make the module, for a device of that capability."""
    return _of_part(image, cc, "", fatbin.Room(), 0)


def _of_part(image: bytes, cc: int, name: str, room: fatbin.Room, depth: int) -> list[Source]:
    if image.startswith(LINKED_MAGIC):
        return list(_of_linked(image, cc, room, depth))
    if fatbin.is_container(image):
        return [Source(name, text) for text in _from_containers(image, cc, room)] + _DEVICE_RUNTIME
    if image.startswith(objects.ELF):
        return [
            Source(name, text)
            for each in objects.containers(image)
            for text in _from_containers(each, cc, room)
        ]
    if objects.is_library(image):
        return list(_of_library(image, cc, name, room))
    text = image.split(b"\0", 1)[0]
    room.take(len(text))
    isa, target, variant = _head(text)
    _check_isa(isa)
    if not _fits(target, variant, cc):
        raise ImageError(INVALID_PTX, f"the PTX is for sm_{target}{variant}, the device is sm_{cc}")
    return [Source(name, text)]


def machine_code(image: bytes, cc: int, room: fatbin.Room) -> bytes | None:
    """The cubin that NVIDIA's driver would choose of the image, before any PTX; None: there is none."""
    if image.startswith(objects.ELF):
        return image
    at = 0
    while fatbin.is_container(image, at):
        found = [each for each in fatbin.entries(image, at) if _runs(each, cc)]
        if found:
            return max(found, key=lambda each: each.target).contents(room)
        at += fatbin.container_size(image, at)
    return None


def _runs(entry: fatbin.Entry, cc: int) -> bool:
    """Machine code runs on its own capability and on later ones of the same generation."""
    if entry.kind != fatbin.KIND_MACHINE_CODE or entry.target > cc or entry.target // 10 != cc // 10:
        return False
    return entry.target == cc or not entry.flags & fatbin.EXACT


def most_registers(image: bytes) -> int:
    """Return the most registers per thread that the linker of this image allowed; 0: no limit."""
    linked = image.startswith(LINKED_MAGIC) and len(image) >= _LINKED.size
    return int(_LINKED.unpack_from(image)[4]) if linked else 0


def _of_linked(image: bytes, cc: int, room: fatbin.Room, depth: int) -> Iterator[Source]:
    if depth == DEEPEST:
        raise ImageError(INVALID_IMAGE, f"more than {DEEPEST} linked images, each in the next")
    if len(image) < _LINKED.size:
        raise ImageError(INVALID_IMAGE, "the linked image is cut short")
    _, _, count, target, _ = _LINKED.unpack_from(image)
    if count == 0:
        raise ImageError(INVALID_IMAGE, "nothing was linked")
    if target > cc or target // 10 != cc // 10:
        raise ImageError(NO_BINARY_FOR_GPU, f"the image was linked for sm_{target}, the device is sm_{cc}")
    at = _LINKED.size
    for _ in range(count):
        if len(image) - at < _INPUT.size:
            raise ImageError(INVALID_IMAGE, "the linked image is cut short")
        size, length = _INPUT.unpack_from(image, at)
        start = at + _INPUT.size + _padded(length)
        if start > len(image) or size > len(image) - start:
            raise ImageError(INVALID_IMAGE, "the linked image is cut short")
        name = image[at + _INPUT.size : at + _INPUT.size + length].decode("utf-8", "replace")
        yield from _of_part(image[start : start + size], target, name, room, depth + 1)
        at = start + _padded(size)


def _of_library(image: bytes, cc: int, name: str, room: fatbin.Room) -> Iterator[Source]:
    """What there is no PTX of cannot be joined; whether it is needed shows at the end."""
    for each in objects.containers(image):
        try:
            for text in _from_containers(each, cc, room):
                yield Source(name, text, optional=True)
        except ImageError as error:
            if error.status != NO_BINARY_FOR_GPU:
                raise
    yield from _DEVICE_RUNTIME


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _from_containers(image: bytes, cc: int, room: fatbin.Room) -> list[bytes]:
    """The best PTX of each container that has any: a wrapper of -rdc=true code yields one for each file that
    was compiled, and they are linked.
    """
    kinds: set[str] = set()
    texts = []
    at = 0
    while at < len(image):
        text = _best(list(fatbin.entries(image, at)), cc, kinds, room)
        if text is not None:
            texts.append(text)
        at += fatbin.container_size(image, at)
    if not texts:
        held = ", ".join(sorted(kinds)[:MOST_KINDS]) or "nothing"
        raise ImageError(NO_BINARY_FOR_GPU, f"the fatbin holds {held}, but no PTX for sm_{cc} or lower")
    return texts


def _best(found: list[fatbin.Entry], cc: int, kinds: set[str], room: fatbin.Room) -> bytes | None:
    newer = 0
    for entry in sorted(found, key=lambda each: each.target, reverse=True):
        name = f"sm_{entry.target}"
        kinds.add(f"{KINDS.get(entry.kind, 'something else')} for {name}")
        if entry.kind != fatbin.KIND_PTX or entry.target > cc:
            continue
        text = entry.text(room)
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
    version = _VERSION.match(text, _behind_blanks(text, 0))
    target = _TARGET.match(text, _behind_blanks(text, version.end())) if version else None
    numbers = [version[1], version[2], target[1]] if version and target else []
    if target is None or version is None or max(map(len, numbers)) > 4:
        raise ImageError(INVALID_PTX, "the PTX does not begin with .version and .target")
    return int(version[1]) * 10 + int(version[2]), int(target[1]), target[2].decode()


def _behind_blanks(text: bytes, at: int) -> int:
    """Where white space and comments end; one that is not closed does not."""
    while True:
        at = _BLANK.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if text.startswith(b"//", at):
            at = text.find(b"\n", at)
        elif text.startswith(b"/*", at):
            at = text.find(b"*/", at + 2) + 2
        else:
            return at
        if at < 2:
            return len(text)


def _fits(target: int, variant: str, cc: int) -> bool:
    if variant == "a":
        return target == cc
    if variant == "f":  # a family: its own major version
        return target <= cc and target // 10 == cc // 10
    return target <= cc


def _check_isa(isa: int) -> None:
    if isa > NEWEST_ISA:
        raise ImageError(
            UNSUPPORTED_PTX_VERSION,
            f"Unsupported .version {isa // 10}.{isa % 10}; "
            f"current version is '{NEWEST_ISA // 10}.{NEWEST_ISA % 10}'",
        )
