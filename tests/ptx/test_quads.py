"""mma.m8n8k4 of halves: four products, each of eight lanes, laid out as the PTX ISA's formulas say."""

from __future__ import annotations

import numpy as np
import pytest
from gpuferry.native.simdevice.ptx import parse
from gpuferry.native.simdevice.ptx.compiler import THREADS, WARPS, kernel_ir
from gpuferry.native.simdevice.ptx.kernel import KernelContext

from . import driver
from .ptx import UNITS, kernel
from .refusals import refusal

LANES = np.arange(32)
QUAD = LANES % 16 // 4  # which of the four products a lane takes part in
UPPER = np.where(LANES < 16, 0, 4)
LAYOUTS = ("row", "col")


def factor_places(matrix: str, layout: str) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each lane's four elements of A or B."""
    i = np.arange(4)[None, :]
    own, four = (LANES % 4)[:, None] + 0 * i, i + UPPER[:, None]
    if matrix == "A":
        return (own + UPPER[:, None], i + 0 * own) if layout == "row" else (four, own)
    return (own, four) if layout == "row" else (i + 0 * own, own + UPPER[:, None])


def sum_places(type_: str) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each lane's eight elements of C or D."""
    i = np.arange(8)[None, :]
    if type_ == "f16":
        return (LANES % 4 + UPPER)[:, None] + 0 * i, i + 0 * LANES[:, None]
    rows = (LANES & 1)[:, None] + (i & 2) + UPPER[:, None]
    return rows, (i & 4) + (LANES & 2)[:, None] + (i & 1)


def held(matrices: np.ndarray, places: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """What each lane has of its product's matrix."""
    return np.ascontiguousarray(matrices[QUAD[:, None], places[0], places[1]])


def as_words(values: np.ndarray, type_: str) -> np.ndarray:
    return values.astype(np.float16 if type_ == "f16" else np.float32).view(np.uint32)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("d", "c"), [("f16", "f16"), ("f32", "f16"), ("f32", "f32")])
@pytest.mark.parametrize("b_layout", LAYOUTS)
@pytest.mark.parametrize("a_layout", LAYOUTS)
def test_four_products(a_layout: str, b_layout: str, d: str, c: str, unit: str) -> None:
    rng = np.random.default_rng(3)
    a, b, addends = (rng.integers(-8, 9, shape) for shape in ((4, 8, 4), (4, 4, 8), (4, 8, 8)))
    words = np.hstack(
        [
            as_words(held(a, factor_places("A", a_layout)), "f16"),
            as_words(held(b, factor_places("B", b_layout)), "f16"),
            as_words(held(addends, sum_places(c)), c),
        ]
    )
    total, count = words.shape[1], {"f16": 4, "f32": 8}
    letters = {"f16": "r", "f32": "f"}
    loads = "".join(f"    ld.global.b32 %w{i}, [%x10+{4 * i}];\n" for i in range(total))
    moves = "".join(f"    mov.b32 %{letters[c]}{8 + i}, %w{4 + i};\n" for i in range(count[c]))
    results = ", ".join(f"%{letters[d]}{i + (0 if d == 'f32' else 20)}" for i in range(count[d]))
    stores = "".join(
        f"    st.global.b32 [%x11+{4 * i}], {name};\n" for i, name in enumerate(results.split(", "))
    )
    addend = ", ".join(f"%{letters[c]}{8 + i}" for i in range(count[c]))
    body = f"""
    .reg .b32 %w<{total}>;
    mad.wide.u32 %x10, %r0, {4 * total}, %x1;
    mad.wide.u32 %x11, %r0, {4 * count[d]}, %x0;
{UNITS[unit]}{loads}{moves}
    mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d}.f16.f16.{c}
        {{{results}}}, {{%w0, %w1}}, {{%w2, %w3}}, {{{addend}}};
{stores}
    """
    out, _ = driver.run(kernel(body), "k", np.zeros((32, count[d]), np.uint32), words, block=(32,))
    assert (out == as_words(held(a @ b + addends, sum_places(d)), d)).all()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("f16.f16.f16.f32", "no such matrices of .f16"),
        ("f32.f16.bf16.f32", "no such matrices of .f16"),
        ("satfinite.f32.f16.f16.f32", "unknown modifier .satfinite"),
    ],
)
def test_what_is_none_is_refused(name: str, reason: str) -> None:
    d, *_, c = name.replace("satfinite.", "").split(".")
    sums = [
        ", ".join(f"%{'f' if each == 'f32' else 'r'}{i}" for i in range(8 if each == "f32" else 4))
        for each in (d, c)
    ]
    operands = f"{{{sums[0]}}}, {{%r8, %r9}}, {{%r8, %r9}}, {{{sums[1]}}}"
    body = f"    mma.sync.aligned.m8n8k4.row.col.{name} {operands};"
    assert reason in refusal(body)


@pytest.mark.parametrize("unit", UNITS)
def test_the_units_are_what_they_are_called(unit: str) -> None:
    """What these and other tests take for the two ways in which a kernel runs."""
    body = (
        UNITS[unit] + "    mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r1, %r2, %r3, %r4}, {%r5, %r6},"
    )
    module = parse(kernel(body + "{%r5, %r6}, {%r1, %r2, %r3, %r4};"))
    text = kernel_ir(KernelContext(module, module.kernel("k")))
    form = {"warp": WARPS, "thread": THREADS}[unit]
    assert f"@sim_kernel_form = constant i32 {form}" in text
