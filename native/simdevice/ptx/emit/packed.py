"""Arithmetic of packed pairs: two half words of integers, two floats."""

from __future__ import annotations

from ..model import Instruction
from ..types import B32, F32, TYPES
from . import numbers
from .floats import arithmetic
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode


@opcode("add", "sub", "mul", "fma", of="packed")
def add(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    if kind.name == "f32x2":
        _floats(e, i, m)
        return
    if i.opcode not in ("add", "sub"):
        raise e.fail(f"not for .{kind.name}")
    saturate = m.flag("sat")
    d, x, y = e.operands(3)
    columns = [_halves(e, e.read(each, B32)) for each in (x, y)]
    results = []
    for a, b in zip(*columns, strict=True):
        if saturate:
            name = f"llvm.{kind.name[0]}{i.opcode}.sat.i16"
            results.append(e.intrinsic(name, "i16", f"i16 {a}", f"i16 {b}"))
        else:
            results.append(e.op(f"{i.opcode} i16 {a}, {b}"))
    e.write_bits(d, 32, numbers.join_bits(e, *results))


def _halves(e: FunctionEmitter, word: str) -> tuple[str, str]:
    high = e.op(f"lshr i32 {word}, 16")
    return e.op(f"trunc i32 {word} to i16"), e.op(f"trunc i32 {high} to i16")


@opcode("min", "max", of="packed")
def minmax(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    if kind.name == "f32x2":
        raise e.fail("not for .f32x2")
    relu = m.flag("relu")
    if relu and kind.name != "s16x2":
        raise e.fail(".relu is for .s16x2")
    d, x, y = e.operands(3)
    columns = [_halves(e, e.read(each, B32)) for each in (x, y)]
    results = []
    for a, b in zip(*columns, strict=True):
        value = e.intrinsic(f"llvm.{kind.name[0]}{i.opcode}.i16", "i16", f"i16 {a}", f"i16 {b}")
        if relu:
            value = e.intrinsic("llvm.smax.i16", "i16", f"i16 {value}", "i16 0")
        results.append(value)
    e.write_bits(d, 32, numbers.join_bits(e, *results))


def _floats(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    mode, ftz = m.choice("rn", "rz", "rm", "rp") or "rn", m.flag("ftz")
    d, *sources = e.operands(4 if i.opcode == "fma" else 3)
    words = [e.read(each, TYPES["b64"]) for each in sources]
    result = "0"
    for shift in (0, 32):
        values = []
        for word in words:
            part = e.op(f"lshr i64 {word}, {shift}") if shift else word
            value = numbers.from_bits(e, F32, e.op(f"trunc i64 {part} to i32"))
            values.append(numbers.flush(e, F32, value) if ftz else value)
        value = arithmetic(e, i.opcode, F32, mode, *values)
        value = numbers.canonical(e, F32, numbers.flush(e, F32, value) if ftz else value)
        bits = e.op(f"zext i32 {numbers.bits_of(e, F32, value)} to i64")
        result = e.op(f"or i64 {result}, {e.op(f'shl i64 {bits}, {shift}')}")
    e.write_bits(d, 64, result)
