"""One instruction against the ISA's table: its name and modifiers, the number and types of its operands."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

from . import isa
from .model import Address, Immediate, Instruction, Not, Operand, Pair, Register, Vector
from .types import PRED, TYPES, Type

# The type of a register; None: the name is something else, or several registers of different types.
TypeOf = Callable[[str], Type | None]


def fault(instruction: Instruction, type_of: TypeOf) -> str | None:
    """What is wrong with an instruction, in ptxas's words; None: nothing that is looked at."""
    if instruction.guard is not None and type_of(instruction.guard) is not PRED:
        return "Predicate expression expected"
    opcode = instruction.opcode
    if opcode not in isa.OPCODES:
        return f"Not a name of any known instruction: '{opcode}'"
    form = isa.FORMS.get(opcode)
    for modifier in instruction.modifiers:
        if modifier not in isa.MODIFIERS and "::" not in modifier:
            if opcode in isa.PLAIN:
                return f"Unknown modifier '.{modifier}'"
            return None
    if form is None or not isa.APART.isdisjoint(instruction.modifiers):
        return None
    return _against(form, instruction, type_of)


def _against(form: isa.Form, instruction: Instruction, type_of: TypeOf) -> str | None:
    opcode, operands = instruction.opcode, instruction.operands
    named = [TYPES[each] for each in instruction.modifiers if each in TYPES]
    if len(named) < form.named or (form.types and named[-1].name not in form.types):
        return f"Unexpected instruction types specified for '{opcode}'"
    if len(named) > max(form.named, 1):
        return None  # of mixed precision: more forms than are written down
    kind = named[-1] if named else None
    for asked, choice in form.needs:
        if _asks(asked, kind) and choice.isdisjoint(instruction.modifiers):
            return f"One of .{' .'.join(sorted(choice))} required for instruction '{opcode}'"
    if not len(form.operands) - form.optional <= len(operands) <= len(form.operands):
        return f"Arguments mismatch for instruction '{opcode}'"
    wide = "wide" in instruction.modifiers
    for place, operand in zip_longest(form.operands, operands):
        if operand is None:
            break
        if not _fits(place.lower(), operand, named[0] if place == "L" else kind, wide, type_of):
            return f"Arguments mismatch for instruction '{opcode}'"
    return None


def _asks(asked: str, kind: Type | None) -> bool:
    return not asked or (kind is not None and kind.kind in (("f",) if asked == "f" else ("u", "s")))


def _fits(place: str, operand: Operand, kind: Type | None, wide: bool, type_of: TypeOf) -> bool:
    if place == "*" or (isinstance(operand, Register) and operand.name == "_"):
        return True
    if place == "d" and isinstance(operand, Pair):
        return all(_fits("p", each, kind, wide, type_of) for each in (operand.first, operand.second))
    if place in "dp":
        return isinstance(operand, (Register, Not)) and type_of(operand.name) in (PRED, None)
    if place == "c":
        kind = TYPES["u32"]
    elif place == "w" and wide and kind is not None:
        kind = TYPES.get(f"{kind.kind}{kind.bits * 2}")
    if kind is None:
        return True
    if place == "l":
        # Of vectors ptxas itself looks at no more than this in places.
        if isinstance(operand, Vector):
            types = [type_of(each.name) for each in operand.items if isinstance(each, Register)]
            return all(each is None or each.kind == "x" or each.bits >= kind.bits for each in types)
        return not isinstance(operand, Register) or _holds(type_of(operand.name), kind)
    if place == "m" and isinstance(operand, (Vector, Address)):
        return True
    if isinstance(operand, Immediate):
        whole = isinstance(operand.value, int)
        return whole != kind.is_float or kind.kind == "b" or (place == "m" and whole)
    if isinstance(operand, Register) or (isinstance(operand, Not) and kind is PRED):
        register = type_of(operand.name)
        return register is None or agrees(register, kind)
    return False


def agrees(register: Type, kind: Type) -> bool:
    """Whether a register is an operand of that type: of the same width, and one of them is only bits, or both
    are whole numbers, or both are floats."""
    if register.kind == "x":
        return True  # two halves: ptxas takes such a register nearly everywhere
    if register.bits != kind.bits or (register is PRED) != (kind is PRED):
        return False
    if "b" in (register.kind, kind.kind):
        return True
    return register.name == kind.name or (register.kind in "us" and kind.kind in "us")


def _holds(register: Type | None, kind: Type) -> bool:
    """Whether a load may write, a store read that register, which may be wider."""
    if register is None or register.bits <= kind.bits:
        return register is None or agrees(register, kind)
    if "b" in (register.kind, kind.kind):
        return True
    return register.kind in "usx" and (kind.kind != "f" or kind.bits == 16)
