"""The strict reading of an instruction's modifiers."""

from __future__ import annotations

from ..errors import PtxError
from ..model import Instruction
from ..types import TYPES, Type


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
