"""Arithmetic of what is packed: two half words or four bytes of integers, two floats."""

from __future__ import annotations

from collections.abc import Callable

from ..model import Instruction, Operand
from ..types import B32, F32, TYPES, Type
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
    sign, t = _element(kind)

    def part(a: str, b: str) -> str:
        if saturate:
            return e.intrinsic(f"llvm.{sign}{i.opcode}.sat.{t}", t, f"{t} {a}", f"{t} {b}")
        return e.op(f"{i.opcode} {t} {a}, {b}")

    _each(e, t, part, e.operands(3))


@opcode("neg", of="packed")
def neg(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    _, t = _element(m.type())
    _each(e, t, lambda a: e.op(f"sub {t} 0, {a}"), e.operands(2))


@opcode("min", "max", of="packed")
def minmax(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    if kind.name == "f32x2":
        raise e.fail("not for .f32x2")
    sign, t = _element(kind)
    relu = m.flag("relu")
    if relu and sign != "s":
        raise e.fail(".relu is for signed numbers")

    def part(a: str, b: str) -> str:
        value = e.intrinsic(f"llvm.{sign}{i.opcode}.{t}", t, f"{t} {a}", f"{t} {b}")
        return e.intrinsic(f"llvm.smax.{t}", t, f"{t} {value}", f"{t} 0") if relu else value

    _each(e, t, part, e.operands(3))


def _element(kind: Type) -> tuple[str, str]:
    """The sign of a packed type's numbers, and LLVM's type of one."""
    return kind.name[0], f"i{kind.name[1:].partition('x')[0]}"


def _each(e: FunctionEmitter, t: str, part: Callable[..., str], operands: list[Operand]) -> None:
    """The destination's word of what is made of the numbers that lie side by side in the other operands."""
    d, *sources = operands
    words = [e.read(each, B32) for each in sources]
    result = "0"
    for shift in range(0, 32, int(t[1:])):
        value = part(*(e.op(f"trunc i32 {e.op(f'lshr i32 {word}, {shift}')} to {t}") for word in words))
        wide = e.op(f"zext {t} {value} to i32")
        result = e.op(f"or i32 {result}, {e.op(f'shl i32 {wide}, {shift}')}")
    e.write_bits(d, 32, result)


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
