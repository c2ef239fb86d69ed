"""Which handler emits which opcode, and the strict reading of modifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import PtxError
from ..model import Instruction
from ..types import TYPES, Type

if TYPE_CHECKING:
    from .function import FunctionEmitter

Handler = Callable[["FunctionEmitter", Instruction, "Modifiers"], None]
HANDLERS: dict[tuple[str, str], Handler] = {}

# The class of an instruction that has handlers per class: by its last type.
_CLASSES = {
    **dict.fromkeys(("f32", "f64"), "float"),
    **dict.fromkeys(("f16", "bf16", "f16x2", "bf16x2"), "half"),
    **dict.fromkeys(("u16x2", "s16x2", "f32x2"), "packed"),
}


def opcode(*names: str, of: str = "") -> Callable[[Handler], Handler]:
    """Registers a handler for opcodes, or for only those of a class: float, half or packed."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert (name, of) not in HANDLERS, name
            HANDLERS[name, of] = handler
        return handler

    return register


def handler_of(instruction: Instruction) -> Handler | None:
    for modifier in reversed(instruction.modifiers):
        if modifier in TYPES:
            found = HANDLERS.get((instruction.opcode, _CLASSES.get(modifier, "")))
            if found is not None:
                return found
            break
    return HANDLERS.get((instruction.opcode, ""))


class Modifiers:
    """An instruction's modifiers: types in order, and flags, each of which a handler must take."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.types: list[Type] = []
        self.flags: list[str] = []
        for modifier in instruction.modifiers:
            found = TYPES.get(modifier)
            if found is not None:
                self.types.append(found)
            else:
                self.flags.append(modifier)

    def fail(self, reason: str) -> PtxError:
        return PtxError("", self.instruction.line, self.instruction.text, reason)

    def flag(self, name: str) -> bool:
        if name in self.flags:
            self.flags.remove(name)
            return True
        return False

    def choice(self, *names: str) -> str | None:
        for name in self.flags:
            if name in names:
                self.flags.remove(name)
                return name
        return None

    def need(self, *names: str) -> str:
        found = self.choice(*names)
        if found is None:
            raise self.fail(f"needs one of .{' .'.join(names)}")
        return found

    def type(self) -> Type:
        if not self.types:
            raise self.fail("a type is missing")
        return self.types.pop(0)

    def drop(self, prefixes: tuple[str, ...]) -> None:
        """Takes hints that change no result."""
        self.flags = [flag for flag in self.flags if not flag.startswith(prefixes)]

    def finish(self) -> None:
        left = [f".{flag}" for flag in self.flags] + [f".{each.name}" for each in self.types]
        if left:
            raise self.fail(f"unknown modifier {' '.join(left)}")
