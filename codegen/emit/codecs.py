"""Codecs of the types that nest: the guest's half, which sends, and the server's, which takes in and answers.

Made for the types that operations carry, and for those that `used` in types.yaml names: code written by hand
calls them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..basics import SpecError
from ..codec import BEHIND_POINTER, in_reply, is_list, pointee
from ..expression import saturating
from ..model import Arg, Spec, Variant
from ..nesting import Kind, Member, Nesting, OptionList, Struct
from ..render import render
from .guest_objects import struct

TYPES = "specs/cuda/types.yaml"


@dataclass(frozen=True)
class Handles:
    """Handles of one C type, and what translates them."""

    of: tuple[str, ...]
    ctype: str

    @property
    def name(self) -> str:
        return "_or_".join(self.of)


def operations(spec: Spec) -> list[Variant]:
    return [v for library in spec.libraries for v in library.variants if v.on_wire]


def closure(nesting: Nesting, names: set[str]) -> set[str]:
    """These structs with all structs that they contain or point to."""
    found: set[str] = set()
    left = sorted(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += nesting.behind(name)
    return found


@dataclass(frozen=True)
class Needed:
    """The types whose codecs are made: all structs, those of them that are answered, and option lists."""

    structs: tuple[str, ...]
    answered: tuple[str, ...]
    options: tuple[str, ...]


def needed(spec: Spec) -> Needed:
    """The types that operations carry, and those that code written by hand asks for."""
    nesting = spec.types.nesting
    args = [a for v in operations(spec) for a in v.args if a.kind in BEHIND_POINTER]

    def structs(args: list[Arg]) -> set[str]:
        return {nesting.name(pointee(a)) for a in args if nesting.find(pointee(a))}

    lists = {pointee(a) for v in operations(spec) for a in v.args if is_list(a)}
    carried = structs(args) | {name for name in nesting.used if name in nesting.structs}
    answered = structs([a for a in args if in_reply(a)])
    return Needed(
        tuple(sorted(closure(nesting, carried))),
        tuple(sorted(closure(nesting, answered))),
        tuple(n for n in nesting.options if n in lists or n in nesting.used),
    )


class Text:
    """What the templates ask of the types, as C text."""

    def __init__(self, spec: Spec, needed: Needed) -> None:
        self.types = spec.types
        self.nesting = spec.types.nesting
        self.structs: list[Struct] = [self.nesting.structs[name] for name in needed.structs]
        self.options: list[OptionList] = [self.nesting.options[name] for name in needed.options]
        self.arrays = self._arrays([a for v in operations(spec) for a in v.args if a.kind in BEHIND_POINTER])

    def _arrays(self, args: list[Arg]) -> list[Handles]:
        """Handles that come in arrays, as arguments or behind members."""
        ctypes = {pointee(a) for a in args if a.count is not None or a.nullable}
        ctypes |= {m.element for s in self.structs for m in self.walk(s) if m.kind is Kind.ARRAY}
        handles = self.types.handles
        names = {self.types.aliases.get(c, c) for c in ctypes}
        return [Handles((handles[name],), name) for name in sorted(names) if name in handles]

    def walk(self, struct: Struct) -> list[Member]:
        return list(self.nesting.walk(struct.members))

    @property
    def wires(self) -> list[Handles]:
        """Every translation of a handle that the guest's half calls."""
        found = {h.name: h for h in self.arrays}
        for one in self.structs:
            for m in self.walk(one):
                if m.kind is Kind.HANDLE:
                    found.setdefault("_or_".join(m.of), Handles(m.of, m.ctype))
        return [found[name] for name in sorted(found)]

    def uses(self, kind: str) -> bool:
        return any(m.kind.value == kind for s in self.structs for m in self.walk(s))

    def has(self, struct: Struct, kind: str) -> bool:
        """Whether the struct itself, not one within it, has such a member."""

        def within(members: tuple[Member, ...]) -> bool:
            return any(
                m.kind.value == kind
                or within(m.members or (self.nesting.cases(m) if m.kind is Kind.UNION else ()))
                for m in members
                if not m.opaque
            )

        return within(struct.members)

    def is_element(self, struct: Struct) -> bool:
        """Whether the type is the element of an array behind a pointer."""
        return any(
            m.kind is Kind.ARRAY and self.nesting.name(m.element) == struct.name
            for s in self.structs
            for m in self.walk(s)
        )

    def dropped(self, struct: Struct) -> tuple[str, tuple[str, ...]] | None:
        """The tag, and its values with which an element of an array has no effect and is left out."""
        for member in struct.members:
            drops = self.nesting.drops(member)
            if drops:
                return member.tag, drops
        return None

    def counted(self, struct: Struct) -> list[Member]:
        """Arrays of which fewer elements may travel than there are: their number is written last."""
        found = []
        for member in self.walk(struct):
            element = self.nesting.find(member.element) if member.kind is Kind.ARRAY else None
            if element is None or self.dropped(element) is None:
                continue
            if member not in struct.members or member.count not in [m.name for m in struct.members]:
                cause = (
                    f"member {member.name!r}: elements are dropped, and their number is no member beside it"
                )
                raise SpecError(member.where, cause, "Count it by a member of the same struct")
            found.append(member)
        return found

    def in_order(self, members: tuple[Member, ...]) -> list[Member]:
        """The members in the order of cuda.h; a kernel's parameters last, since the kernel says how many
        there are.
        """
        return sorted(members, key=lambda m: m.kind is Kind.PARAMS)

    def number(self, text: str, way: str) -> str:
        return saturating(text, lambda name: f"(uint64_t)v->{way}{name}")

    def bits(self, names: tuple[str, ...]) -> str:
        return " | ".join(names) or "0"

    def kinds(self, of: tuple[str, ...]) -> str:
        return " | ".join(f"1u << GF_HANDLE_{name.upper()}" for name in of)

    def access(self, member: Member) -> str:
        return member.access.value.upper() if member.access else "READWRITE"

    def element(self, member: Member) -> str:
        return self.nesting.name(member.element)

    def function(self, member: Member, way: str) -> str:
        """The kernel whose parameters they are: the first member that is not null."""
        *first, last = (f"v->{way}{name}" for name in member.function)
        choices = "".join(f"{name} != NULL ? (CUfunction){name} : " for name in first)
        return f"{choices}(CUfunction){last}"

    def appended(self, member: Member, way: str) -> str:
        """The guest's call that sends what an array member leads to."""
        value, count = f"v->{way}{member.name}", self.number(member.count or "1", way)
        element = self.element(member)
        if self.nesting.find(element):
            struct = self.nesting.structs[element]
            kept = f", &kept_{member.name}" if self.dropped(struct) else ""
            return f"append_{element}({value}, {count}, behind{kept})"
        if element in self.types.handles:
            return f"gf_append_{self.types.handles[element]}(behind, {value}, {count}, false)"
        return f"gf_append_plain(behind, {value}, {count}, sizeof *{value}, false)"

    def taken(self, member: Member, way: str) -> str:
        """The server's call that takes in what an array member leads to."""
        count, element = self.number(member.count or "1", way), self.element(member)
        if self.nesting.find(element):
            return f"take_{element}(d, {count}, &found)"
        if element in self.types.handles:
            return f"gf_take_{self.types.handles[element]}(d, {count}, false, &found)"
        return f"gf_decoder_copy(d, {count}, sizeof *found, 0, (void **)&found)"


def indented(text: str) -> str:
    """C text indented by its braces: the parts of a template do not know where they will stand."""
    lines = []
    depth, single = 0, False
    for line in text.splitlines():
        bare = line.strip()
        depth -= bare.startswith("}")
        label = bare.startswith(("case ", "default:"))
        lines.append("    " * (depth + single - label) + bare if bare else "")
        depth += bare.count("{") - bare.count("}") + bare.startswith("}")
        single = bare.startswith(("if (", "for (")) and bare.endswith(")")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def codecs(spec: Spec, needed: Needed) -> dict[str, str]:
    """The generated files with both halves for these types, by path."""
    text = Text(spec, needed)
    asked = "has is_element dropped counted in_order number bits kinds access element function appended taken"
    values = {name: getattr(text, name) for name in (*asked.split(), "uses")}
    values |= {"nesting": text.nesting, "structs": text.structs, "options": text.options}
    values |= {"handles": text.arrays, "wires": text.wires, "answered": needed.answered}
    values |= {"objects": spec.objects, "struct": struct}

    def made(template: str, comment: tuple[str, str] = ("/* ", " */")) -> str:
        found = render(template, __file__, TYPES, comment, **values)
        return indented(found) if template.endswith(".c.j2") else found

    return {
        "guest/_generated/codecs.h": made("guest_codecs.h.j2"),
        "guest/_generated/codecs.c": made("guest_codecs.c.j2"),
        "guest/_generated/codec_hooks.c": made("guest_codec_hooks.c.j2"),
        "apiserver/_generated/codecs.h": made("server_codecs.h.j2"),
        "apiserver/_generated/codecs.c": made("server_codecs.c.j2"),
        "apiserver/_generated/codecs.pxi": made("server_codecs.pxi.j2", ("# ", "")),
    }


def outputs(spec: Spec) -> dict[str, str]:
    return codecs(spec, needed(spec))
