"""cvt of pairs of floats of eight, six and four bits, of fixed point, and of powers of two."""

from __future__ import annotations

from ..model import Operand
from ..types import B32, BF16, F16, F32, F64, Type
from . import numbers
from .encode import decode, encode, encode_call, encode_double, power_of
from .function import FunctionEmitter
from .modifiers import Modifiers

_FORMATS = {"e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m1x2": "e2m1", "e2m3x2": "e2m3", "e3m2x2": "e3m2"}
_POWERS = "ue8m0x2"
_FIXED = "s2f6x2"  # bytes of which 64 are 1
PACKED = frozenset({*_FORMATS, _POWERS, _FIXED})  # types of two
_SCALED = "scaled::n2::ue8m0"
_HALVES = {"f16x2": F16, "bf16x2": BF16}


def convert(e: FunctionEmitter, m: Modifiers, to: Type, source: Type) -> None:
    """Between two such numbers and two of a wider type."""
    if to.name == _POWERS:
        _to_powers(e, m, to, source)
    elif source.name == _POWERS:
        _from_powers(e, m, to, source)
    elif to.name in _FORMATS:
        _to_narrow(e, m, to, source)
    elif to.name == _FIXED:
        _to_fixed(e, m, to, source)
    else:
        _from_narrow(e, m, to, source)


def _floats(e: FunctionEmitter, to: Type, source: Type, scaled: bool = False) -> tuple[Operand, list[str]]:
    """The destination, and what is converted in single precision, the lower one first."""
    if source is F32:
        d, high, low = e.operands(3 + scaled)[:3]
        return d, [e.read(low, F32), e.read(high, F32)]
    d, x = e.operands(2 + scaled)[:2]
    half = _half(e, source, to, source)
    parts = numbers.split(e, half, e.read(x, B32))
    if half is BF16:
        return d, [numbers.widen_bf16(e, each) for each in parts]
    return d, [e.op(f"fpext half {each} to float") for each in parts]


def _half(e: FunctionEmitter, kind: Type, to: Type, source: Type) -> Type:
    found = _HALVES.get(kind.name)
    if found is None:
        raise e.fail(f"no conversion of .{source.name} to .{to.name}")
    return found


def _to_narrow(e: FunctionEmitter, m: Modifiers, to: Type, source: Type) -> None:
    mode = m.need("rn", "rz")
    m.need("satfinite")
    relu = m.flag("relu")
    form, width = _FORMATS[to.name], to.bits // 2
    d, values = _floats(e, to, source)
    low, high = (encode_call(e, each, form, mode, relu, True) for each in values)
    both = e.op(f"or i32 {low}, {e.op(f'shl i32 {high}, {width}')}")
    e.write_bits(d, to.bits, e.op(f"trunc i32 {both} to {to.integer}"))


def _scales(e: FunctionEmitter, scaled: bool) -> list[str]:
    """Two doubles, the powers in the last operand if there are any, the lower one first."""
    if not scaled:
        return ["1.0", "1.0"]
    both = e.op(f"zext i16 {e.read_bits(e.instruction.operands[-1], 16)} to i32")
    codes = (e.op(f"and i32 {both}, 255"), e.op(f"lshr i32 {both}, 8"))
    return [e.op(f"fpext float {power_of(e, each)} to double") for each in codes]


def _to_fixed(e: FunctionEmitter, m: Modifiers, to: Type, source: Type) -> None:
    """The number divided by its scale, and the largest for a NaN."""
    m.need("rn")
    m.need("satfinite")
    relu, scaled = m.flag("relu"), m.flag(_SCALED)
    if source.name == "f16x2":
        raise e.fail(f"no conversion of .f16x2 to .{to.name}")
    d, values = _floats(e, to, source, scaled)
    results = []
    for value, scale in zip(values, _scales(e, scaled), strict=True):
        wide = e.op(f"fdiv double {e.op(f'fpext float {value} to double')}, {scale}")
        if relu:
            wide = numbers.relu(e, F64, wide)
        steps = e.intrinsic("llvm.roundeven.f64", "double", f"double {e.op(f'fmul double {wide}, 64.0')}")
        code = e.intrinsic("llvm.fptosi.sat.i8.f64", "i8", f"double {steps}")
        none = e.op(f"fcmp uno double {steps}, {steps}")
        results.append(e.op(f"zext i8 {e.op(f'select i1 {none}, i8 127, i8 {code}')} to i16"))
    e.write_bits(d, 16, e.op(f"or i16 {results[0]}, {e.op(f'shl i16 {results[1]}, 8')}"))


def _from_narrow(e: FunctionEmitter, m: Modifiers, to: Type, source: Type) -> None:
    m.need("rn")
    relu = m.flag("relu")
    half = _half(e, to, to, source)
    finite, scaled = (m.flag("satfinite"), m.flag(_SCALED)) if half is BF16 else (False, False)
    fixed = source.name == _FIXED
    if fixed and half is F16:
        raise e.fail(f"no conversion of .{source.name} to .{to.name}")
    d, x = e.operands(2 + scaled)[:2]
    both = e.op(f"zext {source.integer} {e.read_bits(x, source.bits)} to i32")
    halves = []
    for index, scale in enumerate(_scales(e, scaled)):
        moved = e.op(f"lshr i32 {both}, {source.bits // 2}") if index else both
        value = _number(e, moved, None if fixed else _FORMATS[source.name])
        if scaled:
            wide = e.op(f"fmul double {e.op(f'fpext float {value} to double')}, {scale}")
            wide = numbers.relu(e, F64, wide) if relu else wide
            halves.append(encode_double(e, wide, half.name, "rn", finite))
        else:
            halves.append(encode(e, value, half.name, "rn", relu, finite))
    e.write_bits(d, 32, numbers.join_bits(e, halves[0], halves[1]))


def _number(e: FunctionEmitter, word: str, form: str | None) -> str:
    """The float in the lowest bits of a word; without a format, of fixed point."""
    if form is None:
        steps = e.op(f"sitofp i8 {e.op(f'trunc i32 {word} to i8')} to float")
        return e.op(f"fmul float {steps}, 0.015625")
    # Of eight bits six may be the number's.
    used = (1 << int(form[1]) + int(form[3]) + 1) - 1
    return decode(e, e.op(f"and i32 {word}, {used}"), form)


def _to_powers(e: FunctionEmitter, m: Modifiers, to: Type, source: Type) -> None:
    """The exponent of a number without its sign, 255 for a NaN: the least power is that of subnormals."""
    up = m.need("rz", "rp") == "rp"
    finite = m.flag("satfinite")
    if source.name == "f16x2":
        raise e.fail(f"no conversion of .f16x2 to .{to.name}")
    d, values = _floats(e, to, source)
    results = []
    for value in values:
        size = e.op(f"and i32 {numbers.bits_of(e, F32, value)}, {0x7FFFFFFF}")
        power = e.op(f"lshr i32 {size}, 23")
        number = e.op(f"icmp ule i32 {size}, {0x7F800000}")
        if up:
            rest = e.op(f"and i32 {size}, {0x7FFFFF}")
            inexact = e.op(f"icmp ne i32 {rest}, 0")
            above = e.op(f"icmp ugt i32 {size}, {0x400000}")  # 2 ** -127, which no exponent says
            step = e.op(f"and i1 {e.op(f'and i1 {inexact}, {above}')}, {number}")
            power = e.op(f"add i32 {power}, {e.op(f'zext i1 {step} to i32')}")
        if finite:
            beyond = e.op(f"and i1 {number}, {e.op(f'icmp eq i32 {power}, 255')}")
            power = e.op(f"select i1 {beyond}, i32 254, i32 {power}")
        results.append(power)
    both = e.op(f"or i32 {results[0]}, {e.op(f'shl i32 {results[1]}, 8')}")
    e.write_bits(d, 16, e.op(f"trunc i32 {both} to i16"))


def _from_powers(e: FunctionEmitter, m: Modifiers, to: Type, source: Type) -> None:
    m.need("rn")
    if to.name != "bf16x2":
        raise e.fail(f"no conversion of .{source.name} to .{to.name}")
    d, x = e.operands(2)
    both = e.op(f"zext i16 {e.read_bits(x, 16)} to i32")
    halves = []
    for shift in (0, 8):
        power = e.op(f"and i32 {e.op(f'lshr i32 {both}, {shift}')}, 255")
        bits = e.op(f"shl i32 {power}, 7")
        bits = e.op(f"select i1 {e.op(f'icmp eq i32 {power}, 0')}, i32 {0x40}, i32 {bits}")
        bits = e.op(f"select i1 {e.op(f'icmp eq i32 {power}, 255')}, i32 {0x7FFF}, i32 {bits}")
        halves.append(e.op(f"trunc i32 {bits} to i16"))
    e.write_bits(d, 32, numbers.join_bits(e, halves[0], halves[1]))


def round_at_random(e: FunctionEmitter, m: Modifiers) -> None:
    """Two floats to bf16: what 16 random bits carry out of the bits that are dropped is added. Of other types
    the PTX ISA leaves open which bits those are where a result is subnormal."""
    relu, finite = m.flag("relu"), m.flag("satfinite")
    d, high, low, random = e.operands(4)
    both = e.read(random, B32)
    halves = []
    for operand, bits in (low, e.op(f"and i32 {both}, 65535")), (high, e.op(f"lshr i32 {both}, 16")):
        value = e.read(operand, F32)
        if relu:
            value = numbers.relu(e, F32, value)
        word = e.op(f"lshr i32 {e.op(f'add i32 {numbers.bits_of(e, F32, value)}, {bits}')}, 16")
        if finite:
            beyond = e.op(f"icmp uge i32 {e.op(f'and i32 {word}, {0x7FFF}')}, {0x7F80}")
            largest = e.op(f"or i32 {e.op(f'and i32 {word}, {0x8000}')}, {0x7F7F}")
            word = e.op(f"select i1 {beyond}, i32 {largest}, i32 {word}")
        half = e.op(f"trunc i32 {word} to i16")
        unordered = e.op(f"fcmp uno float {value}, {value}")
        halves.append(e.op(f"select i1 {unordered}, i16 32767, i16 {half}"))
    e.write_bits(d, 32, numbers.join_bits(e, halves[0], halves[1]))
