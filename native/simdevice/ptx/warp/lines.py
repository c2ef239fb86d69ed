"""Registers in which lanes follow each other: a few numbers tell what all of them have.

An index is mostly a number of the block's plus tid.x, times a size, plus an address. Where the lanes of a
warp follow each other in tid.x they have `offset + scale * wide(base + stride * lane)`: `base` and `offset`
are one for the warp, the others are known when the kernel is compiled, and the sum in brackets may wrap. So
an access asks about its first lane and its last whether all are neighbours, and vectors of addresses are
made only where they are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..emit import layout
from ..model import Address, Instruction
from ..types import TYPES
from .rows import Shape
from .widen import WARP

if TYPE_CHECKING:
    from ..emit.function import Slot
    from .function import WarpEmitter
    from .uniform import Uniformity

_UNIFORM = {f"%{name}.{axis}" for name in ("ntid", "ctaid", "nctaid") for axis in "xyz"}
_WIDE = {"s32": "sext", "u32": "zext"}
_MOST = 1 << 16  # of a stride or a scale: no access is so large, and a sum wraps once at most


@dataclass(frozen=True)
class Line:
    """`wide`: how the sum becomes 64 bits, `sext` or `zext`; empty: the value has 32 and neither scale nor
    offset."""

    stride: int
    scale: int = 1
    wide: str = ""

    def times(self, factor: int) -> Line:
        """Return the line of the products with a number."""
        if self.wide:
            return replace(self, scale=self.scale * factor)
        return replace(self, stride=self.stride * factor)


class Unknown:
    """A register of which nothing contradicts yet that it is a line."""


Found = Line | Unknown | None


@dataclass(frozen=True)
class Step:
    """An instruction that gives a line: operand `source`, a line, times `factor`, and then the operand `plus`
    (`sign`: added or subtracted) or the product of the operands `product`. No source: tid.x."""

    line: Line
    source: int | None = None
    factor: int = 1
    plus: int | None = None
    sign: str = "add"
    product: tuple[int, int] | None = None


class Lines:
    """Which registers of a kernel are lines (`registers`), and the instructions that write them (`steps`)."""

    def __init__(self, plan: Uniformity) -> None:
        self.plan = plan
        self.record = plan.record
        self.registers: dict[str, Line] = {}
        self.steps: dict[int, Step] = {}
        self._solve()

    def _solve(self) -> None:
        """A register is a line if all that is written to it is the same one, and no lane writes it while
        others go on elsewhere with what they have of it."""
        self.writers: dict[str, list[int]] = {}
        for position, pointers in self.record.writes.items():
            for pointer in pointers:
                self.writers.setdefault(pointer, []).append(position)
        self.state: dict[str, Found] = {
            pointer: Unknown()
            for pointer in self.writers
            if self.plan.is_varying(pointer) and not self.plan.is_shared(pointer)
        }
        changed = True
        while changed:
            changed = False
            for pointer, before in list(self.state.items()):
                if before is None:
                    continue
                now: Found = before
                for position in self.writers[pointer]:
                    step = self._step(position)
                    found = step.line if isinstance(step, Step) else step
                    if isinstance(found, Unknown):
                        continue
                    now = found if isinstance(now, Unknown) or now == found else None
                    if now is None:
                        break
                if now != before:
                    self.state[pointer] = now
                    changed = True
        self.registers = {name: each for name, each in self.state.items() if isinstance(each, Line)}
        for pointer in self.registers:
            for position in self.writers[pointer]:
                step = self._step(position)
                assert isinstance(step, Step)
                self.steps[position] = step

    def _step(self, position: int) -> Step | Unknown | None:
        item = self.record.items[position]
        if not isinstance(item, Instruction) or item.guard is not None:
            return None
        rule = _RULES.get((item.opcode, *item.modifiers))
        if rule is None or len(self.record.writes[position]) != 1:
            return None
        found = rule(_Operands(self, self.record.named[position]))
        if isinstance(found, Step):
            line = found.line
            if not 0 < abs(line.stride) < _MOST or not 0 < abs(line.scale) < _MOST:
                return None
        return found


class _Operands:
    """What is known of an instruction's operands, by their numbers."""

    def __init__(self, lines: Lines, names: list[str | int | None]) -> None:
        self.lines = lines
        self.names = names

    def line(self, index: int) -> Found:
        name = self.names[index]
        return self.lines.state.get(name) if isinstance(name, str) else None

    def is_tid(self, index: int) -> bool:
        return self.names[index] == "%tid.x"

    def number(self, index: int) -> int | None:
        name = self.names[index]
        return self.lines.plan.constants.get(name) if isinstance(name, str) else name

    def same(self, index: int) -> bool:
        """Whether it is one value for the warp."""
        name = self.names[index]
        if isinstance(name, str) and name not in _UNIFORM:
            return name in self.lines.writers and not self.lines.plan.is_varying(name)
        return name is not None


Rule = Callable[[_Operands], Step | Unknown | None]


def _of(wide: bool, line: Found, then: Callable[[Line], Step | None]) -> Step | Unknown | None:
    """What follows from an operand that is a line of that width."""
    if isinstance(line, Line):
        return then(line) if bool(line.wide) == wide else None
    return line


def _move(wide: bool) -> Rule:
    def rule(of: _Operands) -> Step | Unknown | None:
        if of.is_tid(1) and not wide:
            return Step(Line(1))
        return _of(wide, of.line(1), lambda line: Step(line, 1))

    return rule


def _add(wide: bool) -> Rule:
    def rule(of: _Operands) -> Step | Unknown | None:
        for source, other in (1, 2), (2, 1):
            if of.same(other):
                return _of(wide, of.line(source), partial(Step, source=source, plus=other))
        return None

    return rule


def _subtract(wide: bool) -> Rule:
    def rule(of: _Operands) -> Step | Unknown | None:
        if not of.same(2):
            return None
        return _of(wide, of.line(1), lambda line: Step(line, 1, plus=2, sign="sub"))

    return rule


def _product(source: int, factor: int, line: Line) -> Step:
    return Step(line.times(factor), source, factor)


def _multiply(wide: bool) -> Rule:
    def rule(of: _Operands) -> Step | Unknown | None:
        for source, other in (1, 2), (2, 1):
            number = of.number(other)
            if number is not None:
                return _of(wide, of.line(source), partial(_product, source, number))
        return None

    return rule


def _shift(wide: bool) -> Rule:
    def rule(of: _Operands) -> Step | Unknown | None:
        amount = of.number(2)
        if amount is None or not 0 <= amount < 16:
            return None
        return _of(wide, of.line(1), partial(_product, 1, 1 << amount))

    return rule


def _multiply_add(wide: bool) -> Rule:
    multiply = _multiply(wide)

    def rule(of: _Operands) -> Step | Unknown | None:
        if of.same(1) and of.same(2):
            return _of(wide, of.line(3), lambda line: Step(line, 3, product=(1, 2)))
        found = multiply(of)
        if isinstance(found, Step):
            return replace(found, plus=3) if of.same(3) else None
        return found

    return rule


def _widen(kind: str) -> Rule:
    def rule(of: _Operands) -> Step | Unknown | None:
        return _of(False, of.line(1), lambda line: Step(Line(line.stride, 1, _WIDE[kind]), 1))

    return rule


def _multiply_wide(kind: str, plus: int | None = None) -> Rule:
    def rule(of: _Operands) -> Step | Unknown | None:
        for source, other in (1, 2), (2, 1):
            number = of.number(other)
            if number is not None and 0 < number < _MOST and (plus is None or of.same(plus)):

                def then(line: Line, source: int = source, number: int = number) -> Step:
                    return Step(Line(line.stride, number, _WIDE[kind]), source, plus=plus)

                return _of(False, of.line(source), then)
        return None

    return rule


def _rules() -> dict[tuple[str, ...], Rule]:
    found: dict[tuple[str, ...], Rule] = {}
    for bits in "32", "64":
        wide = bits == "64"
        found["shl", f"b{bits}"] = _shift(wide)
        for sign in "sub":
            found["mov", sign + bits] = _move(wide)
        for sign in "su":
            kind = sign + bits
            found["add", kind] = _add(wide)
            found["sub", kind] = _subtract(wide)
            found["mul", "lo", kind] = _multiply(wide)
            found["mad", "lo", kind] = _multiply_add(wide)
    for kind in _WIDE:
        found["mul", "wide", kind] = _multiply_wide(kind)
        found["mad", "wide", kind] = _multiply_wide(kind, 3)
        for to in "s64", "u64":
            found["cvt", to, kind] = _widen(kind)
    return found


_RULES = _rules()


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
