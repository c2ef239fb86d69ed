"""What each instruction of a function reads and writes, found by emitting it for one thread."""

from __future__ import annotations

from collections import defaultdict

from ..emit.function import FunctionEmitter, Place, Scope, Slot
from ..model import Immediate, Instruction, Operand, Register
from ..types import Type

# Services that give the same to all lanes that ask at once.
_SAME = {f"sim_rt_{name}" for name in ("clock64", "globaltimer", "grid_workspace", "activemask", "vote")}
_SAME |= {f"sim_rt_{name}" for name in ("redux", "bar_red")}
# Instructions that give each lane its own, whatever they are given.
OWN = frozenset(
    {"atom", "shfl", "match", "elect", "movmatrix", "ldmatrix", "mma", "wmma", "mbarrier", "call"}
)


class Recorder(FunctionEmitter):
    """Emits a function as for one thread, and notes which registers each position reads and writes, and which
    positions give a lane what others do not get. Registers go by the names of their allocas. `named`: the
    operands that are registers, special ones by their own names, or whole numbers."""

    def text(self) -> str:
        self.reads: defaultdict[int, set[str]] = defaultdict(set)
        self.writes: defaultdict[int, set[str]] = defaultdict(set)
        self.own: set[int] = set()
        self.named: dict[int, list[str | int | None]] = {}
        self.arguments: set[str] = set()
        self._binding = False
        return super().text()

    def load_slot(self, slot: Slot) -> str:
        self.reads[self.position].add(slot.pointer)
        return super().load_slot(slot)

    def store_slot(self, slot: Slot, value: str) -> None:
        self.writes[self.position].add(slot.pointer)
        super().store_slot(slot, value)

    def thread_field(self, name: str) -> str:
        self.own.add(self.position)
        return super().thread_field(name)

    def lookup(self, name: str) -> Slot | Place | None:
        found = super().lookup(name)
        if isinstance(found, Place) and found.space in ("local", "param"):
            self.own.add(self.position)
        return found

    def call(self, result: str, name: str, *arguments: str, attributes: str = "") -> str:
        if result != "void" and name.startswith("sim_rt_") and name not in _SAME:
            self.own.add(self.position)
        return super().call(result, name, *arguments, attributes=attributes)

    def instruct(self, instruction: Instruction) -> None:
        if instruction.opcode in OWN:
            self.own.add(self.position)
        self.named[self.position] = [self._name(operand) for operand in instruction.operands]
        super().instruct(instruction)

    def _name(self, operand: Operand) -> str | int | None:
        if isinstance(operand, Immediate):
            return operand.value if isinstance(operand.value, int) else None
        if not isinstance(operand, Register):
            return None
        found = super().lookup(operand.name)
        if found is None:
            return operand.name
        return found.pointer if isinstance(found, Slot) else None

    def bind_parameters(self) -> None:
        self._binding = True
        super().bind_parameters()
        self._binding = False

    def new_slot(self, scope: Scope, name: str, kind: Type) -> Slot:
        slot = super().new_slot(scope, name, kind)
        if self._binding:
            self.arguments.add(slot.pointer)
        return slot
