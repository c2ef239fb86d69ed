"""How Python's module `struct` writes the types of the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

FORMATS = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "u64": "Q",
    "i64": "q",
    "f32": "f",
    "f64": "d",
}


class Typed(Protocol):
    """A field of a packed struct."""

    @property
    def type(self) -> str: ...
    @property
    def count(self) -> int: ...


def is_bytes(field: Typed) -> bool:
    """Whether Python has the field as one bytes object."""
    return field.type == "char" or (field.type == "u8" and field.count > 1)


def field_format(field: Typed) -> str:
    """The format of one field, an array included."""
    if is_bytes(field):
        return f"{field.count}s"
    return (str(field.count) if field.count > 1 else "") + FORMATS[field.type]


def layout(fields: Iterable[Typed]) -> str:
    """The format of a packed, little-endian struct."""
    return "<" + "".join(map(field_format, fields))
