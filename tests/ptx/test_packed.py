"""Pairs in one register: of halves, of singles, of 16-bit integers; each part as the instruction of one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from .formats import BF16, F16, F32, Arithmetic, Format
from .table import Row, Table

MODES = ("rn", "rz", "rm", "rp")
Part = Callable[..., int]  # of one part of each operand, as bits


def parts(word: int, bits: int) -> tuple[int, int]:
    return word & (1 << bits) - 1, word >> bits


def both(part: Part, bits: int, count: int = 2) -> Callable[..., int]:
    """The part's instruction on the lower and on the upper half, or on each of more numbers."""
    mask = (1 << bits) - 1

    def result(*words: int) -> int:
        columns = [[word >> shift & mask for word in words] for shift in range(0, count * bits, bits)]
        return sum((part(*each) & mask) << bits * index for index, each in enumerate(columns))

    return result


def of_floats(f: Format, operation: Callable[..., float]) -> Part:
    return lambda *bits: f.encode(operation(*(f.decode(each) for each in bits)))


def relu(operation: Callable[..., float]) -> Callable[..., float]:
    """Negative results, -0 among them, become +0; NaN stays."""

    def clamped(*values: float) -> float:
        result = operation(*values)
        return result if math.isnan(result) or result > 0 else 0.0

    return clamped


def extreme(largest: bool, nan: bool = False, xorsign: bool = False) -> Callable[..., float]:
    """min and max: -0 is less than +0; a NaN loses, or with .NaN wins. With .xorsign.abs of magnitudes, and
    the sign is that of the product."""

    def chosen(x: float, y: float) -> float:
        if math.isnan(x) or math.isnan(y):
            if nan or (math.isnan(x) and math.isnan(y)):
                return math.nan
            kept = y if math.isnan(x) else x
            return math.copysign(kept, math.copysign(1, x) * math.copysign(1, y)) if xorsign else kept
        sign = math.copysign(1, x) * math.copysign(1, y)
        x, y = (abs(x), abs(y)) if xorsign else (x, y)
        found = (max if largest else min)((x, y), key=lambda each: (each, math.copysign(1, each)))
        return math.copysign(found, sign) if xorsign else found

    return chosen


def halves() -> list[Row]:
    rows = []
    two, three = "u32 u32 -> u32", "u32 u32 u32 -> u32"
    for f in (F16, BF16):
        t = f"{f.name}x2"

        def row(name: str, signature: str, operation: Callable[..., float], f: Format = f) -> None:
            rows.append(Row(name, signature, both(of_floats(f, operation), 16)))

        exact = Arithmetic(f)
        for name in ("add", "sub", "mul"):
            row(f"{name}.rn.{t}", two, getattr(exact, name))
        row(f"fma.rn.{t}", three, exact.fma)
        row(f"fma.rn.relu.{t}", three, relu(exact.fma))
        for largest, name in ((False, "min"), (True, "max")):
            row(f"{name}.{t}", two, extreme(largest))
            row(f"{name}.NaN.{t}", two, extreme(largest, nan=True))
    for saturated in ("", ".sat"):
        flushed = Arithmetic(F16, ftz=True, sat=bool(saturated))
        for name in ("add", "sub", "mul"):
            code = f"{name}.rn.ftz{saturated}.f16x2"
            rows.append(Row(code, two, both(of_floats(F16, getattr(flushed, name)), 16)))
        code = f"fma.rn.ftz{saturated}.f16x2"
        rows.append(Row(code, three, both(of_floats(F16, flushed.fma), 16)))
    return rows


def magnitudes() -> list[Row]:
    """.xorsign.abs, of numbers, and of the NaN that arithmetic makes, which is positive: other NaNs' signs
    are not said."""
    code = "sub.f32 %f0, %a, %a; min.xorsign.abs.f32 %d, %f0, %b;"
    numbers = [1.0, -1.0, 0.0, -0.0]
    rows = [Row("min.xorsign of a NaN", "f32 f32 -> f32", lambda a, b: b, code, ([math.inf], numbers))]
    for f in (F16, BF16, F32):
        t = f.name if f is F32 else f"{f.name}x2"
        sizes = [0.0, f.smallest, 0.5, 1.0, f.largest, math.inf]
        codes = [f.encode(sign * size) for size in sizes for sign in (1, -1)]
        words = codes if f is F32 else [code | other << 16 for code in codes for other in codes[:3]]
        for largest, name in ((False, "min"), (True, "max")):
            part = of_floats(f, extreme(largest, xorsign=True))
            code = f"{name}.xorsign.abs.{t}"
            if f is F32:
                code = f"mov.b32 %f0, %a; mov.b32 %f1, %b; {code} %f2, %f0, %f1; mov.b32 %d, %f2;"
            else:
                code += " %d, %a, %b;"
            reference = part if f is F32 else both(part, 16)
            rows.append(Row(f"{name}.xorsign {t}", "u32 u32 -> u32", reference, code, (words, words)))
    return rows


def singles() -> list[Row]:
    rows = []
    for mode in MODES:
        for ftz in ("", ".ftz"):
            exact = Arithmetic(F32, mode, ftz=bool(ftz))
            for name in ("add", "sub", "mul", "fma"):
                signature = "u64 u64 u64 -> u64" if name == "fma" else "u64 u64 -> u64"
                part = of_floats(F32, getattr(exact, name))
                rows.append(Row(f"{name}.{mode}{ftz}.f32x2", signature, both(part, 32)))
    return rows


def sum_between(least: int, most: int) -> Callable[[int, int], int]:
    return lambda x, y: min(max(x + y, least), most)


def integers() -> list[Row]:
    rows = []
    two = "u32 u32 -> u32"
    for t in ("u", "s"):
        value = (lambda x: x - (x >> 15 << 16)) if t == "s" else (lambda x: x)

        def row(name: str, part: Callable[[int, int], int], value: Callable[[int], int] = value) -> None:
            rows.append(Row(name, two, both(lambda x, y: part(value(x), value(y)), 16)))

        row(f"add.{t}16x2", lambda x, y: x + y)
        limits = (-32768, 32767) if t == "s" else (0, 65535)
        row(f"add.sat.{t}16x2", sum_between(*limits))
        row(f"min.{t}16x2", min)
        row(f"max.{t}16x2", max)
        if t == "s":
            row("min.relu.s16x2", lambda x, y: max(min(x, y), 0))
            row("max.relu.s16x2", lambda x, y: max(x, y, 0))
        rows.extend(of_bytes(t))
        for bits in (16, 8):
            most = ((1 << bits - 1) - 1) if t == "s" else (1 << bits) - 1
            least = -(1 << bits - 1) if t == "s" else 0

            def packed(
                x: int, y: int, z: int = 0, bits: int = bits, least: int = least, most: int = most
            ) -> int:
                a, b = (min(max(each, least), most) & (1 << bits) - 1 for each in (x, y))
                return (z << 2 * bits | a << bits | b) & 0xFFFFFFFF

            if bits == 16:
                rows.append(Row(f"cvt.pack.sat.{t}16.s32", "s32 s32 -> u32", packed))
            else:
                rows.append(Row(f"cvt.pack.sat.{t}8.s32.b32", "s32 s32 u32 -> u32", packed))
    return rows


def of_bytes(sign: str) -> list[Row]:
    """Four numbers of a sign, `s` or `u`, in a word."""
    least, most = (-128, 127) if sign == "s" else (0, 255)
    operations: dict[str, Callable[..., int]] = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "add.sat": lambda x, y: min(max(x + y, least), most),
        "sub.sat": lambda x, y: min(max(x - y, least), most),
        "min": min,
        "max": max,
    }
    if sign == "s":
        operations |= {
            "min.relu": lambda x, y: max(min(x, y), 0),
            "max.relu": lambda x, y: max(x, y, 0),
            "neg": lambda x: -x,
        }

    def of_numbers(operation: Callable[..., int]) -> Part:
        return lambda *codes: operation(*(code - 256 if code > most else code for code in codes))

    return [
        Row(
            f"{name}.{sign}8x4",
            "u32 -> u32" if name == "neg" else "u32 u32 -> u32",
            both(of_numbers(operation), 8, 4),
        )
        for name, operation in operations.items()
    ]


def conversions() -> list[Row]:
    """The first operand becomes the upper half."""
    rows = []
    for f in (F16, BF16):
        for mode in ("rn", "rz"):
            for name, change in (("", lambda x: x), (".relu", relu(lambda x: x))):

                def pair(
                    x: float, y: float, f: Format = f, mode: str = mode, change: Callable[..., float] = change
                ) -> int:
                    high, low = (f.encode(f.convert(change(each), mode)) for each in (x, y))
                    return high << 16 | low

                rows.append(Row(f"cvt.{mode}{name}.{f.name}x2.f32", "f32 f32 -> u32", pair))
    return rows


def comparisons() -> list[Row]:
    rows = []
    for f in (F16, BF16):
        for name, holds in (
            ("lt", lambda x, y: x < y),
            ("neu", lambda x, y: x != y or math.isnan(x) or math.isnan(y)),
        ):

            def pair(x: int, y: int, f: Format = f, holds: Callable[[float, float], bool] = holds) -> int:
                found = [
                    holds(f.decode(a), f.decode(b)) for a, b in zip(parts(x, 16), parts(y, 16), strict=True)
                ]
                return int(found[0]) + 2 * int(found[1])

            code = (
                f"setp.{name}.{f.name}x2 %p|%q, %a, %b; selp.u32 %d, 1, 0, %p; selp.u32 %t0, 2, 0, %q;"
                " add.u32 %d, %d, %t0;"
            )
            rows.append(Row(f"setp.{name}.{f.name}x2", "u32 u32 -> u32", pair, code))
    return rows


TABLE = Table([*halves(), *magnitudes(), *singles(), *integers(), *conversions(), *comparisons()])


@pytest.mark.some(40)
@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.kernel[2:80])
def test_instruction(row: Row) -> None:
    TABLE.check(row)
