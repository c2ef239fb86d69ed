"""Arithmetic of f16 and bf16 and of packed pairs of them."""

from __future__ import annotations

from collections.abc import Callable

from ..model import Instruction, Operand
from ..types import BF16, F16, F32, Type
from . import numbers
from .floats import PURE, select_extreme
from .function import FunctionEmitter
from .mixed import mixed
from .modifiers import Modifiers
from .registry import opcode

_LIBM = {"ex2": "exp2f", "tanh": "tanhf", "lg2": "log2f", "sin": "sinf", "cos": "cosf"}


def _parts(e: FunctionEmitter, kind: Type, operand: Operand) -> list[str]:
    """An operand's values, one or two, as half or for bf16 as i16."""
    if kind.name.endswith("x2"):
        return numbers.split(e, F16 if kind.name == "f16x2" else BF16, e.read_bits(operand, 32))
    return [e.read(operand, kind)]


def _each(
    e: FunctionEmitter,
    kind: Type,
    d: Operand,
    sources: list[Operand],
    compute: Callable[[Type, list[str]], str],
) -> None:
    """Applies `compute`, which yields bits, to each part."""
    part = F16 if kind.name.startswith("f16") else BF16
    columns = [_parts(e, kind, each) for each in sources]
    results = [compute(part, list(values)) for values in zip(*columns, strict=True)]
    if len(results) == 2:
        e.write_bits(d, 32, numbers.join_bits(e, results[0], results[1]))
    else:
        e.write_bits(d, 16, results[0])


def _bits(e: FunctionEmitter, part: Type, value: str) -> str:
    return numbers.bits_of(e, F16, value) if part is F16 else value


def _finish(e: FunctionEmitter, value: str, ftz: bool, saturate: bool, relu: bool) -> str:
    """The bits of a half that arithmetic made."""
    if ftz:
        value = numbers.flush(e, F16, value)
    if saturate:
        value = numbers.saturate(e, F16, value)
    if relu:
        value = numbers.relu(e, F16, value)
    return numbers.bits_of(e, F16, numbers.canonical(e, F16, value))


def _brain(e: FunctionEmitter, value: str, relu: bool, saturate: bool) -> str:
    """float to bf16 bits."""
    if saturate:
        value = numbers.saturate(e, F32, value)
    return numbers.narrow_bf16(e, numbers.relu(e, F32, value) if relu else value)


@opcode("add", "sub", "mul", of="half")
def add(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    if m.types and i.opcode != "mul":
        mixed(e, i, m, kind)
        return
    m.choice("rn")
    ftz, saturate = m.flag("ftz"), m.flag("sat")
    d, x, y = e.operands(3)

    def compute(part: Type, values: list[str]) -> str:
        if part is F16:
            if ftz:
                values = [numbers.flush(e, F16, each) for each in values]
            # Single precision in between is exact or rounds innocuously: 24 >= 2 * 11 + 2.
            return _finish(e, e.op(f"f{i.opcode} half {values[0]}, {values[1]}"), ftz, saturate, False)
        if i.opcode == "mul":
            return _fused(e, BF16, [*values, "-32768"], False, saturate)
        a, b = (numbers.widen_bf16(e, each) for each in values)
        return _brain(e, e.op(f"f{i.opcode} float {a}, {b}"), False, saturate)

    _each(e, kind, d, [x, y], compute)


def _fused(e: FunctionEmitter, part: Type, bits: list[str], relu: bool, saturate: bool) -> str:
    name = "f16" if part is F16 else "bf16"
    value = e.call("i16", f"sim_fp_fma_{name}", *(f"i16 {each}" for each in bits), attributes=PURE)
    if relu or saturate:
        wide = numbers.widen_bf16(e, value) if part is BF16 else numbers.from_bits(e, F16, value)
        if part is BF16:
            return _brain(e, wide, relu, saturate)
        return _finish(e, wide, False, saturate, relu)
    return value


@opcode("fma", of="half")
def fma(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    if m.types:
        mixed(e, i, m, kind)
        return
    m.need("rn")
    ftz, saturate, relu = m.flag("ftz"), m.flag("sat"), m.flag("relu")
    d, *sources = e.operands(4)

    def compute(part: Type, values: list[str]) -> str:
        if part is F16 and ftz:
            values = [numbers.flush(e, F16, each) for each in values]
        bits = _fused(e, part, [_bits(e, part, each) for each in values], relu, saturate)
        if part is F16 and ftz:
            return numbers.bits_of(e, F16, numbers.flush(e, F16, numbers.from_bits(e, F16, bits)))
        return bits

    _each(e, kind, d, sources, compute)


@opcode("neg", "abs", of="half")
def sign(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    ftz = m.flag("ftz")
    d, x = e.operands(2)

    def compute(part: Type, values: list[str]) -> str:
        value = values[0]
        if part is F16 and ftz:
            value = numbers.flush(e, F16, value)
        bits = _bits(e, part, value)
        return e.op(f"and i16 {bits}, 32767") if i.opcode == "abs" else e.op(f"xor i16 {bits}, -32768")

    _each(e, kind, d, [x], compute)


@opcode("min", "max", of="half")
def minmax(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    ftz, nan, xorsign = m.flag("ftz"), m.flag("NaN"), m.flag("xorsign")
    if xorsign:
        m.need("abs")
    d, *sources = e.operands(3, 4)

    def compute(part: Type, values: list[str]) -> str:
        if part is F16:
            if ftz:
                values = [numbers.flush(e, F16, each) for each in values]
            kind_used = F16
        else:
            values, kind_used = [numbers.widen_bf16(e, each) for each in values], F32
        value, *rest = values
        for each in rest:
            value = select_extreme(e, i.opcode, kind_used, nan, xorsign, value, each)
        return _finish(e, value, False, False, False) if part is F16 else numbers.narrow_bf16(e, value)

    _each(e, kind, d, sources, compute)


@opcode("ex2", "tanh", "lg2", "sin", "cos", of="half")
def transcendental(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    m.need("approx")
    ftz = kind.name.startswith("bf16") and m.flag("ftz")
    d, x = e.operands(2)

    def compute(part: Type, values: list[str]) -> str:
        value = values[0]
        wide = e.op(f"fpext half {value} to float") if part is F16 else numbers.widen_bf16(e, value)
        if ftz and part is BF16:
            wide = numbers.flush(e, F32, wide)
        result = e.call("float", _LIBM[i.opcode], f"float {wide}", attributes=PURE)
        if part is BF16:
            return numbers.narrow_bf16(e, numbers.flush(e, F32, result) if ftz else result)
        return _finish(e, e.op(f"fptrunc float {result} to half"), False, False, False)

    _each(e, kind, d, [x], compute)
