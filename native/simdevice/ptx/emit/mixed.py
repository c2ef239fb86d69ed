"""Sums of mixed precision: halves are converted to single precision, in which the result is rounded once."""

from __future__ import annotations

from ..model import Instruction, Register
from ..types import BF16, F16, F32, Type
from . import numbers
from .floats import arithmetic
from .function import FunctionEmitter
from .modifiers import Modifiers


def mixed(e: FunctionEmitter, i: Instruction, m: Modifiers, kind: Type) -> None:
    """`add.f32.f16` and the like, of which `kind` is the type that was named first. The last operand is
    single precision."""
    half = m.type()
    if kind is not F32 or half not in (F16, BF16):
        raise e.fail(f"no sums of .{half.name} in .{kind.name}")
    mode = m.need(*numbers.MODES) if i.opcode == "fma" else m.choice(*numbers.MODES) or "rn"
    saturate = m.flag("sat")
    d, *halves, addend = e.operands(4 if i.opcode == "fma" else 3)
    values = []
    for each in halves:
        slot = e.register(each.name) if isinstance(each, Register) else None
        if slot is not None and slot.type.bits != 16:
            raise e.fail(f"a register of .{slot.type.name} is no .{half.name}")
        value = e.read(each, half)
        values.append(numbers.widen_bf16(e, value) if half is BF16 else e.op(f"fpext half {value} to float"))
    result = arithmetic(e, i.opcode, F32, mode, *values, e.read(addend, F32))
    if saturate:
        result = numbers.saturate(e, F32, result)
    numbers.write(e, d, F32, result, False)
