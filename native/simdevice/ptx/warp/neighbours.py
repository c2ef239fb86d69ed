"""Accesses whose addresses are lines (lines.py): whether the lanes are neighbours, asked of two of them."""

from __future__ import annotations

from ..emit import layout
from ..emit.function import Slot
from ..model import Address, Instruction
from ..types import TYPES
from .function import WarpEmitter
from .lines import Line, Lines, Step
from .rows import Shape
from .widen import WARP


class Numbers:
    """The numbers of a kernel's lines, in slots of their own beside the registers'."""

    def __init__(self, e: WarpEmitter, lines: Lines) -> None:
        self.e = e
        self.lines = lines
        self.slots: dict[str, tuple[str, str]] = {}

    def note(self, position: int, instruction: Instruction) -> None:
        """Emits the numbers of what an instruction has written, if that is a line."""
        step = self.lines.steps.get(position)
        if step is None:
            return
        e, wide = self.e, step.line.wide
        bits = 64 if wide else 32
        kind = TYPES[f"u{bits}"]
        base, offset = self._before(position, step)
        value = offset if wide else base
        if step.factor != 1:
            value = e.raw_op(f"mul i{bits} {value}, {step.factor}")
        if step.product is not None:
            first, second = (e.read(instruction.operands[index], kind) for index in step.product)
            value = e.raw_op(f"add i{bits} {value}, {e.raw_op(f'mul i{bits} {first}, {second}')}")
        elif step.plus is not None:
            value = e.raw_op(f"{step.sign} i{bits} {value}, {e.read(instruction.operands[step.plus], kind)}")
        (target,) = self.lines.record.writes[position]
        slots = self._slots_of(target)
        e.raw(f"store i32 {base if wide else value}, ptr {slots[0]}")
        e.raw(f"store i64 {value if wide else offset}, ptr {slots[1]}")

    def _before(self, position: int, step: Step) -> tuple[str, str]:
        """The numbers of what an instruction is given."""
        if step.source is None:
            return self._first_tid(), "0"
        source = self.lines.record.named[position][step.source]
        assert isinstance(source, str)
        return self._load(source)

    def _slots_of(self, pointer: str) -> tuple[str, str]:
        if pointer not in self.slots:
            self.slots[pointer] = slots = self.e.alloca("i32"), self.e.alloca("i64")
            self.e.entry += [f"  store i32 0, ptr {slots[0]}", f"  store i64 0, ptr {slots[1]}"]
        return self.slots[pointer]

    def _load(self, pointer: str) -> tuple[str, str]:
        slots = self._slots_of(pointer)
        return self.e.raw_op(f"load i32, ptr {slots[0]}"), self.e.raw_op(f"load i64, ptr {slots[1]}")

    def _tid(self, lane: int) -> str:
        e, offset = self.e, layout.LANES["tid.x"] + 4 * lane
        where = e.entry_value(f"&tid.x {lane}", f"getelementptr i8, ptr %warp, i64 {offset}")
        return e.entry_value(f"tid.x {lane}", f"load i32, ptr {where}, align 4")

    def _first_tid(self) -> str:
        return self._tid(0)

    def _follow(self) -> str:
        """Whether the warp's lanes follow each other in tid.x."""
        e = self.e
        if self.lines.plan.shape is Shape.ROWS:
            return "true"
        span = e.entry_value("tid.x span", f"sub i32 {self._tid(WARP - 1)}, {self._tid(0)}")
        return e.entry_value("tid.x follows", f"icmp eq i32 {span}, {WARP - 1}")

    def row(self, operand: Address, bits: int, size: int) -> Row | None:
        """The addresses of an access of `size` bytes by each lane, if they may be a row of them."""
        e = self.e
        slot = e.register(operand.base or "")
        if slot is None:
            return None
        line = self.lines.registers.get(slot.pointer)
        if line is None or bool(line.wide) != (bits == 64) or line.stride * line.scale != size:
            return None
        base, offset = self._load(slot.pointer)
        if e.kernel.checked:
            base, offset = e.raw_op(f"freeze i32 {base}"), e.raw_op(f"freeze i64 {offset}")
        return Row(e, slot, line, (base, offset), operand.offset, self._follow())


class Row:
    """`first`: the address of lane 0. `good`: whether those of the others follow it."""

    def __init__(
        self, e: WarpEmitter, slot: Slot, line: Line, numbers: tuple[str, str], beyond: int, follow: str
    ) -> None:
        self.e, self.slot, self.line, self.beyond = e, slot, line, beyond
        self.base, self.offset = numbers
        self.sure = follow == "true"
        self.first = self._of(0)
        self.good = follow
        if line.wide:
            span = e.raw_op(f"sub i64 {self._of(WARP - 1)}, {self.first}")
            whole = e.raw_op(f"icmp eq i64 {span}, {(WARP - 1) * line.stride * line.scale}")
            self.good = e.raw_op(f"and i1 {follow}, {whole}")

    def _of(self, lane: int) -> str:
        e, line = self.e, self.line
        value = e.raw_op(f"add i32 {self.base}, {line.stride * lane}")
        if not line.wide:
            return e.raw_op(f"add i32 {value}, {self.beyond}")
        value = e.raw_op(f"{line.wide} i32 {value} to i64")
        value = e.raw_op(f"mul i64 {value}, {line.scale}")
        value = e.raw_op(f"add i64 {value}, {self.offset}")
        return e.raw_op(f"add i64 {value}, {self.beyond}")

    def addresses(self) -> str:
        """Return every lane's, whether they follow each other or not. Those of 32 bits are cheap to keep."""
        e, line = self.e, self.line
        if not line.wide:
            value = e.load_slot(self.slot)
            if e.kernel.checked:
                value = e.op(f"freeze i32 {value}")
            return e.op(f"add i32 {value}, {self.beyond}")
        value = e.op(f"sub i32 {e.thread_field('tid.x')}, {e.element(e.thread_field('tid.x'), '0')}")
        value = e.op(f"add i32 {e.op(f'mul i32 {value}, {line.stride}')}, {self.base}")
        value = e.op(f"mul i64 {e.op(f'{line.wide} i32 {value} to i64')}, {line.scale}")
        return e.op(f"add i64 {value}, {e.op(f'add i64 {self.offset}, {self.beyond}')}")
