"""Dot products of bytes and half words: dp4a and dp2a."""

from __future__ import annotations

from ..model import Instruction
from ..types import B32, Type
from .function import FunctionEmitter
from .integer import integer_type
from .modifiers import Modifiers
from .registry import opcode


def _lane(e: FunctionEmitter, kind: Type, word: str, bits: int, index: int) -> str:
    """Lane `index` of a word, extended to 32 bits."""
    narrow = e.op(f"trunc i32 {e.op(f'lshr i32 {word}, {bits * index}')} to i{bits}")
    return e.op(f"{'sext' if kind.signed else 'zext'} i{bits} {narrow} to i32")


@opcode("dp4a", "dp2a")
def dot(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    a_type, b_type = integer_type(e, m, 32), integer_type(e, m, 32)
    half = m.need("lo", "hi") if i.opcode == "dp2a" else "lo"
    d, x, y, z = e.operands(4)
    a, b, total = (e.read(each, B32) for each in (x, y, z))
    lanes, bits = (4, 8) if i.opcode == "dp4a" else (2, 16)
    first = 2 if half == "hi" else 0
    for index in range(lanes):
        left, right = _lane(e, a_type, a, bits, index), _lane(e, b_type, b, 8, first + index)
        total = e.op(f"add i32 {total}, {e.op(f'mul i32 {left}, {right}')}")
    e.write(d, B32, total)
