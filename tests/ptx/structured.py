"""Random programs of a small structured language.

Each has one meaning: what lanes tell each other they tell those that a mask names, which are exactly those
that come there. structured_ptx.py writes a program as PTX; evaluated.py, which knows no PTX, says what it
computes. Besides its own statements the language has forms (forms.py), of which each brings both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from .form import Form
from .forms import BY_KIND, FORMS

REGISTERS = 8  # of the kernel and of each function
COUNTERS = 4  # in shared memory, to which threads add
LOCALS = 4
DEEPEST = 3

OPERATIONS = (
    "add",
    "sub",
    "mul",
    "high",
    "mad",
    "and",
    "or",
    "xor",
    "not",
    "constant",
    "left",
    "right",
    "arithmetic right",
    "least",
    "most",
    "least signed",
    "most signed",
    "divide",
    "remainder",
    "ones",
    "zeros",
    "mirrored",
    "rotated",
    "chosen",
    "bytes",
    "distance",
    "float add",
    "float mul",
)
COMPARISONS = ("eq", "ne", "lt", "ge")
REDUCTIONS = ("add", "min", "max", "and", "or", "xor")
ATOMICS = ("add", "exch", "cas", "min", "max", "and", "or", "xor", "inc", "dec")
CASES = 4
TOGETHER, WARPS = "all", "warps"  # who comes to a statement together; else nobody knows


@dataclass(frozen=True)
class Condition:
    """Two registers compared as unsigned numbers of `bits` bits."""

    how: str
    a: int
    b: int
    bits: int


@dataclass(frozen=True)
class Operation:
    name: str
    d: int
    a: int
    b: int
    c: int
    k: int
    guard: Condition | None = None


@dataclass(frozen=True)
class If:
    condition: Condition
    then: tuple[Statement, ...]
    other: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """As many rounds as the lowest two bits of a register say."""

    rounds: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Switch:
    """By the lowest two bits of a register."""

    a: int
    cases: tuple[tuple[Statement, ...], ...]


@dataclass(frozen=True)
class Repeat:
    """As many rounds for all: threads stay together."""

    rounds: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Apart:
    """By whether a warp's number is even: its lanes stay together."""

    even: tuple[Statement, ...]
    odd: tuple[Statement, ...]


@dataclass(frozen=True)
class Break:
    """Leaves the loop whose body this is a statement of."""

    condition: Condition


@dataclass(frozen=True)
class Return:
    """From a function, whose body this is a statement of."""

    condition: Condition


@dataclass(frozen=True)
class Leave:
    """Ends threads, in the kernel or in a function."""

    condition: Condition


@dataclass(frozen=True)
class Lanes:
    """What the lanes of a mask tell each other: first, ballot, any, all, match, one of REDUCTIONS; and of a
    whole warp only: exchange (with lane ^ k), up (by k lanes)."""

    how: str
    d: int
    a: int
    k: int


@dataclass(frozen=True)
class Count:
    """Adds a register to a counter of the block."""

    counter: int
    a: int


@dataclass(frozen=True)
class Counters:
    """The block's counters so far, for each thread the one that a register names. All threads come here."""

    d: int
    a: int


@dataclass(frozen=True)
class Exchange:
    """What the thread k further on in the block has. All threads come here."""

    d: int
    a: int
    k: int


@dataclass(frozen=True)
class Multiply:
    """A product of matrices of 8-bit numbers, by each warp: m8n8k16. All threads come here."""

    d: tuple[int, int]
    a: int
    b: int
    c: tuple[int, int]


@dataclass(frozen=True)
class Atomic:
    """On the thread's own word of the block's shared memory; gives what was there. cas: if that was `b`."""

    how: str
    d: int
    a: int
    b: int


@dataclass(frozen=True)
class Local:
    """Writes a register to the thread's own memory, and reads elsewhere in it."""

    d: int
    to: int
    a: int
    at: int


@dataclass(frozen=True)
class Load:
    d: int
    at: int


@dataclass(frozen=True)
class Loads:
    """Two or four words that follow each other, into registers that do, from where their number divides."""

    d: int
    count: int
    at: int


@dataclass(frozen=True)
class Fetch:
    """What a texture of 8 x 8 words has at the lowest four bits of two registers, or nearest to there."""

    d: int
    x: int
    y: int


@dataclass(frozen=True)
class Call:
    function: int
    d: int
    a: int
    b: int


@dataclass(frozen=True)
class Formed:
    """A form of that name, of registers and a number of its own."""

    form: str
    d: tuple[int, ...]
    a: tuple[int, ...]
    k: int

    @property
    def where(self) -> str:
        return FORMS[self.form].where


Reading = Counters | Exchange | Local | Load | Loads | Fetch | Atomic
Leaving = Break | Return | Leave
Statement = (
    Operation
    | If
    | Loop
    | Switch
    | Repeat
    | Apart
    | Lanes
    | Count
    | Multiply
    | Call
    | Formed
    | Reading
    | Leaving
)


@dataclass
class Program:
    blocks: int
    threads: int
    functions: list[tuple[Statement, ...]] = field(default_factory=list)
    body: tuple[Statement, ...] = ()
    columns: int = 0  # of a block of two dimensions; 0: it has one

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a block."""
        return (self.columns, self.threads // self.columns) if self.columns else (self.threads,)


class _Maker:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.program = Program(2, self.rng.choice((32, 64, 96, 128, 40, 17)))
        if self.program.threads % 8 == 0 and self.rng.random() < 0.25:
            self.program.columns = self.rng.choice((8, self.program.threads // 2))
        self.whole = self.program.threads % 32 == 0
        self.meets = self.rng.random() < 0.8  # threads tell each other something
        self.leave = self.rng.random() < 0.3  # threads end before others do
        self.whole = self.whole and not self.leave
        self.calling = False
        # Functions so far, and of those the ones to which all threads come together.
        self.functions: list[int] = []
        self.meetings: list[int] = []
        # Few kinds of forms in each, so that what goes wrong is not lost among them.
        self.kinds = self.rng.sample(tuple(BY_KIND), 2)

    def make(self) -> Program:
        for index in range(self.rng.randrange(3)):
            meeting = self.rng.random() < 0.4 and not self.leave
            self.calling = not meeting
            self.program.functions.append(tuple(self._some(1, 5, TOGETHER if meeting else "")))
            self.calling = False
            (self.meetings if meeting else self.functions).append(index)
        self.program.body = tuple(self._some(0, 10, TOGETHER))
        return self.program

    def _some(self, depth: int, most: int, who: str = "", looping: bool = False) -> Iterator[Statement]:
        for _ in range(self.rng.randint(1, most)):
            if looping and self.rng.random() < 0.15:
                yield Break(self._condition())
            elif self.calling and depth == 1 and self.rng.random() < 0.1:
                yield Return(self._condition())
            elif self.leave and self.rng.random() < 0.08:
                yield Leave(self._condition())
            else:
                yield self._one(depth, who)

    def _r(self) -> int:
        return self.rng.randrange(REGISTERS)

    def _condition(self) -> Condition:
        return Condition(self.rng.choice(COMPARISONS), self._r(), self._r(), self.rng.choice((1, 2, 5, 32)))

    def _operation(self) -> Operation:
        guard = self._condition() if self.rng.random() < 0.15 else None
        name = self.rng.choice(OPERATIONS)
        return Operation(name, self._r(), self._r(), self._r(), self._r(), self.rng.getrandbits(32), guard)

    def _one(self, depth: int, who: str) -> Statement:
        rng = self.rng
        kinds = ["operation"] * 5 + ["form"] * 7 + ["local", "load", "loads", "fetch", "atomic"]
        if depth < DEEPEST:
            kinds += ["if"] * 3 + ["loop"] * 2 + ["switch"]
            if who:
                kinds += ["repeat"] * 2 + ["apart"] * 2
        callable_ = self.functions + self.meetings * (who == TOGETHER)
        if callable_:
            kinds += ["call"] * 2
        if self.meets:
            kinds += ["lanes"] * 4 + ["count"]
            if who == TOGETHER:
                kinds += ["exchange", "counters"]
            if who and self.whole:
                kinds += ["whole", "multiply"]
        kind = rng.choice(kinds)
        r = self._r
        if kind == "if":
            other = tuple(self._some(depth + 1, 4)) if rng.random() < 0.7 else ()
            return If(self._condition(), tuple(self._some(depth + 1, 4)), other)
        if kind == "loop":
            return Loop(r(), tuple(self._some(depth + 1, 4, looping=True)))
        if kind == "repeat":
            return Repeat(rng.randint(1, 3), tuple(self._some(depth + 1, 4, who)))
        if kind == "apart":
            even, odd = (tuple(self._some(depth + 1, 3, WARPS)) for _ in "01")
            return Apart(even, odd)
        if kind == "switch":
            return Switch(r(), tuple(tuple(self._some(depth + 1, 2)) for _ in range(CASES)))
        if kind == "lanes":
            return Lanes(rng.choice(("first", "ballot", "any", "all", "match", *REDUCTIONS)), r(), r(), 0)
        if kind == "whole":
            return Lanes(rng.choice(("exchange", "up")), r(), r(), rng.randrange(1, 32))
        if kind == "call":
            return Call(rng.choice(callable_), r(), r(), r())
        if kind == "count":
            return Count(rng.randrange(COUNTERS), r())
        if kind == "counters":
            return Counters(r(), r())
        if kind == "exchange":
            return Exchange(r(), r(), rng.randrange(1, self.program.threads))
        if kind == "multiply":
            first = rng.randrange(REGISTERS - 1)
            return Multiply((first, first + 1), r(), r(), (r(), r()))
        if kind == "local":
            return Local(r(), r(), r(), r())
        if kind == "load":
            return Load(r(), r())
        if kind == "loads":
            count = rng.choice((2, 4))
            return Loads(rng.randrange(REGISTERS - count + 1), count, r())
        if kind == "atomic":
            return Atomic(rng.choice(ATOMICS), r(), r(), r())
        if kind == "fetch":
            return Fetch(r(), r(), r())
        if kind == "form":
            fitting = [forms for name in self.kinds if (forms := self._fitting(name, who))]
            if fitting:
                return self._formed(rng.choice(rng.choice(fitting)))
        return self._operation()

    def _fitting(self, kind: str, who: str) -> list[Form]:
        """The forms of a kind that may stand here."""
        where = ["thread"]
        if self.meets:
            where.append("lanes")
            if who and self.whole:
                where.append("warp")
            if who == TOGETHER and not self.leave:
                where.append("block")
        return [each for each in BY_KIND[kind] if each.where in where]

    def _formed(self, form: Form) -> Formed:
        d = tuple(self.rng.sample(range(REGISTERS), form.results))
        return Formed(form.name, d, tuple(self._r() for _ in range(form.given)), self.rng.getrandbits(32))


def make(seed: int) -> Program:
    return _Maker(seed).make()
