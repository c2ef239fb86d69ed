"""Sums of halves in single precision, rounded once, in rational numbers; reductions of floats over a warp."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from . import driver
from .formats import F32, Arithmetic
from .ptx import UNITS, entry, kernel
from .refusals import refusal
from .table import Row, Table, Value


def sums() -> list[Row]:
    rows = []
    for half in ("f16", "bf16"):
        for mode in ("", "rn", "rz", "rm", "rp"):
            for saturated in ("", ".sat"):
                exact = Arithmetic(F32, mode or "rn", sat=bool(saturated))
                rounding = f".{mode}" if mode else ""
                for name in ("add", "sub"):
                    instruction = f"{name}{rounding}{saturated}.f32.{half}"
                    rows.append(Row(instruction, f"{half} f32 -> f32", getattr(exact, name)))
                if mode:
                    signature = f"{half} {half} f32 -> f32"
                    rows.append(Row(f"fma{rounding}{saturated}.f32.{half}", signature, exact.fma))
    return rows


TABLE = Table(sums())


@pytest.mark.some(20)
@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.kernel[2:80])
def test_sum(row: Row) -> None:
    TABLE.check(row)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("add.f32.f16x2 %f1, %r1, %f2;", "no sums of .f16x2 in .f32"),
        ("add.f64.f16 %g1, %h1, %g2;", "no sums of .f16 in .f64"),
        ("add.ftz.f32.f16 %f1, %h1, %f2;", "unknown modifier .ftz"),
        ("fma.f32.f16 %f1, %h1, %h2, %f2;", "needs one of .rn .rm .rp .rz"),
        ("mul.f32.f16 %f1, %h1, %f2;", "unknown modifier .f16"),
        ("sub.f32.bf16 %f1, %f2, %f3;", "a register of .f32 is no .bf16"),
    ],
)
def test_sums_that_are_none(statement: str, reason: str) -> None:
    assert reason in refusal(f"    {statement}")


NAN = math.nan
SAMPLES = [
    [float(i) - 15.5 for i in range(32)],
    [NAN] * 32,
    [NAN if i % 3 else float(i) for i in range(32)],
    [0.0 if i % 2 else -0.0 for i in range(32)],
    [-0.0] * 32,
    [math.inf if i % 2 else -math.inf for i in range(32)],
    [2.0**-149 * (-1) ** i for i in range(32)],
    [-1.0, NAN] * 16,
    [*([1e30] * 31), -1e-30],
]
FORMS = ["min", "max", "min.abs", "max.abs", "min.NaN", "max.NaN", "min.abs.NaN", "max.abs.NaN"]


def reduced(form: str, values: list[float]) -> float:
    """As the PTX ISA says it: +0 above -0, NaNs win with .NaN and count for nothing without."""
    numbers = [abs(value) if "abs" in form else value for value in values]
    if "NaN" in form and any(math.isnan(value) for value in numbers):
        return NAN
    numbers = [value for value in numbers if not math.isnan(value)]
    choose: Callable[..., float] = min if form.startswith("min") else max
    return choose(numbers, key=lambda value: (value, math.copysign(1, value))) if numbers else NAN


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0F0F0F0F])
def test_reduction(mask: int, unit: str) -> None:
    """Lanes that the mask leaves out reduce among themselves: masks are a register, and differ."""
    text = kernel("", "unused")
    for form in FORMS:
        body = f"""
    mad.wide.u32 %x10, %r0, 4, %x1;
    mad.wide.u32 %x11, %r0, 4, %x0;
    ld.global.f32 %f1, [%x10];
    mov.u32 %r10, %lanemask_eq;
    and.b32 %r11, %r10, {mask};
    setp.ne.u32 %p0, %r11, 0;
    selp.b32 %r12, {mask}, {~mask & 0xFFFFFFFF}, %p0;
{UNITS[unit]}
    redux.sync.{form}.f32 %f2, %f1, %r12;
    st.global.b32 [%x11], %f2;
        """
        text += entry(body, f"k_{form.replace('.', '_')}")
    module = driver.Module(text)
    for form in FORMS:
        for sample in SAMPLES:
            given, out = driver.Buffer(np.array(sample, np.float32)), driver.Buffer(np.zeros(32, np.uint32))
            module.launch(f"k_{form.replace('.', '_')}", out, given, block=(32,))
            inside = [bool(mask >> lane & 1) for lane in range(32)]
            expected = [
                reduced(form, [value for value, other in zip(sample, inside, strict=True) if other == mine])
                for mine in inside
            ]
            codes: list[Value] = [F32.encode(float(np.float32(value))) for value in expected]
            assert out.read().tolist() == codes, (form, sample)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("redux.sync.add.f32 %f1, %f2, -1;", "not for .f32"),
        ("redux.sync.min.abs.s32 %r1, %r2, -1;", "unknown modifier .abs"),
    ],
)
def test_reductions_that_are_none(statement: str, reason: str) -> None:
    assert reason in refusal(f"    {statement}")
