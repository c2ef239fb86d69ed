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

from ..model import Instruction
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
