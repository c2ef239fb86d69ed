"""Which handler emits which opcode."""

from __future__ import annotations

from collections.abc import Callable

from ..model import Instruction
from ..types import TYPES
from .function import Handler

HANDLERS: dict[tuple[str, str], Handler] = {}

# The class of an instruction that has handlers per class: by its last type.
_CLASSES = {
    **dict.fromkeys(("f32", "f64"), "float"),
    **dict.fromkeys(("f16", "bf16", "f16x2", "bf16x2"), "half"),
    **dict.fromkeys(("u16x2", "s16x2", "u8x4", "s8x4", "f32x2"), "packed"),
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
