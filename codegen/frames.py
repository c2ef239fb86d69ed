"""The frames of `specs/gpuferry/frames.yaml`: framing, handshake, and the structs inside payloads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .document import Mapping, Value, read
from .load import SPECS
from .model import SpecError, Where
from .packing import is_bytes, layout
from .wire import WIRE_SIZES

FILE = "gpuferry/frames.yaml"
SHOWN = f"specs/{FILE}"
FIRST_OP = 0xFF01  # below are the operations of the specs
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}
SIZES = WIRE_SIZES | {"char": 1}
TYPE = re.compile(r"(?P<type>\w+)(?:\[(?P<count>\w+)\])?")


class Sender(Enum):
    """The side that sends a frame: guest or server."""

    GUEST = "guest"
    SERVER = "server"
    BOTH = "both"


class Content(Enum):
    """What the value of an extension is, if it is no struct."""

    BYTES = "bytes"
    TEXT = "text"
    U32 = "u32"


@dataclass(frozen=True)
class Constant:
    """A constant of the wire: a number, or a text."""

    name: str
    value: int | str
    doc: str
    where: Where


@dataclass(frozen=True)
class Member:
    """A field of a struct. `other` is a second reading of the same bytes: its name and type."""

    name: str
    type: str
    count: int
    count_name: str | None  # the constant that says it
    doc: str
    where: Where
    other: tuple[str, str] | None = None
    other_doc: str = ""

    @property
    def size(self) -> int:
        """How many bytes the field takes on the wire."""
        return SIZES[self.type] * self.count

    @property
    def is_bytes(self) -> bool:
        """Whether Python has the field as one bytes object."""
        return is_bytes(self)


@dataclass(frozen=True)
class Struct:
    """A packed struct; `then` says what follows it."""

    name: str
    members: tuple[Member, ...]
    doc: str
    then: str
    where: Where

    @property
    def size(self) -> int:
        """Size in bytes, without what follows."""
        return sum(member.size for member in self.members)

    @property
    def format(self) -> str:
        """The struct's format for Python's module `struct`."""
        return layout(self.members)

    @property
    def has_numbers(self) -> bool:
        """Whether a member is an array of numbers, which Python must cut out of the struct."""
        return any(member.count > 1 and not member.is_bytes for member in self.members)


@dataclass(frozen=True)
class Entry:
    """A named value of an enum."""

    name: str
    value: int
    doc: str
    where: Where


@dataclass(frozen=True)
class Choice:
    """An enum; in C its members carry the prefix."""

    name: str
    prefix: str
    entries: tuple[Entry, ...]
    doc: str


@dataclass(frozen=True)
class Frame:
    """One frame: its operation, and its struct if it has one."""

    name: str
    op: int
    sender: Sender
    struct: Struct | None
    doc: str
    then: str
    where: Where


@dataclass(frozen=True)
class Extension:
    """What may follow HELLO. `size` is in bytes; None: any."""

    name: str
    kind: int
    size: int | None
    struct: Struct | None
    doc: str
    where: Where


@dataclass(frozen=True)
class Frames:
    """The protocol version, constants, enums, frames, extensions and structs of frames.yaml."""

    version: int
    constants: tuple[Constant, ...]
    enums: tuple[Choice, ...]
    frames: tuple[Frame, ...]
    extensions: tuple[Extension, ...]
    plain: tuple[Struct, ...]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All enums, those of operations and extension kinds among them."""
        ops = tuple(Entry(f.name, f.op, f.doc, f.where) for f in self.frames)
        kinds = tuple(Entry(e.name, e.kind, e.doc, e.where) for e in self.extensions)
        return (
            Choice("frame", "OP", ops, "Operations of the handshake and of the stream."),
            *self.enums,
            Choice("extension", "EXTENSION", kinds, "What may follow HELLO."),
        )

    @property
    def structs(self) -> tuple[Struct, ...]:
        """All structs: those of no frame, of frames, of extensions."""
        of_frames = [f.struct for f in self.frames if f.struct]
        return (*self.plain, *of_frames, *(e.struct for e in self.extensions if e.struct))


def _text(keys: Mapping, name: str) -> str:
    value = keys.get(name)
    return value.text() if value else ""


def _named(value: Value) -> list[tuple[str, Value]]:
    return list(value.mapping().all())


def _amount(value: Value) -> int:
    """A number, or one with a unit: `64 KiB`."""
    words = str(value.node.value).split()
    if len(words) == 2 and words[0].isdigit() and words[1] in UNITS:
        return int(words[0]) * UNITS[words[1]]
    return value.integer()


def load_constant(name: str, value: Value) -> Constant:
    keys = value.mapping()
    number, text, doc = keys.get("value"), keys.get("text"), _text(keys, "doc")
    keys.done()
    if (number is None) == (text is None):
        raise keys.fail(f"constant {name!r} has not one value", "Give it either 'value' or 'text'")
    return Constant(name, _amount(number) if number else text.text() if text else "", doc, keys.where)


def load_member(name: str, value: Value, counts: dict[str, int]) -> Member:
    other, other_doc, doc = None, "", ""
    spelled = value
    if not value.is_word:
        keys = value.mapping()
        spelled, doc, other_doc = keys.need("type"), _text(keys, "doc"), _text(keys, "or_doc")
        if (second := keys.get("or")) is not None:
            ((other_name, other_type),) = _named(second)
            other = (other_name, _type(other_type, counts)[0])
        keys.done()
    kind, count, count_name = _type(spelled, counts)
    if other and SIZES[other[1]] != SIZES[kind] * count:
        raise spelled.fail(f"{other[0]!r} and {name!r} differ in size", "Choose types of one size")
    return Member(name, kind, count, count_name, doc, value.where, other, other_doc)


def _type(value: Value, counts: dict[str, int]) -> tuple[str, int, str | None]:
    match = TYPE.fullmatch(value.text())
    if not match:
        raise value.fail(f"{value.text()!r} is no type", "Write u32, or u8[32], or u8[NAME] with a constant")
    kind, count = match["type"], match["count"]
    if kind not in SIZES:
        raise value.unknown("type", kind, list(SIZES))
    if count is None:
        return kind, 1, None
    if count.isdigit():
        return kind, int(count), None
    if count not in counts:
        raise value.unknown("constant", count, list(counts))
    return kind, counts[count], count


def load_struct(
    name: str, keys: Mapping, fields: Value, doc: str, then: str, counts: dict[str, int]
) -> Struct:
    members = tuple(load_member(each, item, counts) for each, item in _named(fields))
    return Struct(name, members, doc, then, keys.where)


def load_plain(name: str, value: Value, counts: dict[str, int]) -> Struct:
    keys = value.mapping()
    doc, then = keys.need("doc").text(), _text(keys, "then")
    struct = load_struct(name, keys, keys.need("fields"), doc, then, counts)
    keys.done()
    return struct


def load_frame(name: str, value: Value, counts: dict[str, int]) -> Frame:
    keys = value.mapping()
    doc, then = keys.need("doc").text(), _text(keys, "then")
    fields, op = keys.get("fields"), keys.need("op")
    frame = Frame(
        name,
        op.integer(),
        keys.need("from").choice(Sender),
        load_struct(name.lower(), keys, fields, doc, then, counts) if fields else None,
        doc,
        then,
        keys.where,
    )
    keys.done()
    if frame.op < FIRST_OP or frame.op > 0xFFFF:
        raise op.fail(f"{frame.op:#06x} is an operation's number", f"Choose one from {FIRST_OP:#06x} on")
    return frame


def load_extension(name: str, value: Value, counts: dict[str, int]) -> Extension:
    keys = value.mapping()
    doc, fields, content = keys.need("doc").text(), keys.get("fields"), keys.get("value")
    kind = keys.need("kind").integer()
    keys.done()
    if (fields is None) == (content is None):
        raise keys.fail(f"extension {name!r} has not one content", "Give it either 'value' or 'fields'")
    if fields:
        struct = load_struct(name.lower(), keys, fields, doc, "", counts)
        return Extension(name, kind, struct.size, struct, doc, keys.where)
    assert content
    size = SIZES["u32"] if content.choice(Content) is Content.U32 else None
    return Extension(name, kind, size, None, doc, keys.where)


def load_choice(name: str, value: Value) -> Choice:
    keys = value.mapping()
    entries = []
    prefix, doc = keys.need("prefix").text(), keys.need("doc").text()
    for each, item in _named(keys.need("members")):
        member = item.mapping()
        entries.append(Entry(each, member.need("value").integer(), _text(member, "doc"), member.where))
        member.done()
    keys.done()
    return Choice(name, prefix, tuple(entries), doc)


def load(specs: Path = SPECS) -> Frames:
    """The frames, checked. Raises SpecError with the place and the remedy of a mistake."""
    keys = read(specs / FILE, SHOWN)
    constants = tuple(load_constant(name, item) for name, item in _named(keys.need("constants")))
    counts = {each.name: each.value for each in constants if isinstance(each.value, int)}
    found = Frames(
        keys.need("version").integer(),
        constants,
        tuple(load_choice(name, item) for name, item in _named(keys.need("enums"))),
        tuple(load_frame(name, item, counts) for name, item in _named(keys.need("frames"))),
        tuple(load_extension(name, item, counts) for name, item in _named(keys.need("extensions"))),
        tuple(load_plain(name, item, counts) for name, item in _named(keys.need("structs"))),
    )
    keys.done()
    _check(found)
    return found


def _check(found: Frames) -> None:
    for choice in found.choices:
        values: dict[int, Entry] = {}
        for entry in choice.entries:
            if (first := values.setdefault(entry.value, entry)) is not entry:
                raise _twice(entry.where, f"{entry.value:#x} is {first.name!r} already", first.where)
    names: dict[str, Struct] = {}
    for struct in found.structs:
        if (other := names.setdefault(struct.name, struct)) is not struct:
            raise _twice(struct.where, f"struct {struct.name!r} is there already", other.where)


def _twice(where: Where, cause: str, first: Where) -> SpecError:
    return SpecError(where, cause, f"Choose another; the first is on line {first.line}")
