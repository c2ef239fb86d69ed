"""Framing and handshake as a release has them: what may not change within one version of the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .frames import Extension, Frames, Struct
from .model import Where


@dataclass(frozen=True)
class Line:
    """One constant, enumerator, frame, extension or struct, and all of it that travels."""

    name: str
    layout: str
    where: Where


def _members(struct: Struct | None) -> str:
    members = struct.members if struct else ()
    return ",".join(f"{m.name}:{m.type}" + (f"[{m.count}]" if m.count > 1 else "") for m in members)


def _content(extension: Extension) -> str:
    if extension.struct:
        return f"({_members(extension.struct)})"
    return f"{extension.size} bytes" if extension.size is not None else "any bytes"


def _lines(frames: Frames) -> Iterator[tuple[str, str, Where]]:
    for constant in frames.constants:
        yield f"constant {constant.name}", str(constant.value), constant.where
    for choice in frames.enums:
        for entry in choice.entries:
            yield f"{choice.name} {entry.name}", str(entry.value), entry.where
    for frame in frames.frames:
        text = f"{frame.op:#06x} from {frame.sender.value} ({_members(frame.struct)})"
        yield f"frame {frame.name}", text, frame.where
    for extension in frames.extensions:
        yield f"extension {extension.name}", f"{extension.kind} {_content(extension)}", extension.where
    for struct in frames.plain:
        yield f"struct {struct.name}", f"({_members(struct)})", struct.where


def lines(frames: Frames) -> dict[str, Line]:
    """The lines of framing and handshake by name, in the order of frames.yaml."""
    return {name: Line(name, f"{name} {text}", where) for name, text, where in _lines(frames)}


def named(layout: str) -> str:
    """The name of the thing that a line is about, with which it begins."""
    return " ".join(layout.split(" ", 2)[:2])
