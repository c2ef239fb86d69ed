"""Calls of every carried function, made from the spec: one that may succeed, and others with something wrong.

A case is a symbol, what is wrong, and a token for each argument, of which `objects.py` makes a value. No
function is named here but in the tables of what does not follow from the kinds of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from codegen.load import load
from codegen.model import Arg, Class, Kind, Spec, Use, Variant

Token = list[Any]  # its kind, and what that takes

LARGE = {"size_t": 2**64 - 1, "unsigned int": 2**32 - 1, "int": 2**31 - 1}
NOBODY = 0x7FFFFF00  # no enumerator of any enum
NULL: Token = ["value", 0]
# Values of which a call does something, where 1 is none; by the argument's name.
VALUES = {
    "ElementSizeBytes": 4,
    "Height": 1,
    "bytes": 16,
    "count": 16,
    "cudaVersion": 12000,
    "dstPitch": 64,
    "dynamicSMemSize": 0,
    "len": 64,
    "numJitOptions": 0,
    "numLibraryOptions": 0,
    "numOptions": 0,
    "offset": 0,
    "priority": 0,
    "sharedMemBytes": 0,
    "value": 0,
    "flags": 0,
    "syncMode": 0,
}
# A larger value would make the call read more of the program's memory than there is.
COUNTS = re.compile(
    r"num[A-Z]\w*|count|size|length|len|ByteCount|bytesize|N|Width\w*|Height|.*Pitch|.*Offset"
)
# Memory ends by it.
FREES = re.compile(r"cuMemFree")
# An address may be one of the program's own memory.
EITHER = re.compile(r"cuMemcpy(Async)?")
# Who waits for a value that nobody writes, waits for ever.
ENDLESS = re.compile(r"cuStreamWaitValue")


@dataclass(frozen=True)
class Case:
    """One call."""

    symbol: str
    wrong: str
    args: list[Token]
    needs: str
    captured: list[int]  # the places of streams
    ends: list[int]  # the places of handles that end by it


def cases(spec: Spec | None = None) -> list[dict[str, Any]]:
    """All of them, function by function."""
    spec = spec or load()
    return [asdict(case) for variant in carried(spec) for case in of(spec, variant)]


def carried(spec: Spec) -> list[Variant]:
    """What is more than a name."""
    return [v for v in spec.driver.variants if v.klass is not Class.UNSUPPORTED and not v.alias]


def of(spec: Spec, variant: Variant) -> Iterator[Case]:
    right = [valid(variant, arg) for arg in variant.args]
    streams = [i for i, arg in enumerate(variant.args) if arg.param.ctype == "CUstream"]
    ends = [
        i
        for i, arg in enumerate(variant.args)
        if arg.use is Use.DESTROY or (FREES.match(variant.symbol) and arg.kind is Kind.POINTER)
    ]

    # Of an argument that is looked at first the call needs nothing.
    first = {each.condition.split()[0] for each in variant.ahead}

    def case(wrong: str, args: list[Token]) -> Case:
        needs = "none" if wrong.split(" ")[0] in first else variant.needs.value
        return Case(variant.symbol, wrong, args, needs, streams, ends)

    yield case("", right)
    for i, arg in enumerate(variant.args):
        for what, token in wrongs(spec, variant, arg):
            yield case(f"{arg.name} {what}", [*right[:i], token, *right[i + 1 :]])


def valid(variant: Variant, arg: Arg) -> Token:
    """A token with which the call may succeed."""
    ctype = arg.param.ctype
    if arg.kind is Kind.HANDLE and arg.use is not Use.CREATE:
        return ["handle", arg.of[0], "valid", variant.symbol]
    if arg.kind in (Kind.ENUM, Kind.FLAGS):
        return ["constant", arg.allow[0]] if arg.kind is Kind.ENUM and arg.allow else NULL
    if arg.kind in (Kind.DEVICE, Kind.IGNORED, Kind.OPTIONS):
        return NULL
    if arg.kind is Kind.POINTER or re.fullmatch(r"CUdeviceptr(_v1)?", ctype):
        return ["memory", 1024 if "src" in arg.name.lower() else 0]
    if ctype == "float":
        return ["float", 1.0]
    if arg.kind is Kind.SCALAR:
        return ["value", VALUES.get(arg.name, 1)]
    if arg.kind is Kind.STRING or ctype == "const char *":
        return ["text", "nothing"]
    if arg.kind is Kind.IMAGE:
        return ["image"]
    if arg.kind is Kind.PARAMS:
        return ["params"]
    if not ctype.endswith("*"):
        return ["other", ctype]
    return ["behind", arg.param.pointee]


def wrongs(spec: Spec, variant: Variant, arg: Arg) -> Iterator[tuple[str, Token]]:
    """Values of one argument that are wrong, or at the edge."""
    ctype = arg.param.ctype
    if arg.kind in (Kind.IGNORED, Kind.OPTIONS):
        return
    if arg.kind is Kind.HANDLE and arg.use is not Use.CREATE:
        yield "null", NULL
        yield "garbage", ["value", 0xDEADBEEF]
        yield "minus one", ["value", 2**64 - 1]
        for kind in arg.of:
            yield f"ended {kind}", ["handle", kind, "ended", variant.symbol]
        yield (
            "of another kind",
            ["handle", "event" if "event" not in arg.of else "stream", "valid", variant.symbol],
        )
        for kind in arg.of[1:]:
            yield kind, ["handle", kind, "valid", variant.symbol]
    elif arg.kind is Kind.ENUM:
        yield "unknown", ["value", NOBODY]
        yield "minus one", ["value", 2**32 - 1]
        enum = spec.types.nesting.enums.get(ctype)
        for name in arg.allow or ((*enum.allow, *enum.refuse) if enum else ()):
            yield name, ["constant", name]
        if not arg.allow and not (enum and enum.allow):
            yield from ((str(n), ["value", n]) for n in range(1, 12))
    elif arg.kind is Kind.FLAGS:
        yield "unknown", ["value", 0xDEADBEEF]
        yield from ((name, ["constant", name]) for name in arg.allow)
    elif arg.kind is Kind.DEVICE:
        yield "minus one", ["value", 2**32 - 1]
        yield "too large", ["value", 99]
    elif arg.kind is Kind.POINTER or re.fullmatch(r"CUdeviceptr(_v1)?", ctype):
        yield "null", NULL
        if not EITHER.fullmatch(variant.symbol):
            yield "unknown", ["value", 0x10000]
        yield "beyond", ["memory", 1 << 30]
        yield "within", ["memory", 1]
        yield "of the host", ["behind", "void"]
        yield "freed", ["freed"]
    elif arg.kind is Kind.SCALAR and ctype != "float":
        yield "zero", NULL
        if ctype in LARGE and not COUNTS.fullmatch(arg.name) and not ENDLESS.match(variant.symbol):
            yield "large", ["value", LARGE[ctype]]
        if ctype == "int":
            yield "negative", ["value", 2**32 - 1]
    elif arg.kind is Kind.STRING or ctype == "const char *":
        yield "null", NULL
        yield "empty", ["text", ""]
        yield "unknown", ["text", "nosuch"]
    elif arg.kind is Kind.IMAGE:
        yield "null", NULL
        yield "junk", ["text", "this is no image"]
        yield "empty", ["text", ""]
    elif ctype.endswith("*"):
        yield "null", NULL
        if arg.kind in (Kind.IN, Kind.INOUT, Kind.HOST):
            yield "zeros", ["behind", ""]
            if arg.param.pointee not in (*LARGE, "void *"):  # they would be counts, or pointers
                yield "ones", ["ones"]
    elif arg.kind is Kind.HOST:
        yield "null", NULL
