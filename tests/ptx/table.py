"""Instructions as table rows: each becomes a kernel that applies it to many values and a reference.

A row's reference is a function of Python integers and floats, called for each element. All rows of a table
are kernels of one module, so that a table is parsed once."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from . import driver
from .formats import FORMATS, Format, ulps
from .ptx import HEADER

Value = int | float
BLOCK = 128


@dataclass(frozen=True)
class Row:
    """`signature`: the types of sources and destination, `s32 s32 -> s32`. `code` defaults to one
    instruction named as the row is. In code %d is the destination, a `pred` one %p; %a, %b, %c sources."""

    name: str
    signature: str
    reference: Callable[..., Value]
    code: str = ""
    inputs: tuple[Sequence[Value], ...] = ()
    max_ulps: float = 0.0
    signed_zero: bool = True

    @property
    def sources(self) -> list[str]:
        return self.signature.partition("->")[0].split()

    @property
    def destination(self) -> str:
        return self.signature.partition("->")[2].strip()

    @property
    def kernel(self) -> str:
        return (
            "k_"
            + "".join(c if c.isalnum() else "_" for c in f"{self.name}_{self.signature}_{self.code}")[:180]
        )


def _width(type_: str) -> int:
    if type_ in ("pred", "f16x2", "bf16x2"):
        return 32
    return int(type_.lstrip("subfe"))


def _register(type_: str) -> str:
    if type_ in ("f32", "f64"):
        return type_
    return f"b{max(_width(type_), 16)}"


def _memory(type_: str) -> str:
    if type_ in ("f32", "f64"):
        return type_
    if type_[0] in "su":
        return type_
    return f"b{_width(type_)}"


def _source(row: Row) -> str:
    letters = "abc"[: len(row.sources)]
    operands = ", ".join(f"%{letter}" for letter in letters)
    code = row.code or f"{row.name} {'%p' if row.destination == 'pred' else '%d'}, {operands};"
    pointers = ", ".join(f".param .u64 {name}" for name in ("out", *(f"in_{x}" for x in letters)))
    lines = [f".visible .entry {row.kernel}({pointers}, .param .u32 n)"]
    lines += [
        "{",
        ".reg .pred %p, %q, %past;",
        ".reg .b32 %i, %n, %t0, %t1, %t2, %t3, %t4;",
        ".reg .b64 %base, %x0, %x1, %x2;",
    ]
    lines += [".reg .b16 %h0, %h1, %h2;", ".reg .f32 %f0, %f1, %f2;"]
    lines += [f".reg .{_register(row.destination)} %d;"]
    lines += [f".reg .{_register(type_)} %{x};" for x, type_ in zip(letters, row.sources, strict=True)]
    lines += ["mov.u32 %i, %ctaid.x;", "mov.u32 %n, %tid.x;", f"mad.lo.u32 %i, %i, {BLOCK}, %n;"]
    lines += ["ld.param.u32 %n, [n];", "setp.ge.u32 %past, %i, %n;", "@%past ret;"]
    for x, type_ in zip(letters, row.sources, strict=True):
        lines += [f"ld.param.u64 %base, [in_{x}];", f"mad.wide.u32 %base, %i, {_width(type_) // 8}, %base;"]
        lines += [f"ld.global.{_memory(type_)} %{x}, [%base];"]
    lines += [code]
    if row.destination == "pred":
        lines += ["selp.u32 %d, 1, 0, %p;"]
    lines += ["ld.param.u64 %base, [out];", f"mad.wide.u32 %base, %i, {_width(row.destination) // 8}, %base;"]
    lines += [f"st.global.{_memory(row.destination)} [%base], %d;", "ret;", "}"]
    return "\n".join(lines)


def module_text(rows: Sequence[Row], header: str = "") -> str:
    return f"{HEADER}{header}\n" + "\n".join(_source(row) for row in rows)


def edges(type_: str) -> list[Value]:
    """The values at which instructions go wrong."""
    if type_ in FORMATS:
        f = FORMATS[type_]
        one_up = 1 + 2.0**-f.fraction_bits
        below_normal = f.smallest_normal - f.smallest
        sizes = [
            0.0,
            f.smallest,
            below_normal,
            f.smallest_normal,
            0.5,
            1.0,
            one_up,
            1.5,
            2.5,
            3.0,
            100.0,
            f.largest,
            math.inf,
        ]
        return [*sizes, *(-size for size in sizes), math.nan]
    bits = _width(type_)
    top = 1 << (bits - 1)
    wide = [
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        33,
        top - 1,
        top,
        top + 1,
        2 * top - 2,
        2 * top - 1,
        0x5A5A5A5A5A5A5A5A % (2 * top),
    ]
    return list(dict.fromkeys(_wrap(type_, value) for value in wide))


def _wrap(type_: str, value: int) -> int:
    bits = _width(type_)
    value &= (1 << bits) - 1
    return value - (1 << bits) if type_[0] == "s" and value >> (bits - 1) else value


def _random(type_: str, rng: random.Random) -> Value:
    bits = rng.getrandbits(_width(type_))
    if type_ in FORMATS:
        f = FORMATS[type_]
        if rng.random() < 0.7:  # near one another, where rounding shows
            bits = (
                f.encode(1.0)
                ^ (bits & ((1 << (f.fraction_bits + 3)) - 1))
                ^ (bits >> (f.bits - 1)) << (f.bits - 1)
            )
        return f.decode(bits)
    return _wrap(type_, bits >> rng.randrange(_width(type_)))


@functools.cache
def _samples(types: tuple[str, ...]) -> list[tuple[Value, ...]]:
    rng = random.Random(" ".join(types))
    combinations = list(itertools.product(*(edges(type_) for type_ in types)))
    if len(combinations) > 700:
        combinations = rng.sample(combinations, 700)
    return combinations + [tuple(_random(type_, rng) for type_ in types) for _ in range(300)]


def samples(row: Row) -> list[tuple[Value, ...]]:
    if row.inputs:
        return list(itertools.product(*row.inputs))
    return _samples(tuple(row.sources))


def pack(type_: str, values: Sequence[Value]) -> np.ndarray:
    bits = _width(type_)
    if type_ in FORMATS:
        f = FORMATS[type_]
        return np.array([f.encode(float(value)) for value in values], dtype=f"u{bits // 8}")
    return np.array([int(value) & (1 << bits) - 1 for value in values], dtype=f"u{bits // 8}")


def unpack(type_: str, array: np.ndarray) -> list[Value]:
    if type_ in FORMATS:
        return [FORMATS[type_].decode(int(bits)) for bits in array]
    return [_wrap(type_, int(bits)) for bits in array]


@dataclass
class Table:
    rows: list[Row]
    header: str = ""
    _module: list[driver.Module] = field(default_factory=list)

    def check(self, row: Row) -> None:
        if not self._module:
            self._module.append(driver.Module(module_text(self.rows, self.header)))
        cases = samples(row)
        columns = list(zip(*cases, strict=True))
        inputs = [
            driver.Buffer(pack(type_, column)) for type_, column in zip(row.sources, columns, strict=True)
        ]
        out = driver.Buffer(pack(row.destination, [0] * len(cases)))
        blocks = -(-len(cases) // BLOCK)
        self._module[0].launch(
            row.kernel, out, *inputs, np.uint32(len(cases)), grid=(blocks,), block=(BLOCK,)
        )
        wrong = []
        for case, got in zip(cases, unpack(row.destination, out.read()), strict=True):
            expected = row.reference(*case)
            if not _agrees(row, got, expected):
                wrong.append(f"{case}: got {got!r}, expected {expected!r}")
        assert not wrong, f"{row.name}: {len(wrong)} of {len(cases)} wrong, such as\n" + "\n".join(wrong[:8])


def _agrees(row: Row, got: Value, expected: Value) -> bool:
    if row.destination in FORMATS:
        format_: Format = FORMATS[row.destination]
        got, expected = float(got), float(expected)
        if row.max_ulps:
            return ulps(format_, got, expected) <= row.max_ulps
        if not row.signed_zero and got == expected == 0:
            return True
        return format_.encode(got) == format_.encode(expected)
    return got == _wrap(row.destination, int(expected))
