"""Values of arguments, from what the spec says of them: mostly such that a call succeeds."""

from __future__ import annotations

import functools
import re
from random import Random
from typing import Any

from codegen import nesting
from codegen.load import load
from codegen.model import Arg, Kind, Spec, Use, Variant
from tests.facts.matrix.cases import carried
from tests.facts.scope import constants
from tests.facts.show import toolkit

Token = Any
BLOCK = 65536  # bytes of an allocation
HOST = 1 << 17  # the program's memory below which tokens begin: as much lies behind it
# Numbers, by what the argument is called; the first that matches.
NUMBERS: tuple[tuple[str, tuple[int, ...]], ...] = (
    (r"bytesize|poolSize", (BLOCK, BLOCK, 1 << 20)),  # offsets lie within
    (r"block(Dim)?[XYZ]?|blockSize", (1, 1, 2, 32, 64, 100, 256, 0, 1025)),
    (r"grid(Dim|_width|_height)?[XYZ]?", (1, 1, 2, 3, 8, 0)),
    (r"sharedMem\w*|dynamicS\w+|numBytes", (0, 0, 64, 4096, 49152, 49153, 1 << 18)),
    (r"Height|height", (1, 4, 2, 16, 0)),
    (r"Depth|depth|numMipmapLevels|level|\w*Layers?", (1, 1, 2, 0)),
    (r"\w*Pitch|pitch", (64, 128, 256, 512, 60)),
    (r"Width\w*|width", (16, 64, 32, 4, 1, 0)),
    (r"\w*(count|Count|size|Size|len|length|bytes|Bytes|N)", (16, 64, 4, 256, 1024, 4096, 1, 0)),
    (r"\w*(offset|Offset|X|Y|Z|XInBytes)", (0, 0, 4, 16, 64)),
    (r"elementSize|ElementSizeBytes", (1, 2, 4, 8, 3)),
    (r"numChannels|NumChannels", (1, 2, 4, 3)),
    (r"usage|alignment|maxSize", (0, 0, 4096)),
    (r"\w*[Ff]lags?", (0, 0, 1, 2, 3, 4)),
)
ANY = (0, 1, 2, 3, 4, 7, 64, 255, 1024)
EDGES = (0, 1, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1)
# As a size these would have the driver read or write memory that the program does not have.
SIZES = re.compile(
    r"\w*(grid\w*|[Cc]ount|[Ss]ize|[Ll]en|[Ll]ength|[Bb]ytes|N|Pitch|Height|Depth|Width\w*|[Oo]ffset|num\w*|alignment)"
)
# But this is the size of what is made.
MADE = "bytesize"
TOO_LARGE = 2**64 - 1


@functools.cache
def spec() -> Spec:
    return load()


@functools.cache
def variants() -> dict[str, Variant]:
    return {variant.symbol: variant for variant in carried(spec())}


@functools.cache
def known() -> dict[str, int]:
    return constants(toolkit() / "include" / "cuda.h")


def constant(name: str) -> int:
    return known()[name]


@functools.cache
def enumerators(ctype: str) -> tuple[int, ...]:
    """What an enum of cuda.h may be, as far as the spec says."""
    enum = spec().types.nesting.enums.get(spec().types.nesting.name(ctype))
    names = (*enum.allow, *enum.allow, *enum.allow, *enum.refuse) if enum else ()
    return tuple(constant(name) for name in names) or tuple(range(12))


def size_of(ctype: str) -> int:
    """Bytes of a value; of what the spec knows nothing, those of an enum."""
    types = spec().types.nesting
    if found := types.find(ctype):
        return max(place.offset + place.size for _, place in types.places(found.members))
    if ctype.endswith("*"):
        return types.size(ctype)
    return types.sizes.get(types.name(ctype), 4)


class Names:
    """Variables of a program by the kind of what they hold; those that are taken to live."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.living: dict[str, list[str]] = {}
        self.number = 0

    def new(self, kind: str) -> str:
        name = f"{kind}{self.number}"
        self.number += 1
        self.living.setdefault(kind, []).append(name)
        return name

    def some(self, *kinds: str) -> str | int:
        """One of these kinds, or 0."""
        found = [name for kind in kinds for name in self.living.get(kind, ())]
        return self.random.choice(found[-6:]) if found else 0

    def ended(self, name: str) -> None:
        for names in self.living.values():
            if name in names:
                names.remove(name)


class Arguments:
    """Makes the tokens of one program."""

    def __init__(self, random: Random, devices: int = 1) -> None:
        self.random = random
        self.devices = devices
        self.names = Names(random)

    def device(self) -> int:
        """A device of the program's: mostly its first, number 0."""
        return 0 if self.devices == 1 else self.random.choice((0, 0, *range(self.devices)))

    def number(self, name: str) -> int:
        for pattern, numbers in NUMBERS:
            if re.fullmatch(pattern, name):
                return self.random.choice(numbers)
        return self.random.choice(ANY)

    def address(self, offset: int | None = None) -> Token:
        """Of device memory."""
        name = self.names.some("memory", "memory", "managed", "pinned", "mapped")
        if not name:
            return 0
        return ["at", name, self.random.choice((0, 0, 1024, 4096)) if offset is None else offset]

    def host(self) -> Token:
        return ["host", self.random.randrange(0, HOST, 4096)]

    def of(self, variant: Variant) -> tuple[list[Token], list[str]]:
        """All arguments of a call, and the variables whose objects it ends."""
        lists = {
            counted[1]: self.random.randrange(4)
            for arg in variant.args
            if (counted := re.fullmatch(r"(\w+)( \* \d+)?", arg.count or ""))
            or (counted := re.fullmatch(r"(\w+) \* \d+", arg.size or ""))
        }
        ends: list[str] = []
        return [self.one(variant, arg, lists, ends) for arg in variant.args], ends

    def one(self, variant: Variant, arg: Arg, lists: dict[str, int], ends: list[str]) -> Token:
        ctype = arg.param.ctype
        pointee = arg.param.pointee or ""
        handles = spec().types.handles
        if arg.nullable and self.random.random() < 0.3:
            return 0
        if arg.kind is Kind.HANDLE and arg.use is Use.CREATE:
            return self.created(arg.of[0], variant)
        if arg.kind is Kind.HANDLE:
            name = self.names.some(*arg.of)
            if arg.use is Use.DESTROY and isinstance(name, str):
                ends.append(name)
            return name
        if arg.name in lists:
            return lists[arg.name]
        if arg.kind is Kind.ENUM:
            if arg.allow:
                return constant(self.random.choice(arg.allow))
            return self.random.choice(enumerators(ctype))
        if arg.kind is Kind.FLAGS:
            return constant(self.random.choice(arg.allow)) if arg.allow and self.random.random() < 0.5 else 0
        if arg.kind is Kind.DEVICE:
            return self.device()
        if arg.kind in (Kind.IGNORED, Kind.OPTIONS):
            return 0
        if arg.kind is Kind.POINTER or re.fullmatch(r"CUdeviceptr", ctype):
            address = self.address()
            if re.match(r"cuMemFree", variant.symbol) and address:
                ends.append(address[1])
                return address[1]
            return address
        if ctype == "float":
            return self.random.choice((0.0, 1.0, 0.5))
        if arg.kind is Kind.SCALAR:
            return self.number(arg.name)
        if arg.kind is Kind.STRING or ctype == "const char *":
            return ["text", self.random.choice(("fill", "nothing", "word", "words", "bounded", "nosuch", ""))]
        if arg.kind is Kind.IMAGE:
            return ["image"]
        if arg.kind is Kind.PARAMS:
            return self.launched()
        if not ctype.endswith("*"):
            return self.other(ctype, variant)
        if arg.kind in (Kind.OUT,) or (arg.kind is Kind.HOST and pointee in ("void *",)):
            return self.out(pointee, arg, lists, variant)
        if pointee in ("void",):
            return self.host()
        if pointee in handles:
            return self.array([self.names.some(handles[pointee]) for _ in range(3)])
        if spec().types.nesting.find(pointee):
            return self.struct(pointee, show=arg.kind is Kind.INOUT)
        if arg.kind is Kind.INOUT:
            return ["mem", 8, [[0, 8, self.random.choice((0, 1, 2, 16))]], True]
        return ["mem", 4096, [], arg.kind is Kind.HOST]

    def created(self, kind: str, variant: Variant) -> Token:
        return ["out", 8, {"name": self.names.new(kind)}]

    def out(self, pointee: str, arg: Arg, lists: dict[str, int], variant: Variant) -> Token:
        handles = spec().types.handles
        if pointee == "char *":
            return ["told"]
        count = next((n for name, n in lists.items() if name in f"{arg.count} {arg.size}"), 1)
        if pointee in handles and count == 1 and not arg.count:
            return self.created(handles[pointee], variant)
        if pointee in ("CUdeviceptr", "void *") and re.match(r"cuMem\w*Alloc", variant.symbol):
            managed = "Managed" in variant.symbol
            host = "Host" in variant.symbol
            kind = "managed" if managed else "pinned" if host else "memory"
            return ["out", 8, {"name": self.names.new(kind), "size": 16}]
        if pointee == "void":
            return self.host()
        return ["out", size_of(pointee) * count, {} if pointee in handles else None]

    def array(self, tokens: list[Token]) -> Token:
        return ["mem", 8 * len(tokens), [[8 * i, 8, token] for i, token in enumerate(tokens)], False]

    def launched(self) -> Token:
        """Parameters, which are of the same kinds for all kernels."""
        return ["params", [[8, self.address()], [8, self.address()], [4, self.random.choice((9, 64))]]]

    def other(self, ctype: str, variant: Variant) -> Token:
        if ctype in ("CUhostFn",):
            return ["fn", self.random.randrange(100)]
        if ctype == "CUstreamCallback":
            return ["callback", self.random.randrange(100)]
        if ctype == "CUoccupancyB2DSize":
            return self.random.choice((0, ["b2d"]))
        return 0

    # Structs

    def struct(self, ctype: str, show: bool = False) -> Token:
        types = spec().types.nesting
        found = types.find(ctype)
        assert found
        parts: list[Any] = []
        self.members(found.members, 0, parts, {})
        return ["mem", types.size(ctype), parts, show]

    def members(
        self, members: tuple[nesting.Member, ...], base: int, parts: list[Any], values: dict[str, Any]
    ) -> None:
        types = spec().types.nesting
        for member, place in types.places(members):
            each = place.size // member.length
            for index in range(member.length):
                at = base + place.offset + index * each
                if member.kind is nesting.Kind.STRUCT or types.find(member.ctype):
                    self.members(
                        types.inner(member) or types.structs[types.name(member.ctype)].members, at, parts, {}
                    )
                    continue
                if member.kind is nesting.Kind.UNION:
                    self.case(member, at, parts, values)
                    continue
                values[member.name] = token = self.member(member, members, values)
                if token != 0:
                    parts.append([at, each, token])

    def case(self, union: nesting.Member, base: int, parts: list[Any], values: dict[str, Any]) -> None:
        """The case of a union that its tag selects."""
        types = spec().types.nesting
        for case in types.cases(union):
            if values.get(union.tag) in [constant(name) for name in case.when] and not case.opaque:
                self.members((case,), base, parts, {})

    def member(
        self, member: nesting.Member, members: tuple[nesting.Member, ...], values: dict[str, Any]
    ) -> Token:
        kind = member.kind
        if member.nullable and self.random.random() < 0.5:
            return 0
        if member.name in values:
            return values[member.name]
        if kind is nesting.Kind.ENUM:
            names = member.allow
            return (
                constant(self.random.choice(names))
                if names
                else self.random.choice(enumerators(member.ctype))
            )
        if kind is nesting.Kind.FLAGS:
            some = member.allow and self.random.random() < 0.4
            return constant(self.random.choice(member.allow)) if some else 0
        if kind is nesting.Kind.POINTER:
            return self.address()
        if kind is nesting.Kind.HANDLE:
            return self.names.some(*(member.of or (spec().types.handles[member.ctype],)))
        if kind is nesting.Kind.PARAMS:
            return self.launched()
        if kind is nesting.Kind.FUNCTION:
            return ["fn", self.random.randrange(100)]
        if kind is nesting.Kind.ARRAY:
            return self.elements(member, members, values)
        if kind is nesting.Kind.SCALAR:
            if member.ctype == "float":
                return self.random.choice((0.0, 1.0, 0.5))
            return self.number(member.name)
        return 0

    def elements(
        self, member: nesting.Member, members: tuple[nesting.Member, ...], values: dict[str, Any]
    ) -> Token:
        """An array behind a pointer, and how many elements it has."""
        types = spec().types.nesting
        count = self.random.choice((0, 1, 1, 2))
        if member.count:
            values[member.count] = count
        parts: list[Any] = []
        if not types.find(member.element):
            return 0
        size = types.size(member.element)
        for index in range(count):
            self.members(types.structs[types.name(member.element)].members, index * size, parts, {})
        return ["mem", size * max(count, 1), parts, False]
