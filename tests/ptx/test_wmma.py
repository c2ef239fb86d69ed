"""wmma of elements of four bits and of one, and of doubles rounded as they say, against numpy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from . import driver
from .formats import F64
from .ptx import UNITS, entry, kernel
from .refusals import refusal

KINDS = {"s4": (4, 32, -8, 7), "u4": (4, 32, 0, 15), "b1": (1, 128, 0, 1)}  # bits, k, least, most


def packed(values: np.ndarray, bits: int, pitch: int) -> np.ndarray:
    """Rows of `pitch` elements, of which the first are the values; bytes."""
    rows = np.full((len(values), pitch), (1 << bits) - 1, np.uint8)
    rows[:, : values.shape[1]] = values & (1 << bits) - 1
    each = 8 // bits
    parts = rows.reshape(len(rows), -1, each).astype(np.uint32) << bits * np.arange(each, dtype=np.uint32)
    joined: np.ndarray = parts.sum(2).astype(np.uint8)
    return joined


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("extra", [0, 128])
@pytest.mark.parametrize(
    ("kind", "operation"), [("s4", ""), ("u4", ""), ("s4", ".satfinite"), ("b1", "xor"), ("b1", "and")]
)
def test_less_than_a_byte(kind: str, operation: str, extra: int, unit: str) -> None:
    """`extra`: elements between the rows of A and the columns of B."""
    bits, k, low, high = KINDS[kind]
    rng = np.random.default_rng(9)
    a, b = (rng.integers(low, high + 1, (8, k)) for _ in "ab")
    c = np.full((8, 8), 2**31 - 50) if operation == ".satfinite" else rng.integers(-1000, 1000, (8, 8))
    pitch = k + extra
    shape = f"m8n8k{k}"
    popc = f".{operation}.popc" if kind == "b1" else ""
    ending = operation if kind != "b1" else ""
    body = f"""
    mov.u32 %r20, {pitch};
{UNITS[unit]}
    wmma.load.a.sync.aligned.row.{shape}.global.{kind} {{%r3}}, [%x1], %r20;
    wmma.load.b.sync.aligned.col.{shape}.global.{kind} {{%r4}}, [%x2], %r20;
    wmma.load.c.sync.aligned.row.{shape}.global.s32 {{%r5, %r6}}, [%x3], 8;
    wmma.mma{popc}.sync.aligned.row.col.{shape}.s32.{kind}.{kind}.s32{ending}
        {{%r7, %r8}}, {{%r3}}, {{%r4}}, {{%r5, %r6}};
    wmma.store.d.sync.aligned.row.{shape}.global.s32 [%x0], {{%r7, %r8}}, 8;
    """
    arrays = (np.zeros((8, 8), np.int32), packed(a, bits, pitch), packed(b, bits, pitch), c.astype(np.int32))
    out, *_ = driver.run(kernel(body, pointers=4), "k", *arrays, block=(32,))
    combined = (a[:, None] ^ b if operation == "xor" else a[:, None] * b).sum(2) + c
    if operation == ".satfinite":
        assert (combined > 2**31 - 1).any()
        combined = combined.clip(-(2**31), 2**31 - 1)
    assert (out == combined).all()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r3}, [%x1];", "no matrices of .s4"),
        ("wmma.load.a.sync.aligned.row.m8n8k32.global.pred {%r3}, [%x1];", "no matrices of .pred"),
        ("wmma.load.b.sync.aligned.row.m8n8k128.global.b1 {%r3}, [%x1];", "no matrices of .b1"),
        (
            "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r3, %r4}, {%r5}, {%r6}, {%r3, %r4};",
            "matrices of .s4 are .row and .col",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r3, %r4}, {%r5}, {%r6}, {%r3, %r4};",
            "needs one of .popc",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m8n8k4.satfinite.f64.f64.f64.f64 {%g1, %g2}, {%g3}, {%g4},"
            "{%g1, %g2};",
            "unknown modifier .satfinite",
        ),
        (
            "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32 {%r3, %r4}, {%r5}, {%r6}, {%r3, %r4};",
            "needs one of .popc",
        ),
        (
            "mma.sync.aligned.m8n8k16.row.col.xor.popc.s32.s8.s8.s32 {%r3, %r4}, {%r5}, {%r6}, {%r3, %r4};",
            "unknown modifier .xor .popc",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.satfinite.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r5, %r6},"
            "{%r7}, {%f1, %f2, %f3, %f4};",
            "unknown modifier .satfinite",
        ),
    ],
)
def test_what_is_none_is_refused(statement: str, reason: str) -> None:
    assert reason in refusal(f"    {statement}")


def chained(a: np.ndarray, b: np.ndarray, c: float, mode: str) -> float:
    """Each product is added by one operation."""
    total = c
    for x, y in zip(a, b, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(total)
        total = F64.round(exact, mode) if exact else 0.0
    return total


MODES = ("", "rn", "rz", "rm", "rp")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("opcode", ["mma", "wmma.mma"])
def test_doubles_are_rounded_once_for_each_product(opcode: str, unit: str) -> None:
    """One product a sum: whatever the order, it is what `fma` yields, rounded as the modifier says."""
    rng = np.random.default_rng(2)
    a, b = (rng.uniform(0.5, 1, 8) * 2.0 ** -rng.integers(0, 30, 8) for _ in "ab")
    c = rng.uniform(0.5, 1, (8, 8)) * rng.choice([-1, 1], (8, 8))
    c[:, ::2] = -(a[:, None] * b)[:, ::2]  # what rounding the product loses is left
    kernels = []
    for mode in MODES:
        rounding = f".{mode}" if mode else ""
        shape = "m8n8k4.row.col" if opcode == "mma" else "row.col.m8n8k4"
        # Of A the first column, of B the first row, and zeros.
        body = f"""
    mov.u32 %r10, %laneid;
    shr.u32 %r11, %r10, 2;
    and.b32 %r12, %r10, 3;
    setp.eq.u32 %p0, %r12, 0;
    mad.wide.u32 %x10, %r11, 8, %x1;
    mad.wide.u32 %x11, %r11, 8, %x2;
    mov.f64 %g0, 0d0000000000000000;
    mov.f64 %g1, 0d0000000000000000;
    @%p0 ld.global.f64 %g0, [%x10];
    @%p0 ld.global.f64 %g1, [%x11];
    mad.wide.u32 %x12, %r10, 16, %x3;
    mad.wide.u32 %x13, %r10, 16, %x0;
    ld.global.v2.f64 {{%g2, %g3}}, [%x12];
{UNITS[unit]}
    {opcode}.sync.aligned.{shape}{rounding}.f64.f64.f64.f64 {{%g4, %g5}}, {{%g0}}, {{%g1}}, {{%g2, %g3}};
    st.global.v2.f64 [%x13], {{%g4, %g5}};
        """
        kernels.append(entry(body, f"k{mode}", 4))
    module = driver.Module(kernel("", "unused") + "".join(kernels))
    results = {}
    for mode in MODES:
        out = driver.Buffer(np.zeros((8, 8)))
        module.launch(f"k{mode}", out, driver.Buffer(a), driver.Buffer(b), driver.Buffer(c), block=(32,))
        results[mode] = out.read()
        expected = [[chained(a[[m]], b[[n]], c[m, n], mode or "rn") for n in range(8)] for m in range(8)]
        assert (results[mode] == np.array(expected)).all(), mode
    assert (results["rm"] < results["rp"]).any()
    assert any(math.fsum((x, -y)) for x, y in zip(results["rz"].ravel(), results["rn"].ravel(), strict=True))
