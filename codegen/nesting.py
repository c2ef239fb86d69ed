"""Types that nest, as frozen values: structs, unions with their tag, option lists; and how C lays them out.

A type travels as the image of its C struct, in which a pointer is replaced by whether it is there (a string's
by its length + 1), a handle by its wire id, and what does not travel by zero. What pointers lead to follows,
in the members' order (a kernel's parameters last), depth first. A type without pointers is flat: nothing
follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from .basics import Access, Where

POINTER_SIZE = 8


class Kind(Enum):
    """What a member means; `specs/README.md` explains each."""

    SCALAR = "scalar"
    ENUM = "enum"
    FLAGS = "flags"
    DEVICE = "device"
    POINTER = "pointer"
    HANDLE = "handle"
    STRING = "string"
    HOST = "host"
    ARRAY = "array"
    PARAMS = "params"
    STRUCT = "struct"
    UNION = "union"
    ZERO = "zero"
    IGNORED = "ignored"
    FUNCTION = "function"
    REFUSED = "refused"


# What is more than a value, as the text of a layout calls it.
FORMS = {
    Kind.DEVICE: "device",
    Kind.POINTER: "address",
    Kind.HANDLE: "handle",
    Kind.STRING: "string",
    Kind.HOST: "bytes",
    Kind.ARRAY: "array",
    Kind.PARAMS: "params",
    Kind.STRUCT: "struct",
    Kind.UNION: "union",
}
# What leads out of the image to bytes behind it.
OUTSIDE = {Kind.STRING, Kind.HOST, Kind.ARRAY, Kind.PARAMS}


@dataclass(frozen=True)
class EnumType:
    """An enum: the values that are carried, and those that CUDA knows and gpuferry does not carry."""

    name: str
    wire: str
    where: Where
    allow: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()


@dataclass(frozen=True)
class Member:
    """A member of a struct, or a case of a union.

    `ctype` is the header's, of one element where `length` is more than 1; empty for a struct or union that is
    defined in place, whose `members` these are.
    """

    name: str
    kind: Kind
    ctype: str
    where: Where
    length: int = 1
    allow: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    min: int | None = None
    max: int | None = None
    size: str | None = None
    access: Access | None = None
    nullable: bool = False
    of: tuple[str, ...] = ()
    count: str | None = None
    otherwise: str = "CUDA_ERROR_INVALID_VALUE"
    anonymous: bool = False
    members: tuple[Member, ...] = ()
    tag: str = ""
    when: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    extra: str = ""

    @property
    def opaque(self) -> bool:
        """Whether nobody looks into it, whatever members the header gives it."""
        return self.kind in (Kind.IGNORED, Kind.REFUSED)

    @property
    def element(self) -> str:
        """Type of an array's elements: the pointer's type without its star."""
        return self.ctype[:-1].strip().removeprefix("const ").strip()


@dataclass(frozen=True)
class Struct:
    """A struct of cuda.h by its name."""

    name: str
    members: tuple[Member, ...]
    where: Where


@dataclass(frozen=True)
class Union:
    """A union of cuda.h by its name. Which member holds depends on a tag that stands beside it."""

    name: str
    cases: tuple[Member, ...]
    where: Where
    drop: tuple[str, ...] = ()


class OptionKind(Enum):
    """What becomes of a just-in-time compiler's option."""

    VALUE = "value"  # a number, in the pointer itself: it travels
    LOCAL = "local"  # the program's memory: the guest answers it
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True)
class Option:
    """One option; a value is at most `max`."""

    name: str
    kind: OptionKind
    where: Where
    max: int | None = None


@dataclass(frozen=True)
class OptionList:
    """Options and their values in two arrays side by side, as the just-in-time compiler takes them.

    `max`: how many there may be.
    """

    name: str
    options: tuple[Option, ...]
    max: int
    where: Where


@dataclass(frozen=True)
class Place:
    """Offset and size of a member in its struct, in bytes."""

    offset: int
    size: int
    align: int


@dataclass(frozen=True)
class Nesting:
    """All types that nest, and the sizes of all that do not."""

    sizes: dict[str, int] = field(default_factory=dict)
    enums: dict[str, EnumType] = field(default_factory=dict)
    structs: dict[str, Struct] = field(default_factory=dict)
    unions: dict[str, Union] = field(default_factory=dict)
    options: dict[str, OptionList] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    opaque: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    where: dict[str, Where] = field(default_factory=dict)

    def name(self, ctype: str) -> str:
        """The name under which types.yaml defines a type; aliases are followed."""
        return self.aliases.get(ctype, ctype)

    def find(self, ctype: str) -> Struct | None:
        return self.structs.get(self.name(ctype))

    def size(self, ctype: str) -> int:
        """Bytes of one value of a C type on the machines that gpuferry runs on (LP64)."""
        return self._place(ctype).size

    def _place(self, ctype: str) -> Place:
        if ctype.endswith("*"):
            return Place(0, POINTER_SIZE, POINTER_SIZE)
        name = self.name(ctype)
        if name in self.structs:
            return self._all(self.structs[name].members, False)
        if name in self.unions:
            return self._all(self.unions[name].cases, True)
        size = self.sizes[name]
        return Place(0, size, size)

    def _one(self, member: Member) -> Place:
        if member.members:
            one = self._all(member.members, member.kind is Kind.UNION)
        else:
            one = self._place(member.ctype)
        return Place(0, one.size * member.length, one.align)

    def _all(self, members: tuple[Member, ...], overlay: bool) -> Place:
        end = max((p.offset + p.size for _, p in self.places(members, overlay)), default=0)
        align = max((p.align for _, p in self.places(members, overlay)), default=1)
        return Place(0, -(-end // align) * align, align)

    def places(self, members: tuple[Member, ...], overlay: bool = False) -> Iterator[tuple[Member, Place]]:
        """Every member with its place in what holds it; `overlay`: they share one, as in a union."""
        at = 0
        for member in members:
            one = self._one(member)
            at = 0 if overlay else -(-at // one.align) * one.align
            yield member, Place(at, one.size, one.align)
            at += one.size

    def cases(self, member: Member) -> tuple[Member, ...]:
        """The cases of a union, defined in place or by name."""
        return member.members or self.unions[self.name(member.ctype)].cases

    def drops(self, member: Member) -> tuple[str, ...]:
        """Values of a tag with which a whole element of an array has no effect."""
        if member.kind is not Kind.UNION:
            return ()
        return member.drop or (() if member.members else self.unions[self.name(member.ctype)].drop)

    def inner(self, member: Member) -> tuple[Member, ...]:
        """The members of a struct or union member."""
        if member.kind is Kind.UNION:
            return self.cases(member)
        if member.kind is Kind.STRUCT:
            return member.members or self.structs[self.name(member.ctype)].members
        return ()

    def walk(self, members: tuple[Member, ...]) -> Iterator[Member]:
        """Every member, also of what is embedded, but not of what is behind a pointer."""
        for member in members:
            yield member
            yield from self.walk(self.inner(member))

    def is_flat(self, name: str) -> bool:
        """Whether a struct travels as its image alone."""
        return not any(m.kind in OUTSIDE for m in self.walk(self.structs[self.name(name)].members))

    def behind(self, name: str) -> Iterator[str]:
        """Structs that a struct refers to, embedded or behind a pointer."""
        for member in self.structs[name].members:
            yield from self._behind(member)

    def _behind(self, member: Member) -> Iterator[str]:
        if member.opaque or member.kind is Kind.ZERO:
            return
        ctype = member.element if member.kind is Kind.ARRAY else member.ctype
        if self.name(ctype) in self.structs:
            yield self.name(ctype)
        cases = member.members
        if member.kind is Kind.UNION and not cases:
            cases = self.unions[self.name(ctype)].cases
        for inner in cases:
            yield from self._behind(inner)

    def layout(self, ctype: str) -> str:
        """The layout of a type as text, with all that it leads to: what two builds must agree on."""
        name = self.name(ctype)
        seen: dict[str, str] = {}
        self._layout(name, seen)
        return ";".join(f"{key}{{{text}}}" for key, text in sorted(seen.items()))

    def _layout(self, name: str, seen: dict[str, str]) -> None:
        if name in seen or name not in self.structs:
            return
        seen[name] = ""
        members = self.structs[name].members
        seen[name] = f"{self.size(name)}:{self._members(members, False)}"
        for other in self.behind(name):
            self._layout(other, seen)

    def _members(self, members: tuple[Member, ...], overlay: bool) -> str:
        parts = []
        for member, place in self.places(members, overlay):
            inner = member.members or (self.cases(member) if member.kind is Kind.UNION else ())
            text = f"{member.name}@{place.offset}+{place.size}:{FORMS.get(member.kind, 'value')}"
            if member.kind is Kind.ARRAY:
                text += f" {self.name(member.element)}[{member.count or 1}]"
            elif member.kind is Kind.STRUCT and not inner:
                text += f" {self.name(member.ctype)}"
            if inner and not member.opaque:
                text += f"({self._members(inner, member.kind is Kind.UNION)})"
            parts.append(text)
        return ",".join(parts)
