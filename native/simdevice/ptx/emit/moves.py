"""mov: registers, constants, addresses, packing and unpacking."""

from __future__ import annotations

from ..model import Address, Instruction, Register, Vector
from ..types import PRED
from .function import FunctionEmitter
from .memory import elements
from .modifiers import Modifiers
from .registry import opcode


@opcode("mov")
def mov(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    vector = m.choice("v2", "v4")
    kind = m.type()
    d, x = e.operands(2)
    if vector:
        count = int(vector[1:])
        values = [e.read_bits(source, kind.bits) for source in elements(e, x, count)]
        for to, value in zip(elements(e, d, count), values, strict=True):
            e.write_bits(to, kind.bits, value)
        return
    if isinstance(x, Address) and e.place(x.base or "") is None:
        raise e.fail("an address of nothing")
    if kind is PRED:
        e.write(d, PRED, e.predicate(x))
    elif kind.kind == "f" and not isinstance(x, (Register, Vector, Address)):
        e.write(d, kind, e.read(x, kind))
    else:
        e.write_bits(d, kind.bits, e.read_bits(x, kind.bits))
