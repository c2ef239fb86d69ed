"""Comparison and selection."""

from __future__ import annotations

from ..model import Instruction, Operand, Pair, Vector
from ..types import BF16, F16, F32, PRED, Type
from . import numbers
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode

_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED = {
    "lt": "ult",
    "le": "ule",
    "gt": "ugt",
    "ge": "uge",
    "lo": "ult",
    "ls": "ule",
    "hi": "ugt",
    "hs": "uge",
}
_ORDERED = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "num": "ord",
    "nan": "uno",
}
_UNORDERED = {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge"}
_ALL = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "num", "nan", *_UNORDERED)


def _compare(e: FunctionEmitter, comparison: str, kind: Type, ftz: bool, a: str, b: str) -> str:
    if kind.is_float:
        predicate = _ORDERED.get(comparison) or _UNORDERED.get(comparison)
        if predicate is None:
            raise e.fail(f"no .{comparison} of floats")
        if kind.kind == "bf":
            a, b, kind = numbers.widen_bf16(e, a), numbers.widen_bf16(e, b), F32
        elif ftz:
            a, b = numbers.flush(e, kind, a), numbers.flush(e, kind, b)
        return e.op(f"fcmp {predicate} {kind.llvm} {a}, {b}")
    if comparison in ("eq", "ne"):
        predicate = comparison
    else:
        predicate = (_SIGNED if kind.signed else _UNSIGNED).get(comparison)
        if predicate is None or kind.kind in ("b", "p"):
            raise e.fail(f"no .{comparison} of .{kind.name}")
    return e.op(f"icmp {predicate} {kind.llvm} {a}, {b}")


def _halves(e: FunctionEmitter, kind: Type, operand: Operand) -> list[tuple[Type, str]]:
    """The parts of an operand: one, or two of a packed type."""
    if kind.name in ("f16x2", "bf16x2"):
        part = F16 if kind.name == "f16x2" else BF16
        return [(part, value) for value in numbers.split(e, part, e.read_bits(operand, 32))]
    return [(kind, e.read(operand, kind))]


def _compared(e: FunctionEmitter, m: Modifiers, kind: Type) -> tuple[Operand, list[str], str, str]:
    """Destination, results of one or two comparisons, and how and with which predicate to combine them."""
    comparison, combine, ftz = m.need(*_ALL), m.choice("and", "or", "xor"), m.flag("ftz")
    operands = e.operands(4 if combine else 3)
    d, x, y = operands[:3]
    results = [
        _compare(e, comparison, part, ftz, a, b)
        for (part, a), (_, b) in zip(_halves(e, kind, x), _halves(e, kind, y), strict=True)
    ]
    return d, results, combine or "", e.predicate(operands[3]) if combine else ""


def _combined(e: FunctionEmitter, results: list[str], combine: str, other: str) -> list[str]:
    return [e.op(f"{combine} i1 {each}, {other}") for each in results] if combine else results


@opcode("setp")
def setp(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    d, results, combine, other = _compared(e, m, m.type())
    first, second = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    if len(results) == 1:
        results.append(e.op(f"xor i1 {results[0]}, true"))
    results = _combined(e, results, combine, other)
    e.write(first, PRED, results[0])
    if second is not None:
        e.write(second, PRED, results[1])


@opcode("set")
def set_(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    to, kind = m.type(), m.type()
    d, results, combine, other = _compared(e, m, kind)
    results = _combined(e, results, combine, other)
    ones = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f16x2": 0x3C00, "bf16x2": 0x3F80}
    packed = len(results) == 2
    bits = 16 if packed else to.bits
    true = ones.get(to.name, -1)
    values = [e.op(f"select i1 {each}, i{bits} {true}, i{bits} 0") for each in results]
    if packed:
        e.write_bits(d, 32, numbers.join_bits(e, values[0], values[1]))
    else:
        e.write_bits(d, to.bits, values[0], to.signed)


@opcode("selp")
def selp(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    d, x, y, p = e.operands(4)
    if isinstance(x, Vector) or isinstance(y, Vector):
        raise e.fail("no vectors")
    t = kind.integer
    a, b = _raw(e, x, kind), _raw(e, y, kind)
    e.write_bits(d, kind.bits, e.op(f"select i1 {e.predicate(p)}, {t} {a}, {t} {b}"))


@opcode("slct")
def slct(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind, by = m.type(), m.type()
    ftz = by is F32 and m.flag("ftz")
    d, x, y, c = e.operands(4)
    if by.name == "s32":
        chosen = e.op(f"icmp sge i32 {e.read(c, by)}, 0")
    elif by is F32:
        value = e.read(c, by)
        chosen = e.op(f"fcmp oge float {numbers.flush(e, F32, value) if ftz else value}, 0.0")
    else:
        raise e.fail(f"cannot select by .{by.name}")
    t = kind.integer
    e.write_bits(d, kind.bits, e.op(f"select i1 {chosen}, {t} {_raw(e, x, kind)}, {t} {_raw(e, y, kind)}"))


def _raw(e: FunctionEmitter, operand: Operand, kind: Type) -> str:
    """The bits of an operand; an immediate is read as its type says."""
    if kind.kind != "f":
        return e.read_bits(operand, kind.bits)
    return e.op(f"bitcast {kind.llvm} {e.read(operand, kind)} to {kind.integer}")
