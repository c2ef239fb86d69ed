"""cvt between every pair of types, in every rounding mode that the pair has."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from .formats import BF16, F16, F32, F64, FORMATS, Format
from .table import Row, Table

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "f32", "f64")
TO_INTEGER = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def limits(t: str) -> tuple[int, int]:
    bits = int(t[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if t[0] == "s" else (0, (1 << bits) - 1)


def clamp(value: int, t: str) -> int:
    low, high = limits(t)
    return max(low, min(value, high))


def whole(value: float, mode: str) -> int:
    exact = Fraction(value)
    floor = math.floor(exact)
    rest = exact - floor
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1),
        "rz": exact < 0 and rest > 0,
        "rm": False,
        "rp": rest > 0,
    }[mode]
    return floor + up


def to_integer(value: float, source: str, t: str, mode: str) -> int:
    """Out of range is clamped. NaN is 0, or with f64 or 64 bits on either side the sign bit alone."""
    if math.isnan(value):
        return 1 << int(t[1:]) - 1 if source == "f64" or t[1:] == "64" else 0
    if math.isinf(value):
        return limits(t)[value > 0]
    return clamp(whole(value, mode), t)


def near_integers(f: Format) -> list[float]:
    sizes = [
        0.0,
        f.smallest,
        0.25,
        0.5,
        0.75,
        1.0,
        1.5,
        2.5,
        3.5,
        100.25,
        127.0,
        127.5,
        128.0,
        255.0,
        255.5,
        256.0,
    ]
    sizes += [
        32767.0,
        32768.0,
        65535.0,
        65536.0,
        2.0**31 - 1,
        2.0**31,
        2.0**32 - 1,
        2.0**32,
        2.0**63,
        2.0**64,
        1e30,
    ]
    sizes += [f.largest, math.inf]
    fitting = {f.convert(size) for size in sizes}
    return [*sorted(fitting), *(-size for size in sorted(fitting)), math.nan]


def integers() -> list[Row]:
    rows = []
    for source in INTEGERS:
        rows += [to_bf16(source, mode) for mode in ("rn", "rz", "rm", "rp")]
        for t in INTEGERS:
            rows.append(Row(f"cvt.{t}.{source}", f"{source} -> {t}", lambda x: x))
            rows.append(Row(f"cvt.sat.{t}.{source}", f"{source} -> {t}", lambda x, t=t: clamp(x, t)))
        for name in FLOATS:
            for mode in ("rn", "rz", "rm", "rp"):
                f = FORMATS[name]
                rows.append(
                    Row(
                        f"cvt.{mode}.{name}.{source}",
                        f"{source} -> {name}",
                        lambda x, f=f, m=mode: f.round(Fraction(x), m) if x else 0.0,
                    )
                )
    return rows


def to_bf16(source: str, mode: str) -> Row:
    """Of 64 bits: beside the middle of two neighbours, where a double on the way loses which side it is."""
    low, high = limits(source)
    middle = (1 << 62) + (1 << 54)
    values = [0, 1, 127, 128, low, high, high - 1, low + 1]
    if source[1:] == "64":
        values += [middle - 1, middle, middle + 1, middle + (1 << 55), (1 << 53) + 1, 257, 259]
        values += [-each for each in values]
    return Row(
        f"cvt.{mode}.bf16.{source}",
        f"{source} -> bf16",
        lambda x: BF16.round(Fraction(x), mode) if x else 0.0,
        inputs=([each for each in values if low <= each <= high],),
    )


def packs() -> list[Row]:
    """cvt.pack: a above b, each kept within its type, and c above both where there is room."""
    values = [0, 1, 2, 3, 7, 8, 15, 16, 127, 128, 255, 256, 40000, -1, -2, -3, -8, -9, -128, -129, -40000]
    rows = []
    for t in ("u2", "s2", "u4", "s4", "u8", "s8", "u16", "s16"):
        bits = int(t[1:])
        below = (1 << bits) - 1

        def packed(a: int, b: int, c: int = 0, t: str = t, bits: int = bits, below: int = below) -> int:
            return c << 2 * bits | (clamp(a, t) & below) << bits | clamp(b, t) & below

        third = ([5, 0xFFFFFFFF],) if bits < 16 else ()
        sources = " ".join(["s32", "s32", *("u32" for _ in third)])
        name = f"cvt.pack.sat.{t}.s32{'.b32' if third else ''}"
        rows.append(Row(name, f"{sources} -> u32", packed, inputs=(values, values, *third)))
    return rows


def to_integers() -> list[Row]:
    rows = []
    for source in FLOATS:
        values = near_integers(FORMATS[source])
        for t in INTEGERS:
            for ptx, mode in TO_INTEGER.items():
                rows.append(
                    Row(
                        f"cvt.{ptx}.{t}.{source}",
                        f"{source} -> {t}",
                        lambda x, s=source, t=t, m=mode: to_integer(x, s, t, m),
                        inputs=(values,),
                    )
                )
    flush = F32.flush
    rows += [
        Row(
            "cvt.rpi.ftz.s32.f32",
            "f32 -> s32",
            lambda x: to_integer(flush(x), "f32", "s32", "rp"),
            inputs=(near_integers(F32),),
        ),
        Row(
            "cvt.rzi.ftz.u64.f32",
            "f32 -> u64",
            lambda x: to_integer(flush(x), "f32", "u64", "rz"),
            inputs=(near_integers(F32),),
        ),
    ]
    return rows


def saturated(value: float) -> float:
    return 0.0 if math.isnan(value) or value <= 0 else min(value, 1.0)


def floats() -> list[Row]:
    rows = []
    for source in FLOATS:
        for name in FLOATS:
            s, f = FORMATS[source], FORMATS[name]
            if f.bits < s.bits:
                for mode in ("rn", "rz", "rm", "rp"):
                    rows.append(
                        Row(
                            f"cvt.{mode}.{name}.{source}",
                            f"{source} -> {name}",
                            lambda x, f=f, m=mode: f.convert(x, m),
                        )
                    )
                rows.append(
                    Row(
                        f"cvt.rn.sat.{name}.{source}",
                        f"{source} -> {name}",
                        lambda x, f=f: saturated(f.convert(x)),
                    )
                )
            elif f.bits > s.bits:
                rows.append(Row(f"cvt.{name}.{source}", f"{source} -> {name}", lambda x: x))
                rows.append(Row(f"cvt.sat.{name}.{source}", f"{source} -> {name}", saturated))
        for ptx, mode in TO_INTEGER.items():
            rows.append(
                Row(f"cvt.{ptx}.{source}.{source}", f"{source} -> {source}", lambda x, m=mode: integral(x, m))
            )
    flush = F32.flush
    rows += [
        Row("cvt.ftz.sat.f32.f32", "f32 -> f32", lambda x: saturated(flush(x))),
        Row("cvt.rn.ftz.f32.f64", "f64 -> f32", lambda x: F32.convert(x, "rn", True)),
        Row("cvt.ftz.f64.f32", "f32 -> f64", flush),
        Row("cvt.rni.ftz.f32.f32", "f32 -> f32", lambda x: integral(flush(x), "rn")),
        Row("cvt.rn.bf16.f32", "f32 -> bf16", BF16.convert),
        Row("cvt.rz.bf16.f32", "f32 -> bf16", lambda x: BF16.convert(x, "rz")),
        Row("cvt.rn.relu.bf16.f32", "f32 -> bf16", lambda x: relu(BF16.convert(x))),
        Row("cvt.rn.relu.f16.f32", "f32 -> f16", lambda x: relu(F16.convert(x))),
        Row("cvt.f32.bf16", "bf16 -> f32", lambda x: x),
        Row(
            "cvt.rna.tf32.f32",
            "f32 -> u32",
            tf32,
            inputs=([1.0, 1 + 2**-11, 1 + 2**-12, -3.140625 - 2**-22, 2.0**100, 65504.0, 0.0],),
        ),
    ]
    pair = "cvt.{}.{}x2.f32 %t0, %b, %a; mov.b32 {{%h0, %h1}}, %t0; mov.b16 %d, %{};"
    for f in (F16, BF16):
        for mode in ("rn", "rz"):
            rows += [
                Row(
                    f"cvt.{mode}.{f.name}x2 low",
                    f"f32 f32 -> {f.name}",
                    lambda x, y, f=f, m=mode: f.convert(x, m),
                    pair.format(mode, f.name, "h0"),
                ),
                Row(
                    f"cvt.{mode}.{f.name}x2 high",
                    f"f32 f32 -> {f.name}",
                    lambda x, y, f=f, m=mode: f.convert(y, m),
                    pair.format(mode, f.name, "h1"),
                ),
            ]
    return rows


def relu(value: float) -> float:
    return value if math.isnan(value) or value > 0 else 0.0


def integral(value: float, mode: str) -> float:
    if not math.isfinite(value):
        return value
    return math.copysign(float(whole(value, mode)), value)


def tf32(value: float) -> int:
    """Ten bits of fraction, in the bits of an f32."""
    short = Format("tf32", 19, 10)
    return F32.encode(short.convert(value, "rna"))


TABLE = Table([*integers(), *packs(), *to_integers(), *floats()])


@pytest.mark.some(60)
@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.kernel[2:80])
def test_conversion(row: Row) -> None:
    TABLE.check(row)


def test_f64_is_a_double() -> None:
    assert F64.decode(F64.encode(0.1)) == 0.1
