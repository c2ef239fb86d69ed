"""Video instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .table import Row, Table

SCALAR: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
}
LANE_WISE = SCALAR | {"vavrg": lambda x, y: (x + y + (x + y >= 0)) >> 1}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
}


def part(word: int, bits: int, index: int, signed: bool) -> int:
    value = word >> bits * index & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def clamp(value: int, bits: int, signed: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def lanes(f: Callable[[int, int], int], bits: int, signed: bool, saturate: bool) -> Callable[[int, int], int]:
    def result(x: int, y: int) -> int:
        word = 0
        for index in range(32 // bits):
            value = f(part(x, bits, index, signed), part(y, bits, index, signed))
            value = clamp(value, bits, signed) if saturate else value
            word |= (value & ((1 << bits) - 1)) << bits * index
        return word

    return result


def counted(c: Callable[[int, int], bool], bits: int, signed: bool) -> Callable[[int, int, int], int]:
    """How many lanes compare so, and a number."""

    def result(x: int, y: int, z: int) -> int:
        each = range(32 // bits)
        return z + sum(c(part(x, bits, index, signed), part(y, bits, index, signed)) for index in each)

    return result


def rows() -> list[Row]:
    found = []
    for t, signed in (("u32", False), ("s32", True)):
        for name, f in SCALAR.items():
            kind = f"{name}.{t}.{t}.{t}"
            found += [
                Row(kind, f"{t} {t} -> {t}", f),
                Row(f"{kind}.sat", f"{t} {t} -> {t}", lambda x, y, f=f, s=signed: clamp(f(x, y), 32, s)),
                Row(
                    f"{kind} parts",
                    "u32 u32 -> u32",
                    lambda x, y, f=f, s=signed: f(part(x, 8, 3, s), part(y, 16, 1, s)),
                    f"{kind} %d, %a.b3, %b.h1;",
                ),
                Row(
                    f"{kind} of three",
                    f"{t} {t} {t} -> {t}",
                    lambda x, y, z, f=f: f(x, y),
                    f"{kind} %d, %a, %b, %c;",
                ),
                Row(
                    f"{kind}.add",
                    f"{t} {t} {t} -> {t}",
                    lambda x, y, z, f=f: f(x, y) + z,
                    f"{kind}.add %d, %a, %b, %c;",
                ),
            ]
        for name, f in LANE_WISE.items():
            for count in (2, 4):
                for sat in ("", ".sat"):
                    kind = f"{name}{count}.{t}.{t}.{t}{sat}"
                    reference = lanes(f, 32 // count, signed, bool(sat))
                    found.append(Row(kind, "u32 u32 -> u32", reference, f"{kind} %d, %a, %b, 0;"))
        for name, c in COMPARE.items():
            found.append(Row(f"vset.{t}.{t}.{name}", f"{t} {t} -> u32", lambda x, y, c=c: int(c(x, y))))
            for count in (2, 4):
                kind = f"vset{count}.{t}.{t}.{name}"
                reference = lanes(c, 32 // count, signed, False)
                found.append(Row(kind, "u32 u32 -> u32", reference, f"{kind} %d, %a, %b, 0;"))
                code = f"{kind}.add %d, %a, %b, %c;"
                added = counted(c, 32 // count, signed)
                found.append(Row(f"{kind}.add", "u32 u32 u32 -> u32", added, code))
    for mode, amount in (("clamp", lambda n: min(n, 32)), ("wrap", lambda n: n & 31)):
        found += [
            Row(f"vshl.u32.u32.u32.{mode}", "u32 u32 -> u32", lambda x, n, a=amount: x << a(n)),
            Row(f"vshr.u32.u32.u32.{mode}", "u32 u32 -> u32", lambda x, n, a=amount: x >> a(n)),
            Row(f"vshr.s32.s32.u32.{mode}", "s32 u32 -> s32", lambda x, n, a=amount: x >> a(n)),
        ]
    for shift in (0, 7, 15):
        suffix = f".shr{shift}" if shift else ""
        found += [
            Row(f"vmad.{t}.{t}.{t}{suffix}", f"{t} {t} {t} -> {t}", lambda x, y, z, n=shift: (x * y + z) >> n)
            for t in ("u32", "s32")
        ]
    of_signed, mixed = "s32 s32 s32 -> s32", "u32 u32 s32 -> s32"
    found += [
        Row("vmad - c", of_signed, lambda x, y, z: x * y - z, "vmad.s32.s32.s32 %d, %a, %b, -%c;"),
        Row(
            "vmad - product",
            of_signed,
            lambda x, y, z: clamp(z - x * y, 32, True),
            "vmad.s32.s32.s32.sat %d, -%a, %b, %c;",
        ),
        Row("vmad, both factors", of_signed, lambda x, y, z: x * y + z, "vmad.s32.s32.s32 %d, -%a, -%b, %c;"),
        # A product that is negative has a sign; what the result is said to be changes nothing.
        Row(
            "vmad - parts",
            mixed,
            lambda x, y, z: clamp(z - part(x, 16, 1, False) * part(y, 8, 2, False) >> 7, 32, True),
            "vmad.u32.u32.u32.sat.shr7 %d, %a.h1, -%b.b2, %c;",
        ),
        Row(
            "vmad.s32.u32.u32",
            "u32 u32 u32 -> u32",
            lambda x, y, z: clamp(x * y + z >> 15, 32, False),
            "vmad.s32.u32.u32.sat.shr15 %d, %a, %b, %c;",
        ),
    ]
    return found


TABLE = Table(rows())


@pytest.mark.some(50)
@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.kernel[2:])
def test_instruction(row: Row) -> None:
    TABLE.check(row)
