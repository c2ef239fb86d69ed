"""Floating-point arithmetic: f32 and f64 in every rounding mode, f16, bf16, approximations in bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest

from .formats import BF16, F16, F32, F64, Arithmetic, Format
from .table import Row, Table, edges

MODES = ("rn", "rz", "rm", "rp")


def exact() -> list[Row]:
    rows = []
    for format_ in (F32, F64):
        t = format_.name
        for mode in MODES:
            for ftz in (False, True) if format_ is F32 else (False,):
                for sat in (False, True) if format_ is F32 else (False,):
                    do = Arithmetic(format_, mode, ftz, sat)
                    tail = f"{'.ftz' if ftz else ''}{'.sat' if sat else ''}.{t}"
                    rows += [
                        Row(f"add.{mode}{tail}", f"{t} {t} -> {t}", do.add),
                        Row(f"sub.{mode}{tail}", f"{t} {t} -> {t}", do.sub),
                        Row(f"mul.{mode}{tail}", f"{t} {t} -> {t}", do.mul),
                        Row(f"fma.{mode}{tail}", f"{t} {t} {t} -> {t}", do.fma),
                    ]
                    if not sat:
                        rows += [
                            Row(f"div.{mode}{tail}", f"{t} {t} -> {t}", do.div),
                            Row(f"rcp.{mode}{tail}", f"{t} -> {t}", do.rcp),
                            Row(f"sqrt.{mode}{tail}", f"{t} -> {t}", do.sqrt),
                        ]
                    if format_ is F64:  # ptxas takes this .ftz, and makes the code that it makes without
                        rows.append(Row(f"rcp.{mode}.ftz.{t}", f"{t} -> {t}", do.rcp))
        near = Arithmetic(format_)
        rows += [
            Row(f"add.{t}", f"{t} {t} -> {t}", near.add),
            Row(f"mul.{t}", f"{t} {t} -> {t}", near.mul),
            Row(f"mad.rn.{t}", f"{t} {t} {t} -> {t}", near.fma),
        ]
    return rows


def small() -> list[Row]:
    rows = []
    for ftz in (False, True):
        for sat in (False, True):
            do = Arithmetic(F16, ftz=ftz, sat=sat)
            tail = f"{'.ftz' if ftz else ''}{'.sat' if sat else ''}.f16"
            rows += [Row(f"{op}{tail}", "f16 f16 -> f16", getattr(do, op)) for op in ("add", "sub", "mul")]
            rows.append(Row(f"fma.rn{tail}", "f16 f16 f16 -> f16", do.fma))
    rows += [
        Row("fma.rn.relu.f16", "f16 f16 f16 -> f16", relu(Arithmetic(F16).fma)),
        Row("fma.rn.bf16", "bf16 bf16 bf16 -> bf16", Arithmetic(BF16).fma),
        Row("fma.rn.relu.bf16", "bf16 bf16 bf16 -> bf16", relu(Arithmetic(BF16).fma)),
    ]
    return rows


def relu(operation: Callable[..., float]) -> Callable[..., float]:
    """Negative results, -0 among them, become +0; NaN stays."""

    def clamped(*values: float) -> float:
        result = operation(*values)
        return result if math.isnan(result) else result if result > 0 else 0.0

    return clamped


def pick(choose: Callable[[float, float], bool], nan: bool) -> Callable[[float, float], float]:
    """min and max: -0 is less than +0; a NaN loses, or with .NaN wins."""

    def picked(x: float, y: float) -> float:
        if math.isnan(x) or math.isnan(y):
            return math.nan if nan or (math.isnan(x) and math.isnan(y)) else y if math.isnan(x) else x
        keys = [(value, math.copysign(1, value)) for value in (x, y)]
        return x if choose(keys[0], keys[1]) else y  # type: ignore[arg-type]

    return picked


def of_three(larger: bool, nan: bool, sizes: bool) -> Callable[[float, float, float], float]:
    """The least or the largest, or of magnitudes."""
    chosen = pick((lambda x, y: x > y) if larger else (lambda x, y: x < y), nan)
    change = abs if sizes else float
    return lambda x, y, z: chosen(chosen(change(x), change(y)), change(z))


def simple() -> list[Row]:
    rows = []
    for format_ in (F32, F64, F16, BF16):
        t = format_.name
        rows += [
            Row(f"neg.{t}", f"{t} -> {t}", lambda x: -x),
            Row(f"abs.{t}", f"{t} -> {t}", abs),
            Row(f"min.{t}", f"{t} {t} -> {t}", pick(lambda x, y: x < y, False)),
            Row(f"max.{t}", f"{t} {t} -> {t}", pick(lambda x, y: x > y, False)),
        ]
        if format_ is not F64:
            rows += [
                Row(f"min.NaN.{t}", f"{t} {t} -> {t}", pick(lambda x, y: x < y, True)),
                Row(f"max.NaN.{t}", f"{t} {t} -> {t}", pick(lambda x, y: x > y, True)),
            ]
    for name, larger in (("min", False), ("max", True)):
        for nan in ("", ".NaN"):
            for sizes in ("", ".abs"):
                code = f"{name}{nan}{sizes}.f32"
                rows.append(Row(code, "f32 f32 f32 -> f32", of_three(larger, bool(nan), bool(sizes))))
    for format_ in (F32, F64):
        t = format_.name
        # d = the magnitude of b with the sign of a
        rows.append(
            Row(
                f"copysign.{t}",
                f"{t} {t} -> {t}",
                lambda a, b: math.copysign(b, a),
                inputs=(signed(t), signed(t)),
            )
        )
        for test, is_ in TESTS.items():
            rows.append(Row(f"testp.{test}.{t}", f"{t} -> pred", lambda x, is_=is_, f=format_: is_(x, f)))
    flush = F32.flush
    rows += [
        Row("neg.ftz.f32", "f32 -> f32", lambda x: -flush(x)),
        Row("abs.ftz.f32", "f32 -> f32", lambda x: abs(flush(x))),
        Row(
            "min.ftz.f32", "f32 f32 -> f32", lambda x, y: pick(lambda a, b: a < b, False)(flush(x), flush(y))
        ),
        Row(
            "max.ftz.f32", "f32 f32 -> f32", lambda x, y: pick(lambda a, b: a > b, False)(flush(x), flush(y))
        ),
    ]
    return rows


def signed(t: str) -> list[float]:
    """Without NaN, whose sign is not specified."""
    return [float(value) for value in edges(t) if not math.isnan(value)]


TESTS: dict[str, Callable[[float, Format], bool]] = {
    "finite": lambda x, f: math.isfinite(x),
    "infinite": lambda x, f: math.isinf(x),
    "number": lambda x, f: not math.isnan(x),
    "notanumber": lambda x, f: math.isnan(x),
    # PTX: "As a special case, positive and negative zero are considered normal numbers."
    "normal": lambda x, f: math.isfinite(x) and (x == 0 or abs(x) >= f.smallest_normal),
    "subnormal": lambda x, f: 0 < abs(x) < f.smallest_normal,
}


def inverse(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def square_root(x: float) -> float:
    return math.nan if x < 0 else math.sqrt(x)


def power_of_two(x: float) -> float:
    return math.inf if x > 1100 else 2.0**x


def logarithm(x: float) -> float:
    return math.nan if x < 0 else -math.inf if x == 0 else math.inf if math.isinf(x) else math.log2(x)


def inverse_root(x: float) -> float:
    return math.nan if x < 0 else math.copysign(math.inf, x) if x == 0 else 1 / math.sqrt(x)


def quotient(x: float, y: float) -> float:
    return x / y


def by_reciprocal(x: float, y: float) -> float:
    """Beyond 2**126 the reciprocal is a zero: "if a is infinity, div.approx.f32 returns NaN, otherwise it
    returns a sign-preserving zero"."""
    return x * math.copysign(0.0, y) if 2.0**126 < abs(y) < math.inf else x / y


# What the PTX ISA says of an approximation at -inf, -1, -0, +0 and +inf, then of a negative and of a positive
# subnormal if those are flushed.
NAN, INF = math.nan, math.inf
SPECIAL = {
    "rcp.approx": (-0.0, -1.0, -INF, INF, 0.0, -INF, INF),
    "sqrt.approx": (NAN, NAN, -0.0, 0.0, INF, -0.0, 0.0),
    "rsqrt.approx": (NAN, NAN, -INF, INF, 0.0, -INF, INF),
    "sin.approx": (NAN, None, -0.0, 0.0, NAN, -0.0, 0.0),
    "cos.approx": (NAN, None, 1.0, 1.0, NAN, 1.0, 1.0),
    "lg2.approx": (NAN, NAN, -INF, -INF, INF, -INF, -INF),
    "ex2.approx": (0.0, 0.5, 1.0, 1.0, INF, 1.0, 1.0),
    "tanh.approx": (-1.0, None, -0.0, 0.0, 1.0),
}


def special() -> list[Row]:
    rows = []
    for name, results in SPECIAL.items():
        for f in (F32, F64) if name in ("rcp.approx", "rsqrt.approx") else (F32,):
            for ftz in ("", ".ftz"):
                if (f is F64 and not ftz and name != "rsqrt.approx") or (ftz and name == "tanh.approx"):
                    continue
                places = [-INF, -1.0, -0.0, 0.0, INF, *([-f.smallest, f.smallest] if ftz else [])]
                known = {
                    (place, math.copysign(1, place)): result
                    for place, result in zip(places, results, strict=False)
                    if result is not None
                }
                rows.append(
                    Row(
                        f"{name}{ftz}.{f.name}",
                        f"{f.name} -> {f.name}",
                        lambda x, known=known: known[x, math.copysign(1, x)],
                        f"{name}{ftz}.{f.name} %d, %a;",
                        ([place for place, _ in known],),
                    )
                )
    # Of such a double the lower half is not looked at.
    near = [1 + 2.0**-52, -2 - 2.0**-40, 0.5 + 2.0**-25]
    rows.append(
        Row("upper half", "f64 -> f64", lambda x: 1 / round(x, 4), "rcp.approx.ftz.f64 %d, %a;", (near,))
    )
    return rows


def approximate() -> list[Row]:
    """Bounds of the PTX ISA (those of sin and cos are absolute: tried where they are also relative)."""
    positive = [0.0, 1e-30, 1e-5, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 1e5, 1e30, math.inf, math.nan, -1.0]
    ordinary = [s * v for s in (1, -1) for v in (1e-30, 1e-5, 0.3, 0.5, 1.0, 1.5, 3.0, 1e5, 1e30)]
    ordinary = [F32.convert(v) for v in ordinary]
    positive = [F32.convert(v) for v in positive]
    exponents = [
        0.0,
        1.0,
        -1.0,
        0.5,
        0.25,
        -0.75,
        10.5,
        -20.25,
        100.125,
        -126.0,
        127.5,
        130.0,
        -math.inf,
        math.inf,
        math.nan,
    ]
    angles = [F32.convert(v) for v in (0.0, 0.125, 0.5, 0.75, 1.0, 1.25, -0.5, -1.0, 2.0, 2.5, 3.0)]
    cycles = [0.0, -0.0, 0.25, 0.5, 0.75, -1.25, 2.0, 0.125, 0.3, -0.45, 0.6, 3.9, 1e-20, 100.1, -12345.678]
    cycles = [F32.convert(v) for v in (*cycles, 2.0**30, math.inf, -math.inf, math.nan)]
    return [
        Row(
            "rcp.approx.f32",
            "f32 -> f32",
            inverse,
            inputs=([*ordinary, 0.0, -0.0, math.inf, math.nan],),
            max_ulps=1,
        ),
        Row(
            "rcp.approx.ftz.f32",
            "f32 -> f32",
            inverse,
            inputs=([*ordinary, 0.0, -0.0, math.inf, math.nan],),
            max_ulps=1,
        ),
        Row("sqrt.approx.f32", "f32 -> f32", square_root, inputs=(positive,), max_ulps=2),
        Row("sqrt.approx.ftz.f32", "f32 -> f32", square_root, inputs=(positive,), max_ulps=2),
        Row("rsqrt.approx.f32", "f32 -> f32", inverse_root, inputs=(positive,), max_ulps=3),
        Row("rsqrt.approx.ftz.f32", "f32 -> f32", inverse_root, inputs=(positive,), max_ulps=3),
        Row("rsqrt.approx.f64", "f64 -> f64", inverse_root, inputs=(positive,), max_ulps=2**10),
        Row(
            "rcp.approx.ftz.f64",
            "f64 -> f64",
            inverse,
            inputs=([*ordinary, 0.0, -0.0, math.inf, math.nan],),
            max_ulps=2**33,
        ),
        Row("div.approx.f32", "f32 f32 -> f32", quotient, inputs=(ordinary[:6], ordinary[:6]), max_ulps=2),
        *(
            Row(
                f"beyond 2**126, div.approx{ftz}.f32",
                "f32 f32 -> f32",
                by_reciprocal,
                code=f"div.approx{ftz}.f32 %d, %a, %b;",
                inputs=(
                    [0.0, -0.0, 1.0, -3.0, F32.largest, math.inf, -math.inf, math.nan],
                    [2.0**126, 1.5 * 2.0**126, -(2.0**127), F32.largest, math.inf],
                ),
            )
            for ftz in ("", ".ftz")
        ),
        Row("div.full.f32", "f32 f32 -> f32", quotient, inputs=(ordinary, ordinary[3:6]), max_ulps=2),
        Row("div.full.f32 ", "f32 f32 -> f32", quotient, inputs=([1.0, 2.0**127], [2.0**127]), max_ulps=2),
        Row(
            "div.full.ftz.f32", "f32 f32 -> f32", quotient, inputs=(ordinary[3:6], ordinary[3:6]), max_ulps=2
        ),
        Row("ex2.approx.f32", "f32 -> f32", power_of_two, inputs=(exponents,), max_ulps=4),
        Row("ex2.approx.ftz.f32", "f32 -> f32", power_of_two, inputs=(exponents,), max_ulps=4),
        Row(
            "lg2.approx.f32",
            "f32 -> f32",
            logarithm,
            inputs=([v for v in positive if v != 1.0 and v != 1.5],),
            max_ulps=4,
        ),
        Row(
            "lg2.approx.ftz.f32",
            "f32 -> f32",
            logarithm,
            inputs=([2.0, 4.0, 0.5, 0.0, math.inf, -1.0],),
            max_ulps=4,
        ),
        Row("sin.approx.f32", "f32 -> f32", math.sin, inputs=(angles,), max_ulps=32),
        Row("cos.approx.f32", "f32 -> f32", math.cos, inputs=(angles,), max_ulps=32),
        Row("sin.approx.ftz.f32", "f32 -> f32", math.sin, inputs=(angles,), max_ulps=32),
        Row("cos.approx.ftz.f32", "f32 -> f32", math.cos, inputs=(angles,), max_ulps=32),
        Row(
            "sin.approx.2pi.ftz.f32",
            "f32 -> f32",
            lambda x: float(mpmath.sinpi(2 * mpmath.mpf(x))) if math.isfinite(x) and x else x - x or x,
            inputs=(cycles,),
            max_ulps=4,
        ),
        Row(
            "cos.approx.2pi.ftz.f32",
            "f32 -> f32",
            lambda x: float(mpmath.cospi(2 * mpmath.mpf(x))) if math.isfinite(x) else math.nan,
            inputs=(cycles,),
            max_ulps=4,
        ),
        Row("tanh.approx.f32", "f32 -> f32", math.tanh, inputs=(angles,), max_ulps=2**13),
        Row(
            "ex2.approx.f16",
            "f16 -> f16",
            power_of_two,
            inputs=([0.0, 1.0, -1.0, 0.5, -3.25, 10.5, 15.5],),
            max_ulps=2,
        ),
        Row("tanh.approx.f16", "f16 -> f16", math.tanh, inputs=([0.0, 0.5, 1.0, -1.0, 2.5],), max_ulps=4),
    ]


def packed() -> list[Row]:
    """Two halves in one register: each as alone."""
    rows = []
    split = " mov.b32 {%h0, %h1}, %t3; mov.b16 %d, "
    for t, format_, operations in (("f16", F16, ("add", "sub", "mul")), ("bf16", BF16, ())):
        do = Arithmetic(format_)
        for name in operations:
            code = f"mov.b32 %t0, {{%a, %b}}; mov.b32 %t1, {{%b, %a}}; {name}.{t}x2 %t3, %t0, %t1;" + split
            one = getattr(do, name)
            rows += [
                Row(f"{name}.{t}x2 low", f"{t} {t} -> {t}", one, code + "%h0;"),
                Row(f"{name}.{t}x2 high", f"{t} {t} -> {t}", lambda x, y, f=one: f(y, x), code + "%h1;"),
            ]
        code = "mov.b32 %t0, {%a, %b}; mov.b32 %t1, {%b, %b}; mov.b32 %t2, {%c, %a};"
        code += f" fma.rn.{t}x2 %t3, %t0, %t1, %t2;" + split
        rows += [
            Row(f"fma.{t}x2 low", f"{t} {t} {t} -> {t}", do.fma, code + "%h0;"),
            Row(
                f"fma.{t}x2 high", f"{t} {t} {t} -> {t}", lambda a, b, c, f=do.fma: f(b, b, a), code + "%h1;"
            ),
        ]
    return rows


TABLE = Table([*exact(), *small(), *simple(), *special(), *approximate(), *packed()])


@pytest.mark.some(100)
@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.kernel[2:80])
def test_instruction(row: Row) -> None:
    TABLE.check(row)
