"""The codecs again, in Python and from the spec alone: values, how C has them, and how they travel."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from codegen.expression import names, saturating
from codegen.nesting import OUTSIDE, Kind, Member, Nesting, Place

# As tests/codegen/codec_probe.h has it.
BAD, LIMIT, DEVICES, PARAMS = 0xBAD, 1 << 20, 4, 3
SILENT = {Kind.ZERO, Kind.IGNORED, Kind.FUNCTION}
MASK = (1 << 64) - 1
# CUarray_format: bytes of a channel. Behind 0xC0 the format says how many channels there are.
CHANNEL = {0x01: 1, 0x02: 2, 0x03: 4, 0x08: 1, 0x09: 2, 0x0A: 4, 0x10: 2, 0x20: 4}
PACKED = [(channels, bytes) for _sign in range(2) for bytes in (1, 2) for channels in (1, 2, 4)]


def texel(format: int, channels: int) -> int:
    if 0 <= format - 0xC0 < len(PACKED):
        wanted, bytes = PACKED[format - 0xC0]
        return bytes * channels if channels == wanted else 0
    return CHANNEL.get(format, 0) * channels if channels in (1, 2, 4) else 0


SATURATING: dict[str, Any] = {
    "gf_texel_bytes": texel,
    "gf_plus": lambda a, b: min(a + b, MASK),
    "gf_minus": lambda a, b: max(a - b, 0),
    "gf_times": lambda a, b: min(a * b, MASK),
}

Value = dict[str, Any]


@dataclass
class Memory:
    """Memory of the program that must not go away before it was read."""

    kept: list[Any] = field(default_factory=list)

    def put(self, data: bytes) -> int:
        buffer = ctypes.create_string_buffer(data, len(data) + 1)
        self.kept.append(buffer)
        return ctypes.addressof(buffer)


asked_names = functools.cache(names)


@functools.cache
def compiled(text: str) -> Any:
    """A size or a count, of `found`, as it saturates."""
    return compile(saturating(text, lambda name: f"found[{name!r}]"), text, "eval")


class Reference:
    """All that is asked of the types; `value` says what an enumerator is worth.

    What follows from the spec alone is found once: thousands of values ask for it.
    """

    def __init__(self, nesting: Nesting, scalars: dict[str, str], value: Callable[[str], int]) -> None:
        self.nesting = nesting
        self.scalars = scalars
        self.value = functools.cache(value)
        self.size = functools.cache(nesting.size)
        self._strategies: dict[int, st.SearchStrategy[Value]] = {}  # by the identity of the spec's members
        self._places: dict[int, list[tuple[Member, Place]]] = {}

    def places(self, members: tuple[Member, ...]) -> list[tuple[Member, Place]]:
        found = self._places.get(id(members))
        if found is None:
            found = self._places[id(members)] = list(self.nesting.places(members))
        return found

    # Values.

    def values(self, name: str) -> st.SearchStrategy[Value]:
        return self.composite(self.nesting.structs[name].members)

    def composite(self, members: tuple[Member, ...]) -> st.SearchStrategy[Value]:
        found = self._strategies.get(id(members))
        if found is None:
            found = self._strategies[id(members)] = self._composite(members)
        return found

    def _composite(self, members: tuple[Member, ...]) -> st.SearchStrategy[Value]:
        sizes = {m.name for other in members for m in members if m.name in self.asked(other)}
        ones = {
            member.name: self.one(member, member.name in sizes)
            for member in members
            if member.kind not in SILENT | {Kind.UNION, Kind.ARRAY, Kind.POINTER, Kind.HOST}
        }

        @st.composite
        def made(draw: Any) -> Value:
            found: Value = {}
            for name, one in ones.items():
                found[name] = draw(one)
            for member in members:
                if member.kind is Kind.UNION:
                    found[member.name] = draw(self.case(member, found[member.tag]))
                elif member.kind in (Kind.ARRAY, Kind.HOST):
                    count = self.number(member.count or member.size or "1", found)
                    elements = self.several(member, count)
                    found[member.name] = draw(st.none() | elements if member.nullable else elements)
                elif member.kind is Kind.POINTER:
                    size = self.number(member.size or "1", found)
                    found[member.name] = draw(st.integers(0, LIMIT - 1 - size))
            return found

        return made()

    def several(self, member: Member, count: int) -> st.SearchStrategy[Any]:
        """What stands behind a pointer."""
        if member.kind is Kind.HOST:
            return st.binary(min_size=count, max_size=count)
        element = self.element(member)
        if element in self.nesting.structs:
            values: st.SearchStrategy[Any] = self.values(element)
        else:
            values = st.integers(0 if element in self.scalars else 16, 1 << 48)
        return st.lists(values, min_size=count, max_size=count)

    def asked(self, member: Member) -> set[str]:
        """The numbers on which a size or a count depends."""
        return {name for text in filter(None, (member.size, member.count)) for name in asked_names(text)}

    def one(self, member: Member, small: bool) -> st.SearchStrategy[Any]:
        single = self.single(member, small)
        if member.length > 1:
            return st.lists(single, min_size=member.length, max_size=member.length)
        return single

    def single(self, member: Member, small: bool) -> st.SearchStrategy[Any]:
        kind = member.kind
        if kind is Kind.ENUM:
            return st.sampled_from([self.value(name) for name in member.allow])
        if kind is Kind.FLAGS:
            bits = [self.value(name) for name in member.allow]
            return st.sets(st.sampled_from(bits)).map(sum) if bits else st.just(0)
        if kind is Kind.DEVICE:
            return st.integers(0, DEVICES - 1)
        if kind is Kind.HANDLE:
            handles = st.integers(1, 1 << 48).filter(lambda handle: handle != BAD)
            # A stream has a default; a function is needed by its parameters.
            return st.none() | handles if "stream" in member.of else handles
        if kind is Kind.PARAMS:
            return st.lists(st.binary(min_size=8, max_size=8), min_size=PARAMS, max_size=PARAMS)
        if kind is Kind.STRING:
            text = st.binary(max_size=member.max).map(lambda found: found.replace(b"\0", b"0"))
            return st.none() | text if member.nullable else text
        if kind is Kind.STRUCT:
            return self.composite(self.nesting.inner(member))
        size = self.size(member.ctype)
        signed = self.scalars[self.nesting.name(member.ctype)][0] == "i"
        low = -(1 << (8 * size - 1)) if signed else 0
        high = (1 << (8 * size - signed)) - 1
        low = low if member.min is None else max(low, member.min)
        high = min(high, 16 if small else high, high if member.max is None else member.max)
        return st.integers(max(low, 0) if small else low, high)

    def case(self, member: Member, tag: int) -> st.SearchStrategy[Any]:
        for case in self.nesting.cases(member):
            if tag in [self.value(name) for name in case.when] and case.kind not in SILENT | {Kind.REFUSED}:
                return st.tuples(st.just(case), self.single(case, False))
        return st.none()

    def number(self, text: str, found: Value) -> int:
        return int(eval(compiled(text), SATURATING | {"found": found}))

    def element(self, member: Member) -> str:
        return self.nesting.name(member.element)

    # Memory of the program, and the image with what follows it.

    def put(self, name: str, value: Value, memory: Memory | None) -> tuple[bytes, bytes]:
        """One struct: as the program has it if there is memory for what it leads to, else as it travels."""
        image = bytearray(self.size(name))
        behind = self.fill(image, 0, self.nesting.structs[name].members, value, memory)
        return bytes(image), behind

    def fill(
        self, image: bytearray, base: int, members: tuple[Member, ...], value: Value, memory: Memory | None
    ) -> bytes:
        behind, last = b"", b""
        for member, place in self.places(members):
            found = value.get(member.name)
            at = base + place.offset
            if member.kind is Kind.UNION:
                if found is not None:
                    behind += self.fill_one(image, at, found[0], found[1], memory)
            elif member.kind is Kind.ARRAY:
                behind += self.fill_array(image, at, member, found, memory)
            elif member.kind in (Kind.STRING, Kind.HOST):
                behind += self.fill_bytes(image, at, member, found, memory)
            elif member.kind is Kind.PARAMS:
                last += self.fill_params(image, at, found or [], memory)
            elif member.kind is not Kind.IGNORED or memory is None:
                behind += self.fill_one(image, at, member, found, memory)
            else:
                image[at : at + place.size] = b"\xa5" * place.size
        if memory is None:
            self.recount(image, base, members, value)
        elif any(m.kind is Kind.PARAMS for m in members):
            self.clear_extra(image, base, members)
        return behind + last

    def clear_extra(self, image: bytearray, base: int, members: tuple[Member, ...]) -> None:
        """Parameters are given in one way only."""
        extra = next(m.extra for m in members if m.kind is Kind.PARAMS)
        place = next(p for m, p in self.places(members) if m.name == extra)
        image[base + place.offset : base + place.offset + 8] = bytes(8)

    def recount(self, image: bytearray, base: int, members: tuple[Member, ...], value: Value) -> None:
        for member in members:
            if member.kind is Kind.ARRAY and value[member.name] is not None:
                for counter, place in self.places(members):
                    if counter.name == member.count and self.element(member) in self.nesting.structs:
                        kept = len(self.kept(self.element(member), value[member.name]))
                        image[base + place.offset : base + place.offset + place.size] = kept.to_bytes(
                            place.size, "little"
                        )

    def kept(self, name: str, elements: list[Any]) -> list[Any]:
        """The elements that travel: some have no effect."""
        if name not in self.nesting.structs:
            return elements
        for member in self.nesting.structs[name].members:
            drops = [self.value(drop) for drop in self.nesting.drops(member)]
            if drops:
                return [e for e in elements if e[member.tag] not in drops]
        return elements

    def fill_one(self, image: bytearray, at: int, member: Member, found: Any, memory: Memory | None) -> bytes:
        size = self.size(member.ctype) if member.ctype else 0
        if member.kind in SILENT:
            return b""
        if member.length > 1:
            for i, single in enumerate(found):
                self.set(image, at + i * size, size, member, single, memory)
            return b""
        if member.kind is Kind.STRUCT:
            return self.fill(image, at, self.nesting.inner(member), found, memory)
        self.set(image, at, size, member, found, memory)
        return b""

    def set(
        self, image: bytearray, at: int, size: int, member: Member, found: Any, memory: Memory | None
    ) -> None:
        number = found or 0
        if member.kind is Kind.HANDLE and memory is None:
            number = ~number & MASK
        image[at : at + size] = (number & ((1 << (8 * size)) - 1)).to_bytes(size, "little")

    def fill_bytes(
        self, image: bytearray, at: int, member: Member, found: bytes | None, memory: Memory | None
    ) -> bytes:
        """A text or bytes: its address, or what the image says of it."""
        if found is None:
            return b""
        there = len(found) + 1 if member.kind is Kind.STRING else 1
        image[at : at + 8] = (memory.put(found) if memory else there).to_bytes(8, "little")
        return b"" if memory else found

    def fill_array(
        self, image: bytearray, at: int, member: Member, found: list[Any] | None, memory: Memory | None
    ) -> bytes:
        if not found:
            return b""
        name = self.element(member)
        if name not in self.nesting.structs:
            coded = memory is None and name not in self.scalars
            data = b"".join((~one & MASK if coded else one).to_bytes(8, "little") for one in found)
            image[at : at + 8] = (memory.put(data) if memory else 1).to_bytes(8, "little")
            return b"" if memory else data
        if memory is not None:
            pointer = memory.put(b"".join(self.put(name, one, memory)[0] for one in found))
            image[at : at + 8] = pointer.to_bytes(8, "little")
            return b""
        image[at : at + 8] = (1).to_bytes(8, "little")
        parts = [self.put(name, one, None) for one in self.kept(name, found)]
        return b"".join(p[0] for p in parts) + b"".join(p[1] for p in parts)

    def fill_params(self, image: bytearray, at: int, found: list[bytes], memory: Memory | None) -> bytes:
        if memory is None:
            joined = b"".join(found)
            return len(joined).to_bytes(8, "little") + joined
        pointers = b"".join(memory.put(one).to_bytes(8, "little") for one in found)
        image[at : at + 8] = memory.put(pointers).to_bytes(8, "little")
        return b""

    # What the server made of it.

    def expected(self, name: str, value: Value) -> Value:
        """The value as it arrives."""
        found = dict(value)
        for member in self.nesting.structs[name].members:
            if member.kind is Kind.ARRAY and value[member.name] is not None:
                element = self.element(member)
                elements = self.kept(element, value[member.name])
                if element in self.nesting.structs:
                    elements = [self.expected(element, e) for e in elements]
                found[member.name] = elements or None
                if member.count in found:
                    found[member.count] = len(elements)
        return found

    def get(self, name: str, address: int) -> Value:
        return self.read(self.nesting.structs[name].members, address)

    def read(self, members: tuple[Member, ...], address: int) -> Value:
        found: Value = {}
        for member, place in self.places(members):
            if member.kind not in SILENT | {Kind.UNION, Kind.PARAMS} | OUTSIDE:
                found[member.name] = self.read_one(member, address + place.offset)
        for member, place in self.places(members):
            at = address + place.offset
            if member.kind is Kind.UNION:
                found[member.name] = self.read_case(member, found[member.tag], at)
            elif member.kind is Kind.ARRAY:
                found[member.name] = self.read_array(member, found, self.integer(at, 8, False))
            elif member.kind in (Kind.STRING, Kind.HOST):
                pointer = self.integer(at, 8, False)
                size = self.number(member.size, found) if member.size else -1
                found[member.name] = ctypes.string_at(pointer, size) if pointer else None
            elif member.kind is Kind.PARAMS:
                extra = next(p for m, p in self.places(members) if m.name == member.extra)
                found[member.name] = self.read_params(self.integer(address + extra.offset, 8, False))
        return found

    def read_array(self, member: Member, found: Value, pointer: int) -> list[Any] | None:
        name = self.element(member)
        size = self.size(name)
        places = [
            pointer + i * size for i in range(self.number(member.count or "1", found) if pointer else 0)
        ]
        if name in self.nesting.structs:
            return [self.get(name, place) for place in places] or None
        return [self.integer(place, size, False) for place in places] or None

    def read_params(self, extra: int) -> list[bytes]:
        """{CU_LAUNCH_PARAM_BUFFER_POINTER, bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END}"""
        one, data, two, size, end = (self.integer(extra + 8 * i, 8, False) for i in range(5))
        assert (one, two, end) == (1, 2, 0)
        joined = ctypes.string_at(data, self.integer(size, 8, False))
        return [joined[i : i + 8] for i in range(0, len(joined), 8)]

    def read_case(self, member: Member, tag: int, address: int) -> Any:
        for case in self.nesting.cases(member):
            if tag in [self.value(name) for name in case.when] and case.kind not in SILENT | {Kind.REFUSED}:
                return case, self.read_one(case, address)
        return None

    def read_one(self, member: Member, address: int) -> Any:
        if member.kind is Kind.STRUCT:
            return self.read(self.nesting.inner(member), address)
        size = self.size(member.ctype)
        signed = self.scalars.get(self.nesting.name(member.ctype), "u")[0] == "i"
        numbers = [self.integer(address + i * size, size, signed) for i in range(member.length)]
        if member.kind is Kind.HANDLE:
            return numbers[0] or None
        return numbers if member.length > 1 else numbers[0]

    def integer(self, address: int, size: int, signed: bool) -> int:
        return int.from_bytes(ctypes.string_at(address, size), "little", signed=signed)
