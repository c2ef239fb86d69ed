"""One instruction against the ISA's table: its name and modifiers, the number and types of its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest

from . import isa
from .model import Address, Immediate, Instruction, Not, Operand, Pair, Register, Vector
from .types import PRED, TYPES, Type

# The type of a register; None: the name is something else, or several registers of different types.
TypeOf = Callable[[str], Type | None]


def fault(instruction: Instruction, type_of: TypeOf, is_predicate: Callable[[str], bool]) -> str | None:
    """What is wrong with an instruction, in ptxas's words; None: nothing that is looked at."""
    guard = instruction.guard
    if guard not in (None, isa.SPECIAL_PREDICATE) and not is_predicate(guard):
        return "Predicate expression expected"
    opcode = instruction.opcode
    if opcode not in isa.OPCODES:
        return f"Not a name of any known instruction: '{opcode}'"
    words = isa.WORDS.get(opcode)
    for modifier in instruction.modifiers:
        if words is not None and modifier not in words and modifier not in TYPES and "::" not in modifier:
            return f"Unknown modifier '.{modifier}'"
        if words is None and modifier not in isa.MODIFIERS and "::" not in modifier:
            if opcode in isa.PLAIN:
                return f"Unknown modifier '.{modifier}'"
            return None if opcode not in isa.SHAPES else _shape_fault(instruction)
    if not isa.APART.isdisjoint(instruction.modifiers) and opcode != "fence":
        return None
    form = isa.FORMS.get(opcode)
    if opcode in isa.LONGER and len(instruction.operands) == len(isa.LONGER[opcode].operands):
        form = isa.LONGER[opcode]
    if (actions := isa.ACTIONS.get(opcode)) is not None:
        form = next((actions[word] for word in actions if word in instruction.modifiers), None)
        if form is None:
            return _required(actions, opcode)
    return _against(form, instruction, type_of) if form is not None else None


def _required(choice: Iterable[str], opcode: str) -> str:
    return f"One of .{' .'.join(sorted(choice))} required for instruction '{opcode}'"


def _shape_fault(instruction: Instruction) -> str | None:
    """Of a product of dense matrices, and of what loads and stores them."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    named = [each for each in modifiers if each in TYPES]
    if any(each.startswith("sp") or each in ("c", "d") for each in modifiers) or not named:
        return None
    if len(named) == 2:  # a wmma.mma of halves, which names D and C
        named = ["f16", "f16"]
    shapes = isa.SHAPES[opcode].get(named[min(1, len(named) - 1)])
    shape = next((each for each in modifiers if isa.SHAPE.match(each)), None)
    if shapes is None or shape is None:
        return None
    if shape not in shapes:
        return f"Illegal matrix shape '.{shape}' for instruction '{opcode}'"
    if len(named) == 4:
        d, a, b, c = named
        alike = d == c or opcode == "wmma" or (shape, d) == ("m8n8k4", "f32")
        if b not in isa.FACTORS[a] or not {d, c} <= isa.SUMS[a] or not alike:
            return f"Unexpected instruction types specified for '{opcode}'"
    return None


def _against(form: isa.Form, instruction: Instruction, type_of: TypeOf) -> str | None:
    opcode, operands = instruction.opcode, instruction.operands
    named = [TYPES[each] for each in instruction.modifiers if each in TYPES]
    if len(named) < form.named or (form.types and named[-1].name not in form.types):
        return f"Unexpected instruction types specified for '{opcode}'"
    if len(named) > max(form.named, 1):
        return None  # of mixed precision: more forms than are written down
    if named and not form.named:
        return f"Unexpected instruction types specified for '{opcode}'"
    kind = named[-1] if named else None
    if kind is not None and any(kind.name == of and named[0].name not in may for of, may in form.results):
        return f"Unexpected instruction types specified for '{opcode}'"
    for asked, choice in form.needs:
        if _asks(asked, kind) and choice.isdisjoint(instruction.modifiers):
            return _required(choice, opcode)
    if (reason := _combination(form, instruction, kind)) is not None:
        return reason
    fewest = len(form.operands) - form.optional
    if not fewest <= len(operands) <= len(form.operands):
        return f"Arguments mismatch for instruction '{opcode}'"
    if form.joined and form.joined.isdisjoint(instruction.modifiers) != (len(operands) == fewest):
        return f"Arguments mismatch for instruction '{opcode}'"
    wide = "wide" in instruction.modifiers
    vectors = opcode in ("atom", "red") and not {"v2", "v4", "v8"}.isdisjoint(instruction.modifiers)
    for place, operand in zip_longest(form.operands, operands):
        if operand is None:
            break
        if vectors and isinstance(operand, Vector):
            continue
        if not _fits(place.lower(), operand, named[0] if place in "LT" else kind, wide, type_of):
            return f"Arguments mismatch for instruction '{opcode}'"
    return None


def _combination(form: isa.Form, instruction: Instruction, kind: Type | None) -> str | None:
    """Modifiers that each are known and do not go together, or not with the type."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    for word, types in form.only:
        if word in modifiers and (kind is None or kind.name not in types):
            of = f".{kind.name}" if kind is not None else ""
            return f"Illegal modifier '.{word}' for instruction '{opcode}{of}'"
    for word, choice in form.implies:
        if word in modifiers and choice.isdisjoint(modifiers):
            return (
                f"Modifier '.{word}' requires one of .{' .'.join(sorted(choice))} with '{opcode}' instruction"
            )
    for first, second in isa.EXCLUDED:
        if first in modifiers and second in modifiers:
            return f"Modifier '.{first}' cannot be combined with modifier '.{second}'"
    return None


def _asks(asked: str, kind: Type | None) -> bool:
    if asked == "h":
        return kind is not None and kind.name in ("f16", "f16x2", "bf16", "bf16x2")
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
    if place == "n":
        return isinstance(operand, Immediate)
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
