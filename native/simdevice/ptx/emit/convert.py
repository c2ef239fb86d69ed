"""cvt: between all scalar types."""

from __future__ import annotations

from ..model import Instruction, Operand
from ..types import B32, BF16, F16, F32, F64, Type
from . import narrow, numbers
from .encode import encode, encode_call, encode_double
from .floats import PURE
from .function import FunctionEmitter
from .integer import integer_type, minimum
from .modifiers import Modifiers
from .registry import opcode

_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_ROUNDINGS = {"tf32": ("rna", "rn", "rz"), **dict.fromkeys(("f16x2", "bf16x2"), ("rn", "rz"))}


@opcode("cvt")
def cvt(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    if m.flag("pack"):
        _pack_integers(e, m)
        return
    to, source = m.type(), m.type()
    if to.name in narrow.PACKED or source.name in narrow.PACKED:
        narrow.convert(e, m, to, source)
        return
    if to.name == "bf16x2" and source is F32 and m.flag("rs"):
        narrow.round_at_random(e, m)
        return
    rounding = m.choice(*_ROUNDINGS.get(to.name, numbers.MODES), *_TO_INTEGER)
    narrows = to in (F16, BF16) or to.kind == "x"
    relu, finite = (m.flag("relu"), m.flag("satfinite")) if narrows and source is F32 else (False, False)
    if to.name in ("f16x2", "bf16x2") and source is F32:
        d, high, low = e.operands(3)
        part = F16 if to.name == "f16x2" else BF16
        halves = [
            encode(e, e.read(each, F32), part.name, rounding or "rn", relu, finite) for each in (low, high)
        ]
        e.write_bits(d, 32, numbers.join_bits(e, halves[0], halves[1]))
    elif to.name == "tf32" and source is F32:
        d, x = e.operands(2)
        bits = encode_call(e, e.read(x, F32), "tf32", rounding or "rna", relu, finite)
        e.write_bits(d, 32, bits)
    elif to.kind == "x" or source.kind == "x" or "p" in (to.kind, source.kind):
        raise e.fail(f"no conversion of .{source.name} to .{to.name}")
    else:
        ftz, saturate = F32 in (to, source) and m.flag("ftz"), BF16 not in (to, source) and m.flag("sat")
        if rounding is not None and not _rounds(to, source, rounding):
            raise e.fail(f".{rounding} has nothing to round")
        d, x = e.operands(2)
        _scalar(e, d, x, to, source, rounding, ftz, saturate, relu, finite)


def _rounds(to: Type, source: Type, rounding: str) -> bool:
    """Whether a conversion may be rounded that way."""
    if rounding in _TO_INTEGER:
        return source.is_float and (to == source or not to.is_float)
    if source is BF16:
        return to.is_float
    return to.is_float and not (source.is_float and source.bits < to.bits)


def _scalar(
    e: FunctionEmitter,
    d: Operand,
    x: Operand,
    to: Type,
    source: Type,
    rounding: str | None,
    ftz: bool,
    saturate: bool,
    relu: bool,
    finite: bool,
) -> None:
    value = e.read(x, source)
    if source.is_float:
        if source is BF16:
            value = numbers.widen_bf16(e, value)
            source = F32
        elif ftz and source is F32:
            value = numbers.flush(e, F32, value)
        if to.is_float:
            _float_to_float(e, d, value, to, source, rounding, ftz, saturate, relu, finite)
        else:
            e.write_bits(d, to.bits, _float_to_integer(e, value, to, source, rounding), to.signed)
        return
    if to.is_float:
        _integer_to_float(e, d, value, to, source, rounding or "rn", saturate)
        return
    e.write_bits(d, to.bits, _integer_to_integer(e, value, to, source, saturate), to.signed)


def _integer_to_integer(e: FunctionEmitter, value: str, to: Type, source: Type, saturate: bool) -> str:
    if not saturate:
        return e.resize(value, source.bits, to.bits, source.signed)
    # One bit more than either holds both ranges.
    bits = max(to.bits, source.bits) + 1
    wide = e.op(f"{'sext' if source.signed else 'zext'} {source.llvm} {value} to i{bits}")
    low = minimum(to)
    high = low + (1 << to.bits) - 1
    wide = e.intrinsic(f"llvm.smax.i{bits}", f"i{bits}", f"i{bits} {wide}", f"i{bits} {low}")
    wide = e.intrinsic(f"llvm.smin.i{bits}", f"i{bits}", f"i{bits} {wide}", f"i{bits} {high}")
    return e.op(f"trunc i{bits} {wide} to {to.llvm}")


def _float_to_integer(e: FunctionEmitter, value: str, to: Type, source: Type, rounding: str | None) -> str:
    mode = _TO_INTEGER.get(rounding or "")
    if mode is None:
        raise e.fail("needs one of .rni .rzi .rmi .rpi")
    nan_is_high = source is F64 or to.bits == 64
    if source is F16:
        value, source = e.op(f"fpext half {value} to float"), F32
    t = source.llvm
    if mode != "trunc":
        value = e.intrinsic(f"llvm.{mode}.{source.name}", t, f"{t} {value}")
    name = f"llvm.fpto{'s' if to.signed else 'u'}i.sat.{to.llvm}.{source.name}"
    result = e.intrinsic(name, to.llvm, f"{t} {value}")
    if not nan_is_high:
        return result
    unordered = e.op(f"fcmp uno {t} {value}, {value}")
    return e.op(f"select i1 {unordered}, {to.llvm} {1 << (to.bits - 1)}, {to.llvm} {result}")


def _integer_to_float(
    e: FunctionEmitter, d: Operand, value: str, to: Type, source: Type, rounding: str, saturate: bool
) -> None:
    signed = source.signed
    # A half cannot hold what a float cannot, up to its overflow.
    through = F32 if to is F16 else to
    convert = "sitofp" if signed else "uitofp"
    if to is BF16:
        # Single precision would round twice.
        through = F64
    if to is BF16 and source.bits == 64:
        result = _rounded_to_odd(e, value, signed)
    elif rounding == "rn" or to is F16 or (through is F64 and source.bits <= 32):
        result = e.op(f"{convert} {source.llvm} {value} to {through.llvm}")
    else:
        wide = e.resize(value, source.bits, 64, signed)
        name = f"sim_fp_from_{'s' if signed else 'u'}64_{to.name}"
        result = e.call(to.llvm, name, f"i64 {wide}", f"i32 {numbers.MODES[rounding]}", attributes=PURE)
    if saturate:
        result = numbers.saturate(e, through, result)
    if to is through:
        e.write(d, to, result)
    elif to is F16:
        e.write_bits(d, 16, encode(e, result, "f16", rounding, False, False))
    else:
        e.write_bits(d, 16, encode_double(e, result, "bf16", rounding))


def _rounded_to_odd(e: FunctionEmitter, value: str, signed: bool) -> str:
    """The double towards zero, its last bit set if it is not the number: what rounds it again sees that."""
    name = f"sim_fp_from_{'s' if signed else 'u'}64_f64"
    near = e.call("double", name, f"i64 {value}", f"i32 {numbers.MODES['rz']}", attributes=PURE)
    back = e.op(f"fpto{'s' if signed else 'u'}i double {near} to i64")
    odd = e.op(f"zext i1 {e.op(f'icmp ne i64 {back}, {value}')} to i64")
    return numbers.from_bits(e, F64, e.op(f"or i64 {numbers.bits_of(e, F64, near)}, {odd}"))


def _float_to_float(
    e: FunctionEmitter,
    d: Operand,
    value: str,
    to: Type,
    source: Type,
    rounding: str | None,
    ftz: bool,
    saturate: bool,
    relu: bool,
    finite: bool,
) -> None:
    t = source.llvm
    if rounding in _TO_INTEGER:
        if source is F16:
            value, source, t = e.op(f"fpext half {value} to float"), F32, "float"
        value = e.intrinsic(f"llvm.{_TO_INTEGER[rounding]}.{source.name}", t, f"{t} {value}")
        rounding = None
    rounding = rounding or "rn"
    if saturate:
        value = numbers.saturate(e, source, value)
    if to in (F16, BF16):
        if source is F64:
            if relu:
                value = numbers.relu(e, source, value)
            e.write_bits(d, 16, encode_double(e, value, to.name, rounding))
        elif source is F16:
            if to is F16:
                e.write(d, F16, numbers.relu(e, F16, value) if relu else numbers.canonical(e, F16, value))
                return
            wide = e.op(f"fpext half {value} to float")
            e.write_bits(d, 16, encode(e, wide, to.name, rounding, relu, finite))
        else:
            e.write_bits(d, 16, encode(e, value, to.name, rounding, relu, finite))
        return
    if source.bits < to.bits:
        value = e.op(f"fpext {t} {value} to {to.llvm}")
    elif source.bits > to.bits:
        if rounding == "rn":
            value = e.op(f"fptrunc {t} {value} to {to.llvm}")
        else:
            code = numbers.MODES.get(rounding)
            if code is None:
                raise e.fail(f"no .{rounding}")
            value = e.call("float", "sim_fp_narrow_f32", f"double {value}", f"i32 {code}", attributes=PURE)
    if relu:
        value = numbers.relu(e, to, value)
    numbers.write(e, d, to, value, ftz and to is F32)


def _pack_integers(e: FunctionEmitter, m: Modifiers) -> None:
    """cvt.pack.sat: saturates a and b, and with a third operand shifts that up to make room."""
    m.need("sat")
    to = m.type()
    to = Type(to.name, to.name[0], to.bits)  # of two or four bits as well
    if to.kind not in "us" or to.bits > 16:
        raise e.fail(f"no packing of .{to.name}")
    source = integer_type(e, m, 32)
    c_type = m.type() if m.types else None
    if (c_type is None) != (to.bits == 16):
        raise e.fail("two of 16 bits fill the word, of others there is a rest")
    d, x, y, *c = e.operands(4 if c_type else 3)
    parts = []
    for operand in (y, x):
        small = _integer_to_integer(e, e.read(operand, source), to, source, True)
        parts.append(e.op(f"zext {to.llvm} {small} to i32"))
    packed = e.op(f"or i32 {parts[0]}, {e.op(f'shl i32 {parts[1]}, {to.bits}')}")
    if c:
        packed = e.op(f"or i32 {packed}, {e.op(f'shl i32 {e.read(c[0], B32)}, {2 * to.bits}')}")
    e.write(d, B32, packed)
