"""How a function uses its registers, in any order: enough to leave out work on floats that nobody sees."""

from __future__ import annotations

from collections.abc import Iterable

from .model import Address, Instruction, Item, Negative, Not, Operand, Pair, Register, Vector

# A NaN's sign and payload are invisible to these.
_ARITHMETIC = {"add", "sub", "mul", "fma", "mad", "div", "min", "max", "setp", "set", "cvt", "sqrt", "rcp"}
_ARITHMETIC |= {"rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "testp"}
_FLOATS = {"f16", "f32", "f64"}


class Usage:
    """`observed`: registers whose bits something other than float arithmetic sees. `flushed`: registers that
    only .ftz.f32 instructions write, so that they hold no subnormal. `passed`: parameters and results, which
    callers write and see."""

    def __init__(self, items: list[Item], passed: Iterable[str] = ()) -> None:
        self.observed = set(passed)
        flushing: set[str] = set()
        other = set(self.observed)
        for item in items:
            if not isinstance(item, Instruction):
                continue
            modifiers = item.modifiers
            arithmetic = item.opcode in _ARITHMETIC and bool(modifiers) and modifiers[-1] in _FLOATS
            # A double keeps the NaN it is made from, and .xorsign takes the sign of one.
            if (item.opcode == "cvt" and modifiers[-2:-1] == ("f64",)) or "xorsign" in modifiers:
                arithmetic = False
            if not arithmetic:
                mentioned = {name for operand in item.operands for name in names(operand)}
                self.observed |= mentioned
                other |= mentioned
            elif item.operands:
                single = modifiers[-1] == "f32" and "ftz" in modifiers and item.opcode not in ("set", "cvt")
                (flushing if single else other).update(names(item.operands[0]))
        self.flushed = flushing - other


def names(operand: Operand) -> list[str]:
    """The registers that an operand mentions."""
    if isinstance(operand, (Register, Not, Negative)):
        return [operand.name]
    if isinstance(operand, Vector):
        return [name for item in operand.items for name in names(item)]
    if isinstance(operand, Pair):
        return names(operand.first) + names(operand.second)
    if isinstance(operand, Address) and operand.base is not None:
        return [operand.base]
    items: list[Operand] = getattr(operand, "items", [])
    return [name for item in items for name in names(item)]


def taken(items: list[Item]) -> set[str]:
    """Names whose addresses a body may hold in registers."""
    found: set[str] = set()
    for item in items:
        if isinstance(item, Instruction) and item.opcode != "call":
            for operand in item.operands:
                if item.opcode not in ("ld", "st") or not isinstance(operand, Address):
                    found.update(names(operand))
    return found
