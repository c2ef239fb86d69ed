"""The tables' instructions, each a form: on registers that hold anything, wherever lanes have parted."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import partial

import numpy as np

from . import test_compare, test_convert, test_float, test_integer, test_mixed, test_packed, test_video
from .form import Form, Names, Scene, Words
from .formats import FORMATS
from .table import Row, Value, pack, unpack

# Two of these in a row are fused (test_contraction.py), and the tables have each alone.
_FUSED = re.compile(r"(add|sub|mul|fma)(\.ftz|\.sat)*\.(f\d+|bf16)")
_TABLES = (test_compare, test_convert, test_float, test_integer, test_mixed, test_packed, test_video)
# Floats as near to one another that rounding shows: what of a word is kept, and what is set.
_NEAR = {
    "f16": (0x8FFF, 0x3000),
    "bf16": (0x83FF, 0x3C00),
    "f32": (0x83FFFFFF, 0x3C000000),
    "f64": (0x807FFFFF_FFFFFFFF, 0x3F800000_00000000),
}
_SCOPE = """{
    .reg .pred %p, %q, %past; .reg .b32 %t0, %t1, %t2, %t3, %t4; .reg .b64 %x0, %x1, %x2;
    .reg .b16 %h0, %h1, %h2; .reg .f32 %f0, %f1, %f2;"""


def _bits(type_: str) -> int:
    return 32 if type_ in ("pred", "f16x2", "bf16x2") else int(type_.lstrip("subfe"))


def _register(type_: str) -> str:
    return type_ if type_ in ("f32", "f64") else f"b{max(_bits(type_), 16)}"


def _constants(row: Row, index: int, choices: random.Random) -> list[int]:
    """Two of those that an operand may be."""
    type_ = row.sources[index]
    chosen: Sequence[Value] = [choices.choice(list(row.inputs[index])) for _ in "ab"]
    return [int(each) for each in pack(type_, chosen)]


def _load(row: Row, index: int, words: Sequence[str], choices: random.Random) -> str:
    type_, name = row.sources[index], f"%{'abc'[index]}"
    bits = _bits(type_)
    if row.inputs:
        first, second = _constants(row, index, choices)
        width = max(bits, 16)
        lines = f"and.b32 %t0, {words[0]}, 1; setp.ne.u32 %q, %t0, 0;"
        if type_ in ("f32", "f64"):
            short = "t1" if bits == 32 else "x0"
            lines += f" selp.b{bits} %{short}, {first}, {second}, %q; mov.b{bits} {name}, %{short};"
        else:
            lines += f" selp.b{width} {name}, {first}, {second}, %q;"
    elif bits == 64:
        keep, put = _NEAR.get(type_, (0, 0)) if choices.random() < 0.5 else (0, 0)
        lines = f"mov.b64 %x0, {{{words[0]}, {words[1]}}};"
        if put:
            lines += f" and.b64 %x0, %x0, {keep}; or.b64 %x0, %x0, {put};"
        lines += f" mov.b64 {name}, %x0;"
    else:
        keep, put = _NEAR.get(type_, (0, 0)) if choices.random() < 0.5 else (0, 0)
        lines = f"mov.b32 %t0, {words[0]};"
        if put:
            lines += f" and.b32 %t0, %t0, {keep}; or.b32 %t0, %t0, {put};"
        lines += f" mov.b32 {name}, %t0;" if bits == 32 else f" cvt.u16.u32 {name}, %t0;"
    if bits == 8:
        lines += f" cvt.{type_[0]}16.{type_} {name}, {name};"
    return lines


def _source(row: Row, index: int, words: Sequence[Words], choices: random.Random) -> list[Value]:
    """What _load gives."""
    type_ = row.sources[index]
    bits = _bits(type_)
    if row.inputs:
        first, second = _constants(row, index, choices)
        codes = np.where(words[0] & 1, np.uint64(first), np.uint64(second))
    else:
        keep, put = _NEAR.get(type_, (0, 0)) if choices.random() < 0.5 else (0, 0)
        codes = words[0].astype(np.uint64)
        if bits == 64:
            codes |= words[1].astype(np.uint64) << np.uint64(32)
        if put:
            codes = codes & np.uint64(keep) | np.uint64(put)
    return unpack(type_, codes & np.uint64((1 << bits) - 1))


def _store(row: Row, to: Sequence[str]) -> str:
    """The result, of floats the one NaN: the instructions that move bits leave any."""
    type_ = row.destination
    bits = _bits(type_)
    if type_ == "pred":
        return f"selp.u32 {to[0]}, 1, 0, %p;"
    lines = f"mov.b64 {{{to[0]}, {to[1]}}}, %d;" if bits == 64 else ""
    if bits == 32:
        lines = f"mov.b32 {to[0]}, %d;"
    elif bits < 32:
        lines = f"cvt.u32.u{bits} {to[0]}, %d;"
    if type_ in FORMATS:
        f = FORMATS[type_]
        most, infinity = (1 << bits - 1) - 1, f.encode(float("inf"))
        if bits == 64:
            lines = (
                f"mov.b64 %x0, %d; and.b64 %x1, %x0, {most}; setp.gt.u64 %q, %x1, {infinity};"
                f" selp.b64 %x0, {most}, %x0, %q; mov.b64 {{{to[0]}, {to[1]}}}, %x0;"
            )
        else:
            lines += (
                f" and.b32 %t0, {to[0]}, {most}; setp.gt.u32 %q, %t0, {infinity};"
                f" selp.b32 {to[0]}, {most}, {to[0]}, %q;"
            )
    return lines


def _words(type_: str) -> int:
    return 2 if _bits(type_) == 64 else 1


def _code(row: Row, names: Names) -> str:
    choices = names.choices
    given = list(names.a)
    lines = [_SCOPE, f".reg .{_register(row.destination)} %d;"]
    for x, type_ in zip("abc", row.sources, strict=False):
        lines.append(f".reg .{_register(type_)} %{x};")
    for index, type_ in enumerate(row.sources):
        count = _words(type_)
        lines.append(_load(row, index, given[:count], choices))
        del given[:count]
    sources = ", ".join(f"%{letter}" for letter in "abc"[: len(row.sources)])
    to = "%p" if row.destination == "pred" else "%d"
    lines.append(row.code or f"{row.name} {to}, {sources};")
    lines.append(_store(row, names.d))
    return "\n    ".join([*lines, "}"])


def _value(row: Row, scene: Scene, *words: Words) -> list[Words]:
    choices = scene.choices
    given = [each[scene.here] for each in words]
    columns = []
    for index, type_ in enumerate(row.sources):
        count = _words(type_)
        columns.append(_source(row, index, given[:count], choices))
        del given[:count]
    values = [row.reference(*case) for case in zip(*columns, strict=True)]
    codes = pack(row.destination, values).astype(np.uint64)
    results = []
    for index in range(_words(row.destination)):
        result = scene.nothing()
        result[scene.here] = codes >> np.uint64(32 * index) & np.uint64(0xFFFFFFFF)
        results.append(result)
    return results


def _fits(row: Row) -> bool:
    exact = not row.max_ulps and row.signed_zero
    return exact and not _FUSED.fullmatch(row.name) and "%tid" not in row.code


def forms() -> list[Form]:
    rows = {row.kernel: row for table in _TABLES for row in table.TABLE.rows if _fits(row)}
    return [
        Form(
            name,
            "thread",
            _words(row.destination),
            sum(_words(type_) for type_ in row.sources),
            partial(_code, row),
            partial(_value, row),
        )
        for name, row in rows.items()
    ]
