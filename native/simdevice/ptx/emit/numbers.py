"""What float instructions share: flushing, canonical NaNs, saturation, bfloat, packing."""

from __future__ import annotations

from ..model import Operand, Register
from ..types import F16, F32, F64, Type
from .function import FunctionEmitter

# (exponent mask, sign mask, canonical NaN) of the bits
_LAYOUT = {16: (0x7C00, 0x8000, 0x7FFF), 32: (0x7F800000, 0x80000000, 0x7FFFFFFF)}

# The rounding modes as the helpers in fp_helpers.c number them (MXCSR's encoding).
MODES = {"rn": 0, "rm": 1, "rp": 2, "rz": 3}


def bits_of(e: FunctionEmitter, kind: Type, value: str) -> str:
    return e.op(f"bitcast {kind.llvm} {value} to {kind.integer}")


def from_bits(e: FunctionEmitter, kind: Type, bits: str) -> str:
    return e.op(f"bitcast {kind.integer} {bits} to {kind.llvm}")


def flush(e: FunctionEmitter, kind: Type, value: str) -> str:
    """Subnormals become zeros of the same sign."""
    exponent, sign, _ = _LAYOUT[kind.bits]
    t = kind.integer
    bits = bits_of(e, kind, value)
    small = e.op(f"icmp eq {t} {e.op(f'and {t} {bits}, {exponent}')}, 0")
    zero = e.op(f"and {t} {bits}, {sign}")
    return from_bits(e, kind, e.op(f"select i1 {small}, {t} {zero}, {t} {bits}"))


def canonical(e: FunctionEmitter, kind: Type, value: str) -> str:
    """PTX's own NaN, whatever NaN the host's arithmetic made. Doubles keep a payload on both."""
    if kind is F64:
        return value
    t = kind.integer
    bits = bits_of(e, kind, value)
    exponent, sign, nan = _LAYOUT[kind.bits]
    # Compared as integers: LLVM thinks one NaN as good as another and would drop a selection by fcmp.
    magnitude = e.op(f"and {t} {bits}, {sign - 1}")
    unordered = e.op(f"icmp ugt {t} {magnitude}, {exponent}")
    return from_bits(e, kind, e.op(f"select i1 {unordered}, {t} {nan}, {t} {bits}"))


def saturate(e: FunctionEmitter, kind: Type, value: str) -> str:
    """Clamped to [0, 1]; NaN and negative zero become +0."""
    t = kind.llvm
    above = e.op(f"fcmp ogt {t} {value}, 0.0")
    positive = e.op(f"select i1 {above}, {t} {value}, {t} 0.0")
    big = e.op(f"fcmp ogt {t} {positive}, 1.0")
    return e.op(f"select i1 {big}, {t} 1.0, {t} {positive}")


def relu(e: FunctionEmitter, kind: Type, value: str) -> str:
    """Negative values become +0; NaN stays."""
    t = kind.llvm
    low = e.op(f"fcmp ole {t} {value}, 0.0")
    return e.op(f"select i1 {low}, {t} 0.0, {t} {value}")


def read(e: FunctionEmitter, operand: Operand, kind: Type, ftz: bool) -> str:
    """An operand, flushed if it could be subnormal."""
    value = e.read(operand, kind)
    if not ftz or (isinstance(operand, Register) and operand.name in e.usage.flushed):
        return value
    return flush(e, kind, value)


def write(e: FunctionEmitter, operand: Operand, kind: Type, value: str, ftz: bool) -> None:
    """A result of arithmetic."""
    if ftz:
        value = flush(e, kind, value)
    if not isinstance(operand, Register) or operand.name in e.usage.observed:
        value = canonical(e, kind, value)
    e.write(operand, kind, value)


def widen_bf16(e: FunctionEmitter, bits: str) -> str:
    """i16 to float."""
    wide = e.op(f"shl i32 {e.op(f'zext i16 {bits} to i32')}, 16")
    return from_bits(e, F32, wide)


def narrow_bf16(e: FunctionEmitter, value: str, mode: str = "rn") -> str:
    """float to i16, rounded to nearest even, away from zero for ties (rna), or towards zero."""
    bits = bits_of(e, F32, value)
    if mode == "rn":
        odd = e.op(f"and i32 {e.op(f'lshr i32 {bits}, 16')}, 1")
        bits = e.op(f"add i32 {bits}, {e.op(f'add i32 {odd}, 32767')}")
    elif mode == "rna":
        bits = e.op(f"add i32 {bits}, 32768")
    narrow = e.op(f"trunc i32 {e.op(f'lshr i32 {bits}, 16')} to i16")
    unordered = e.op(f"fcmp uno float {value}, {value}")
    return e.op(f"select i1 {unordered}, i16 32767, i16 {narrow}")


def split(e: FunctionEmitter, part: Type, word: str) -> list[str]:
    """The two halves of a packed word as values of part.llvm, the lower one first."""
    low = e.op(f"trunc i32 {word} to i16")
    high = e.op(f"trunc i32 {e.op(f'lshr i32 {word}, 16')} to i16")
    if part is F16:
        return [from_bits(e, F16, low), from_bits(e, F16, high)]
    return [low, high]


def join_bits(e: FunctionEmitter, low: str, high: str) -> str:
    """Two i16 in a word."""
    upper = e.op(f"shl i32 {e.op(f'zext i16 {high} to i32')}, 16")
    return e.op(f"or i32 {upper}, {e.op(f'zext i16 {low} to i32')}")
