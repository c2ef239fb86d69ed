"""Tensor core instructions: mma with fragments laid out by hand, ldmatrix, and wmma as nvcc emits it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import toolchain, toolkits

from . import driver
from .layouts import SUMS, Layout, elements, packed
from .narrow import FORMATS
from .ptx import UNITS, kernel, store
from .refusals import refusal

LANES = np.arange(32)
GROUP, MEMBER = LANES // 4, LANES % 4


def bf16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def f16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).view(np.uint16)


def tf32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).view(np.uint32)


def s8(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int8).view(np.uint8)


# name: type of A and B, k, how A and B are encoded, type of C and D
SHAPES: dict[str, tuple[str, int, Callable[[np.ndarray], np.ndarray], str]] = {
    "f16": ("f16", 16, f16, "f32"),
    "f16 half as deep": ("f16", 8, f16, "f32"),
    "bf16": ("bf16", 16, bf16, "f32"),
    "tf32": ("tf32", 8, tf32, "f32"),
    "s8": ("s8", 32, s8, "s32"),
}


def fragments(matrix: np.ndarray, per_register: int, rows_of_eight: int) -> np.ndarray:
    """A lane's registers of an operand whose second dimension is k, as the PTX ISA draws them: four lanes
    hold a row, each `per_register` neighbours; registers go through the eights of rows, then along k."""
    blocks = []
    for first in range(0, matrix.shape[1], 4 * per_register):
        for half in range(rows_of_eight):
            columns = first + MEMBER[:, None] * per_register + np.arange(per_register)
            part = np.ascontiguousarray(matrix[GROUP[:, None] + 8 * half, columns])
            blocks.append(part.view(np.uint32))
    return np.hstack(blocks)


@pytest.mark.parametrize("name", SHAPES)
def test_mma(name: str) -> None:
    type_, k, encode, result = SHAPES[name]
    rng = np.random.default_rng(4)
    a, b = rng.integers(-8, 8, (16, k)), rng.integers(-8, 8, (k, 8))
    c = rng.integers(-100, 100, (16, 8))
    elements = encode(a)
    per_register = 4 // elements.itemsize
    a_words = fragments(elements, per_register, 2)
    b_words = fragments(np.ascontiguousarray(encode(b).T), per_register, 1)
    accumulator = np.float32 if result == "f32" else np.int32
    columns = MEMBER[:, None] * 2 + np.arange(2)
    c_words = np.hstack([c[GROUP[:, None] + 8 * half, columns] for half in (0, 1)]).astype(accumulator)
    words = np.hstack([a_words, b_words, c_words.view(np.uint32)]).astype(np.uint32)
    count_a, count_b = a_words.shape[1], b_words.shape[1]
    total = count_a + count_b + 4
    loads = "".join(f"    ld.global.b32 %w{i}, [%x10+{4 * i}];\n" for i in range(total))
    accumulators = "f" if result == "f32" else "r"
    moves = "".join(f"    mov.b32 %{accumulators}{8 + i}, %w{count_a + count_b + i};\n" for i in range(4))
    a_names = ", ".join(f"%w{i}" for i in range(count_a))
    b_names = ", ".join(f"%w{count_a + i}" for i in range(count_b))
    d = ", ".join(f"%{accumulators}{i + 3}" for i in range(4))
    c_names = ", ".join(f"%{accumulators}{i + 8}" for i in range(4))
    stores = "".join(f"    st.global.{result} [%x11+{4 * i}], %{accumulators}{i + 3};\n" for i in range(4))
    body = f"""
    .reg .b32 %w<{total}>;
    mad.wide.u32 %x10, %r0, {4 * total}, %x1;
    mad.wide.u32 %x11, %r0, 16, %x0;
{loads}{moves}
    mma.sync.aligned.m16n8k{k}.row.col.{result}.{type_}.{type_}.{result}
        {{{d}}}, {{{a_names}}}, {{{b_names}}}, {{{c_names}}};
{stores}
    """
    out, _ = driver.run(kernel(body), "k", np.zeros((32, 4), accumulator), words, block=(32,))
    expected = a @ b + c
    for half in (0, 1):
        assert (out[:, 2 * half : 2 * half + 2] == expected[GROUP[:, None] + 8 * half, columns]).all()


BYTES_A: Layout = (((4, 8), (64, 1)), ((4, 2, 2), (16, 8, 256)))
BYTES_B: Layout = (((4, 8), (32, 1)), ((4, 2), (8, 128)))


def in_bytes(form: str, codes: np.ndarray) -> list[list[int]]:
    """Four bits are in the middle of a byte, six at its lower end."""
    found: list[list[int]] = (codes << 2 if form == "e2m1" else codes).tolist()
    return found


@pytest.mark.some(20)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("b_type", FORMATS)
@pytest.mark.parametrize("a_type", FORMATS)
def test_mma_of_small_floats(a_type: str, b_type: str, unit: str) -> None:
    """Random numbers of each format, whose products single precision holds."""
    rng = np.random.default_rng(11)
    codes, values = [], []
    for form, shape in ((a_type, (16, 32)), (b_type, (8, 32))):
        narrow = FORMATS[form]
        sizes = np.array([code for code in narrow.numbers if 2.0**-3 <= narrow.value(code) <= 8] + [0])
        chosen, signs = rng.choice(sizes, shape), rng.integers(0, 2, shape)
        codes.append(chosen | signs << narrow.bits - 1)
        values.append(np.vectorize(lambda code, of=narrow: of.value(int(code)))(chosen) * (1 - 2.0 * signs))
    words = np.hstack(
        [
            packed(in_bytes(a_type, np.array(elements(codes[0], BYTES_A))), 8),
            packed(in_bytes(b_type, np.array(elements(codes[1], BYTES_B))), 8),
        ]
    )
    loads = "".join(f"    ld.global.b32 %w{i}, [%x10+{4 * i}];\n" for i in range(6))
    body = f"""
    .reg .b32 %w<6>;
    mad.wide.u32 %x10, %r0, 24, %x1;
    mad.wide.u32 %x11, %r0, 16, %x0;
{UNITS[unit]}{loads}
    mov.f32 %f1, 1.0;
    mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.{a_type}.{b_type}.f32
        {{%f3, %f4, %f5, %f6}}, {{%w0, %w1, %w2, %w3}}, {{%w4, %w5}}, {{%f1, %f1, %f1, %f1}};
    st.global.v4.f32 [%x11], {{%f3, %f4, %f5, %f6}};
    """
    out, _ = driver.run(kernel(body), "k", np.zeros((32, 4), np.float32), words, block=(32,))
    assert (out == np.array(elements(values[0] @ values[1].T + 1, SUMS))).all()


@pytest.mark.parametrize(
    ("types", "reason"),
    [
        ("f32.e2m1.e4m3.f32", "need .kind::f8f6f4"),
        ("kind::f8f6f4.s32.s8.s8.s32", "unknown modifier .kind::f8f6f4"),
        ("kind::f8f6f4.f32.e2m1.f16.f32", "no product of .e2m1 and .f16"),
    ],
)
def test_small_floats_that_are_none(types: str, reason: str) -> None:
    sums = "{%r3, %r4, %r5, %r6}" if "s32" in types else "{%f3, %f4, %f5, %f6}"
    factors = "{%r7, %r8, %r9, %r10}, {%r7, %r8}"
    body = f"    mma.sync.aligned.m16n8k32.row.col.{types} {sums}, {factors}, {sums};"
    assert reason in refusal(body)


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count: int, trans: str) -> None:
    """Rows are where lanes 8i to 8i+7 say; each lane gets two neighbours of a row, or of a column."""
    registers = ", ".join(f"%r{10 + i}" for i in range(count))
    stores = "".join(f"    st.global.u32 [%x11+{4 * i}], %r{10 + i};\n" for i in range(count))
    body = f"""
    .shared .align 16 .b8 tile[512];
    mov.u32 %r20, tile;
    mad.wide.u32 %x10, %r0, 16, %x1;
    ld.global.v4.u32 {{%r21, %r22, %r23, %r24}}, [%x10];
    mad.lo.u32 %r25, %r0, 16, %r20;
    st.shared.v4.u32 [%r25], {{%r21, %r22, %r23, %r24}};
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r25];
    mad.wide.u32 %x11, %r0, {4 * count}, %x0;
{stores}
    """
    data = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    out, _ = driver.run(kernel(body), "k", np.zeros((32, count), np.uint32), data, block=(32,))
    for i in range(count):
        matrix = data[i].T if trans else data[i]
        pairs = np.ascontiguousarray(matrix[GROUP[:, None], MEMBER[:, None] * 2 + np.arange(2)])
        assert (out[:, i] == pairs.view(np.uint32)[:, 0]).all()


@pytest.mark.parametrize("address", ["tile+16", "%r20+16"])
@pytest.mark.parametrize("unit", ["", ".shared"])
def test_ldmatrix_of_one_row(address: str, unit: str) -> None:
    """The same address in all lanes, a variable's name among others."""
    register = address.replace("%r20", "%x20") if not unit else address
    body = f"""
    .shared .align 16 .b8 tile[48];
    mov.u32 %r20, tile;
    mov.u64 %x20, tile;
    cvta.shared.u64 %x20, %x20;
    mad.lo.u32 %r21, %r0, 4, %r20;
    setp.lt.u32 %p0, %r0, 12;
    @%p0 st.shared.u32 [%r21], %r0;
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x1{unit}.b16 {{%r10}}, [{register}];
    """
    (out,) = driver.run(kernel(body + store("%r10"), pointers=1), "k", np.zeros(32, np.uint32), block=(32,))
    assert out.tolist() == [4 + lane % 4 for lane in range(32)]


WMMA = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(float *out, const half *a, const half *b, const float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::load_matrix_sync(fc, c, 16, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(out, fc, 16, wmma::mem_row_major);
}
"""


def test_wmma(tmp_path: Path) -> None:
    if toolkits.toolkit().nvcc is None:
        pytest.skip("no nvcc")
    (tmp_path / "wmma.cu").write_text(WMMA)
    rng = np.random.default_rng(8)
    a, b, c = (rng.integers(-8, 8, (16, 16)) for _ in range(3))
    text = Path(toolchain.ptx(tmp_path / "wmma.cu")).read_text()
    arrays = (
        np.zeros((16, 16), np.float32),
        a.astype(np.float16),
        b.T.astype(np.float16),
        c.astype(np.float32),
    )
    out, *_ = driver.run(text, "k", *arrays, block=(32,))
    assert (out == a @ b + c).all()
