"""Which instructions have handlers of their own for warps."""

from __future__ import annotations

from collections.abc import Callable

from ..emit.modifiers import Modifiers
from ..model import Instruction
from .function import WarpEmitter

WarpHandler = Callable[[WarpEmitter, Instruction, Modifiers], None]
WARP_HANDLERS: dict[str, WarpHandler] = {}


def warp_opcode(*names: str) -> Callable[[WarpHandler], WarpHandler]:
    def register(handler: WarpHandler) -> WarpHandler:
        for name in names:
            assert name not in WARP_HANDLERS, name
            WARP_HANDLERS[name] = handler
        return handler

    return register
