"""What a program of structured.py computes, by its statements alone: all threads of a block at once, each
statement for those that are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .form import AREA, INPUTS, SIZES, Here, Memory, Scene, Words
from .form_images import empty
from .form_memory import GATHERED
from .forms import FORMS
from .structured import (
    COUNTERS,
    LOCALS,
    REGISTERS,
    Apart,
    Atomic,
    Break,
    Call,
    Condition,
    Count,
    Counters,
    Exchange,
    Fetch,
    Formed,
    If,
    Lanes,
    Leave,
    Load,
    Loads,
    Local,
    Loop,
    Multiply,
    Operation,
    Program,
    Repeat,
    Return,
    Statement,
    Switch,
)

_COMPARED: dict[str, Callable[[Words, Words], Here]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "ge": np.greater_equal,
}
_REDUCED: dict[str, Callable[[Words], np.uint32]] = {
    "add": lambda words: np.add.reduce(words, dtype=np.uint32),
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


def _shifted(how: str, a: Words, b: Words) -> Words:
    by = b & 63
    wide = a.view(np.int32).astype(np.int64) if how == "arithmetic right" else a.astype(np.int64)
    by = np.minimum(by, 32).astype(np.int64)
    moved = wide << by if how == "left" else wide >> by
    return np.asarray(moved & 0xFFFFFFFF, np.uint32)


def _mirrored(a: Words) -> Words:
    return np.array([int(f"{int(each):032b}"[::-1], 2) for each in a], np.uint32)


def _floats(a: Words, b: Words, product: bool) -> Words:
    with np.errstate(all="ignore"):
        x, y = a.view(np.float32), b.view(np.float32)
        result = x * y if product else x + y
    bits = np.where(np.isnan(result), np.uint32(0x7FFFFFFF), result.view(np.uint32))
    return np.asarray(bits, np.uint32)


def _bytes(a: Words, b: Words) -> Words:
    both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
    result = np.zeros_like(both)
    for place, which in enumerate((0, 5, 7, 2)):  # of 0x2750, the lowest first
        result |= (both >> np.uint64(8 * which) & np.uint64(255)) << np.uint64(8 * place)
    return np.asarray(result, np.uint32)


def operation(s: Operation, a: Words, b: Words, c: Words) -> Words:
    wide = a.astype(np.uint64), b.astype(np.uint64)
    signed = a.view(np.int32), b.view(np.int32)
    rotation = (b & 31).astype(np.uint64)
    results: dict[str, Callable[[], Words]] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "high": lambda: (wide[0] * wide[1] >> np.uint64(32)).astype(np.uint32),
        "mad": lambda: a * b + c,
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
        "not": lambda: ~a,
        "constant": lambda: a + np.uint32(s.k),
        "left": lambda: _shifted(s.name, a, b),
        "right": lambda: _shifted(s.name, a, b),
        "arithmetic right": lambda: _shifted(s.name, a, b),
        "least": lambda: np.minimum(a, b),
        "most": lambda: np.maximum(a, b),
        "least signed": lambda: np.minimum(*signed).view(np.uint32),
        "most signed": lambda: np.maximum(*signed).view(np.uint32),
        "divide": lambda: a // (b | 1),
        "remainder": lambda: a % (b | 1),
        "ones": lambda: np.array([int(each).bit_count() for each in a], np.uint32),
        "zeros": lambda: np.array([32 - int(each).bit_length() for each in a], np.uint32),
        "mirrored": lambda: _mirrored(a),
        "rotated": lambda: (wide[0] << rotation | wide[0] >> (np.uint64(32) - rotation)).astype(np.uint32),
        "chosen": lambda: (a & b) | (~a & c),
        "bytes": lambda: _bytes(a, b),
        "distance": lambda: np.maximum(a, b) - np.minimum(a, b) + c,
        "float add": lambda: _floats(a, b, False),
        "float mul": lambda: _floats(a, b, True),
    }
    return results[s.name]()


def atomic(s: Atomic, was: Words, a: Words, b: Words) -> Words:
    results: dict[str, Callable[[], Words]] = {
        "add": lambda: was + a,
        "exch": lambda: a,
        "cas": lambda: np.where(was == b, a, was),
        "min": lambda: np.minimum(was, a),
        "max": lambda: np.maximum(was, a),
        "and": lambda: was & a,
        "or": lambda: was | a,
        "xor": lambda: was ^ a,
        "inc": lambda: np.where(was >= a, np.uint32(0), was + 1),
        "dec": lambda: np.where((was == 0) | (was > a), a, was - 1),
    }
    return results[s.how]()


@dataclass
class _Frame:
    """What one function's threads have: registers and memory of their own."""

    registers: list[Words]
    local: np.ndarray
    mine: np.ndarray  # what forms have
    returned: Here


class _Block:
    def __init__(self, program: Program, index: int, inputs: Words) -> None:
        self.program, self.inputs, self.index = program, inputs, index
        self.size = program.threads
        self.counters = np.zeros(COUNTERS, np.uint32)
        self.threads = np.arange(self.size)
        self.alive = np.ones(self.size, bool)
        self.slots, self.words = np.zeros((2, self.size), np.uint32)
        size = self.size
        self.memory = Memory(
            {space: np.zeros((size, AREA), np.uint8) for space in ("shared", "global")},
            {
                (space, each): np.zeros((size, each), np.uint8)
                for space in ("shared", "global")
                for each in SIZES
            },
            {name: np.zeros(1, np.uint64) for name in GATHERED},
            empty(),
        )
        first = [self.threads.astype(np.uint32), np.full(self.size, index, np.uint32)]
        first.append(inputs[self.threads % INPUTS])
        self.frame = self._frame(first, [i * 0x9E3779B9 & 0xFFFFFFFF for i in range(3, REGISTERS)])

    def _frame(self, first: list[Words], rest: list[int]) -> _Frame:
        registers = [each.copy() for each in first] + [np.full(self.size, value, np.uint32) for value in rest]
        return _Frame(
            registers,
            np.zeros((self.size, LOCALS), np.uint32),
            np.zeros((self.size, AREA), np.uint8),
            ~self.alive & False,
        )

    def run(self) -> np.ndarray:
        self.statements(self.program.body, self.frame, np.ones(self.size, bool))
        return np.where(self.alive[:, None], np.stack(self.frame.registers, axis=1), np.uint32(0))

    def statements(
        self, statements: tuple[Statement, ...], frame: _Frame, here: Here, broken: Here | None = None
    ) -> None:
        """`broken`: who has left the loop whose body this is."""
        for each in statements:
            now = here & self.alive & ~frame.returned
            if broken is not None:
                now &= ~broken
            if isinstance(each, Break):
                assert broken is not None
                broken |= now & self.holds(each.condition, frame)
            elif now.any():
                self.statement(each, frame, now)

    def holds(self, condition: Condition, frame: _Frame) -> Here:
        mask = np.uint32((1 << condition.bits) - 1)
        a, b = (frame.registers[each] & mask for each in (condition.a, condition.b))
        return _COMPARED[condition.how](a, b)

    def statement(self, s: Statement, frame: _Frame, here: Here) -> None:
        v = frame.registers

        def put(register: int, values: Words, where: Here = here) -> None:
            v[register] = np.where(where, values, v[register]).astype(np.uint32)

        if isinstance(s, Operation):
            where = here if s.guard is None else here & self.holds(s.guard, frame)
            put(s.d, operation(s, v[s.a], v[s.b], v[s.c]), where)
        elif isinstance(s, If):
            yes = self.holds(s.condition, frame)
            self.statements(s.then, frame, here & yes)
            self.statements(s.other, frame, here & ~yes)
        elif isinstance(s, Loop):
            left = v[s.rounds] & 3
            broken = np.zeros(self.size, bool)
            for done in range(3):
                self.statements(s.body, frame, here & (left > done), broken)
        elif isinstance(s, Repeat):
            for _ in range(s.rounds):
                self.statements(s.body, frame, here)
        elif isinstance(s, Apart):
            odd = self.threads & 32 != 0
            self.statements(s.even, frame, here & ~odd)
            self.statements(s.odd, frame, here & odd)
        elif isinstance(s, Switch):
            chosen = v[s.a] % len(s.cases)
            for number, case in enumerate(s.cases):
                self.statements(case, frame, here & (chosen == number))
        elif isinstance(s, Return):
            frame.returned |= here & self.holds(s.condition, frame)
        elif isinstance(s, Leave):
            self.alive &= ~(here & self.holds(s.condition, frame))
        elif isinstance(s, Atomic):
            was = self.words.copy()
            self.words = np.where(here, atomic(s, was, v[s.a], v[s.b]), was).astype(np.uint32)
            put(s.d, was)
        elif isinstance(s, Lanes):
            put(s.d, self.lanes(s, v[s.a], here))
        elif isinstance(s, Count):
            self.counters[s.counter] += np.add.reduce(v[s.a][here], dtype=np.uint32)
        elif isinstance(s, Counters):
            put(s.d, self.counters[v[s.a] % COUNTERS])
        elif isinstance(s, Exchange):
            self.slots = np.where(here, v[s.a], self.slots).astype(np.uint32)
            put(s.d, np.roll(self.slots, -s.k))
        elif isinstance(s, Multiply):
            low, high = self.product(v[s.a], v[s.b], v[s.c[0]], v[s.c[1]])
            put(s.d[0], low)
            put(s.d[1], high)
        elif isinstance(s, Local):
            frame.local[self.threads[here], (v[s.to] % LOCALS)[here]] = v[s.a][here]
            put(s.d, frame.local[self.threads, v[s.at] % LOCALS])
        elif isinstance(s, Load):
            put(s.d, self.inputs[v[s.at] % INPUTS])
        elif isinstance(s, Loads):
            first = v[s.at] % (INPUTS // s.count) * s.count
            for each in range(s.count):
                put(s.d + each, self.inputs[first + each])
        elif isinstance(s, Formed):
            scene = Scene(self.index, self.size, here, s.k, self.inputs, self.memory, frame.mine)
            results = FORMS[s.form].value(scene, *(v[each] for each in s.a))
            for register, values in zip(s.d, results, strict=True):
                put(register, values)
        elif isinstance(s, Fetch):
            x, y = (np.minimum(v[each] & 15, 7) for each in (s.x, s.y))
            put(s.d, self.inputs.reshape(8, 8)[y, x])
        elif isinstance(s, Call):
            called = self._frame(
                [v[s.a], v[s.b], np.full(self.size, 11, np.uint32)], list(range(3, REGISTERS))
            )
            self.statements(self.program.functions[s.function], called, here)
            put(s.d, called.registers[0])

    def lanes(self, s: Lanes, a: Words, here: Here) -> Words:
        result = np.zeros(self.size, np.uint32)
        for first in range(0, self.size, 32):
            members = [each for each in range(first, min(first + 32, self.size)) if here[each]]
            for each in members:
                result[each] = self.told(s, a, members, each, first)
        return result

    def told(self, s: Lanes, a: Words, members: list[int], me: int, first: int) -> int:
        if s.how in _REDUCED:
            return int(_REDUCED[s.how](a[members]))
        if s.how == "first":
            return int(a[members[0]])
        if s.how == "exchange":
            return int(a[first + (me - first ^ s.k)])
        if s.how == "up":
            return int(a[me - s.k if me - s.k >= first else me])
        odd = [each for each in members if a[each] & 1]
        if s.how == "any":
            return int(bool(odd))
        if s.how == "all":
            return int(len(odd) == len(members))
        alike = odd if s.how == "ballot" else [each for each in members if (a[each] ^ a[me]) & 3 == 0]
        return sum(1 << each - first for each in alike)

    def product(self, a: Words, b: Words, c0: Words, c1: Words) -> tuple[Words, Words]:
        """As PTX has them: a lane holds four numbers of a row of A and of a column of B, two of C."""
        results = np.zeros((2, self.size), np.uint32)
        for first in range(0, self.size, 32):
            warp = slice(first, first + 32)
            left = np.ascontiguousarray(a[warp]).view(np.int8).reshape(8, 16).astype(np.int64)
            right = np.ascontiguousarray(b[warp]).view(np.int8).reshape(8, 16).astype(np.int64)
            added = np.stack([c0[warp], c1[warp]], axis=1).view(np.int32).reshape(8, 8).astype(np.int64)
            made = (left @ right.T + added) & 0xFFFFFFFF
            results[:, warp] = made.reshape(32, 2).T.astype(np.uint32)
        return results[0], results[1]


def evaluate(program: Program, inputs: Words) -> np.ndarray:
    """The registers of every thread at the end."""
    with np.errstate(over="ignore"):
        return np.concatenate([_Block(program, index, inputs).run() for index in range(program.blocks)])
