"""Arithmetic of f32 and f64. Only fma fuses. Roundings other than to nearest are helpers in C."""

from __future__ import annotations

from ..model import Immediate, Instruction
from ..types import F32, F64, PRED, Type
from . import numbers
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode

PURE = " nobuiltin nounwind willreturn memory(none)"
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_APPROXIMATIONS = {"sin": "sinf", "cos": "cosf", "lg2": "sim_fp_lg2", "ex2": "sim_fp_ex2", "tanh": "tanhf"}


def arithmetic(e: FunctionEmitter, name: str, kind: Type, mode: str, *values: str) -> str:
    """add, sub, mul, div, fma or sqrt in a rounding mode."""
    t = kind.llvm
    arguments = [f"{t} {value}" for value in values]
    if mode != "rn":
        code = numbers.MODES[mode]
        return e.call(t, f"sim_fp_{name}_{kind.name}", *arguments, f"i32 {code}", attributes=PURE)
    if name in ("fma", "sqrt"):
        return e.intrinsic(f"llvm.{name}.{kind.name}", t, *arguments)
    return e.op(f"f{name} {arguments[0]}, {values[1]}")


@opcode("add", "sub", "mul", "fma", "mad", of="float")
def add(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    mode, ftz, saturate = m.choice(*_ROUNDINGS) or "rn", m.flag("ftz"), m.flag("sat")
    name = "fma" if i.opcode == "mad" else i.opcode
    d, *sources = e.operands(4 if name == "fma" else 3)
    _only_f32(e, kind, ftz or saturate)
    values = [numbers.read(e, each, kind, ftz) for each in sources]
    value = arithmetic(e, name, kind, mode, *values)
    if saturate:
        value = numbers.saturate(e, kind, value)
    numbers.write(e, d, kind, value, ftz)


def _only_f32(e: FunctionEmitter, kind: Type, used: bool) -> None:
    if used and kind is not F32:
        raise e.fail(f"not for .{kind.name}")


def _truncate(e: FunctionEmitter, value: str) -> str:
    """The GPU's double precision approximations have the upper half only."""
    bits = numbers.bits_of(e, F64, value)
    return numbers.from_bits(e, F64, e.op(f"and i64 {bits}, -4294967296"))


@opcode("div", of="float")
def div(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    mode, ftz = m.choice("approx", "full", *_ROUNDINGS) or "rn", m.flag("ftz")
    d, x, y = e.operands(3)
    _only_f32(e, kind, ftz)
    a, b = numbers.read(e, x, kind, ftz), numbers.read(e, y, kind, ftz)
    value = arithmetic(e, "div", kind, "rn" if mode in ("approx", "full") else mode, a, b)
    if mode == "approx":
        value = _by_reciprocal(e, a, b, value)
    numbers.write(e, d, kind, value, ftz)


def _by_reciprocal(e: FunctionEmitter, a: str, b: str, quotient: str) -> str:
    """The GPU multiplies by 1/b, which is no more than a zero where b is beyond 2**126."""
    size = e.intrinsic("llvm.fabs.f32", "float", f"float {b}")
    large = e.op(f"fcmp ogt float {size}, 0x47D0000000000000")
    zero = e.intrinsic("llvm.copysign.f32", "float", "float 0.0", f"float {b}")
    return e.op(f"select i1 {large}, float {e.op(f'fmul float {a}, {zero}')}, float {quotient}")


@opcode("rcp", "sqrt", "rsqrt", of="float")
def root(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    mode, ftz = m.choice("approx", *_ROUNDINGS) or "rn", m.flag("ftz")
    d, x = e.operands(2)
    if kind is F64 and mode == "approx" and not ftz and i.opcode != "rsqrt":
        raise e.fail(".approx.f64 needs .ftz")
    upper = kind is F64 and mode == "approx" and ftz  # of what is rounded ptxas ignores .ftz
    a = numbers.read(e, x, kind, ftz and kind is F32)
    if upper:
        a = _flush64(e, _truncate(e, a))
    exact = "rn" if mode == "approx" else mode
    if i.opcode == "sqrt":
        value = arithmetic(e, "sqrt", kind, exact, a)
    elif i.opcode == "rcp":
        value = arithmetic(e, "div", kind, exact, "1.0", a)
    else:
        value = e.op(f"fdiv {kind.llvm} 1.0, {arithmetic(e, 'sqrt', kind, 'rn', a)}")
    if upper:
        value = _truncate(e, _flush64(e, value))
    numbers.write(e, d, kind, value, ftz and kind is F32)


def _flush64(e: FunctionEmitter, value: str) -> str:
    size = e.intrinsic("llvm.fabs.f64", "double", f"double {value}")
    small = e.op(f"fcmp olt double {size}, 0x0010000000000000")
    zero = e.intrinsic("llvm.copysign.f64", "double", "double 0.0", f"double {value}")
    return e.op(f"select i1 {small}, double {zero}, double {value}")


@opcode("sin", "cos", "lg2", "ex2", "tanh", of="float")
def transcendental(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    m.need("approx")
    ftz, cycles = m.flag("ftz"), m.flag("2pi")
    _only_f32(e, kind, True)
    d, x = e.operands(2)
    a = numbers.read(e, x, kind, ftz)
    if cycles:
        value = _of_cycles(e, i.opcode, a)
    else:
        value = e.call("float", _APPROXIMATIONS[i.opcode], f"float {a}", attributes=PURE)
    numbers.write(e, d, kind, value, ftz)


def _of_cycles(e: FunctionEmitter, name: str, a: str) -> str:
    """The sine or cosine of so many turns, as the sine of a quarter at most: what is exact comes out so."""
    size = e.intrinsic("llvm.fabs.f32", "float", f"float {a}")
    part = e.op(f"fsub float {size}, {e.intrinsic('llvm.roundeven.f32', 'float', f'float {size}')}")
    half = e.intrinsic("llvm.fabs.f32", "float", f"float {part}")
    if name == "cos":
        angle = e.op(f"fsub float 0.25, {half}")
    else:
        rest = e.op(f"fsub float 0.5, {half}")
        near = e.op(f"select i1 {e.op(f'fcmp olt float {half}, {rest}')}, float {half}, float {rest}")
        angle = e.intrinsic("llvm.copysign.f32", "float", f"float {near}", f"float {part}")
    angle = e.op(f"fmul float {angle}, 0x401921FB60000000")  # 2 pi
    value = e.call("float", "sinf", f"float {angle}", attributes=PURE)
    if name == "cos":
        return value
    sign = e.intrinsic("llvm.copysign.f32", "float", "float 1.0", f"float {a}")
    return e.op(f"fmul float {value}, {sign}")


@opcode("abs", "neg", of="float")
def sign(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    ftz = m.flag("ftz")
    _only_f32(e, kind, ftz)
    d, x = e.operands(2)
    a = numbers.read(e, x, kind, ftz)
    if i.opcode == "abs":
        value = e.intrinsic(f"llvm.fabs.{kind.name}", kind.llvm, f"{kind.llvm} {a}")
    else:
        value = e.op(f"fneg {kind.llvm} {a}")
    e.write(d, kind, value)


def select_extreme(
    e: FunctionEmitter, name: str, kind: Type, nan: bool, xorsign: bool, a: str, b: str
) -> str:
    """min or max; a NaN loses unless `nan`; `xorsign`: of the sizes, with the product of the signs."""
    t = kind.llvm
    sign_bits = ""
    if xorsign:
        both = e.op(f"xor {kind.integer} {numbers.bits_of(e, kind, a)}, {numbers.bits_of(e, kind, b)}")
        sign_bits = e.op(f"and {kind.integer} {both}, {1 << (kind.bits - 1)}")
        a, b = (e.intrinsic(f"llvm.fabs.{kind.name}", t, f"{t} {each}") for each in (a, b))
    suffix = "imum" if nan else "imumnum"
    value = e.intrinsic(f"llvm.{name}{suffix}.{kind.name}", t, f"{t} {a}", f"{t} {b}")
    if xorsign:
        value = numbers.from_bits(
            e, kind, e.op(f"or {kind.integer} {numbers.bits_of(e, kind, value)}, {sign_bits}")
        )
    return value


@opcode("min", "max", of="float")
def minmax(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    ftz, nan, xorsign, sizes = (m.flag(word) for word in ("ftz", "NaN", "xorsign", "abs"))
    d, *sources = e.operands(3, 4)
    if xorsign != (sizes and len(sources) == 2):
        raise e.fail("of two operands .abs goes with .xorsign, of three it stands alone")
    _only_f32(e, kind, ftz or nan or sizes)
    value, *rest = [numbers.read(e, each, kind, ftz) for each in sources]
    if sizes and not xorsign:
        value, *rest = [e.intrinsic("llvm.fabs.f32", "float", f"float {each}") for each in (value, *rest)]
    for each in rest:
        value = select_extreme(e, i.opcode, kind, nan, xorsign, value, each)
    numbers.write(e, d, kind, value, False)


@opcode("copysign", of="float")
def copysign(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    d, x, y = e.operands(3)
    t = kind.llvm
    # PTX takes the sign of the first operand, C of the second.
    a, b = e.read(x, kind), e.read(y, kind)
    e.write(d, kind, e.intrinsic(f"llvm.copysign.{kind.name}", t, f"{t} {b}", f"{t} {a}"))


# LLVM's masks: signalling NaN 1, quiet NaN 2, -inf 4, -normal 8, -subnormal 16, -0 32, +0 64, … mirrored.
# Zeros are normal numbers to PTX.
_CLASSES = {"finite": 504, "infinite": 516, "number": 1020, "notanumber": 3, "normal": 360, "subnormal": 144}


@opcode("testp", of="float")
def testp(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    what = m.need(*_CLASSES)
    d, x = e.operands(2)
    if isinstance(x, Immediate):
        raise e.fail("a register is expected")
    a = e.read(x, kind)
    e.write(
        d,
        PRED,
        e.intrinsic(f"llvm.is.fpclass.{kind.name}", "i1", f"{kind.llvm} {a}", f"i32 {_CLASSES[what]}"),
    )
