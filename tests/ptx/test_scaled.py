"""mma of small floats with scales of blocks: what CuTe's layouts say of who has what.

Of A lane l has rows l / 4 and l / 4 + 8, of B column l / 4: of each 32 elements along K eight that follow
each other, or in bytes twice four. Of each four lanes two neighbours have the scales of a row and of that
eight below, and one has those of a column; in a word the first block's byte comes first.
"""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .narrow import FORMATS
from .ptx import UNITS, kernel
from .refusals import refusal

LANES = np.arange(32)
GROUP, MEMBER = LANES // 4, LANES % 4


def numbers(form: str, codes: np.ndarray) -> np.ndarray:
    narrow = FORMATS[form]
    half = 1 << narrow.bits - 1
    sizes = np.array([narrow.value(code) for code in range(half)])
    return np.asarray(np.where(codes & half, -1, 1) * sizes[codes & half - 1])


def held(matrix: np.ndarray, bits: int) -> np.ndarray:
    """The words of each lane: of eight rows one half of them, then of the others, along K."""
    each = 32 // bits
    words = []
    for block in range(matrix.shape[1] // (4 * each)):
        for rows in range(0, matrix.shape[0], 8):
            columns = block * 4 * each + MEMBER[:, None] * each + np.arange(each)
            codes = matrix[(GROUP + rows)[:, None], columns].astype(np.uint64)
            shifts = np.arange(each, dtype=np.uint64) * np.uint64(bits)
            words.append((codes << shifts).sum(axis=1, dtype=np.uint64))
    return np.stack(words, axis=1).astype(np.uint32)


def scales(codes: np.ndarray, lanes: np.ndarray, byte: int) -> np.ndarray:
    """A word of each lane, in which only one byte for each block counts."""
    words = np.random.default_rng(3).integers(0, 1 << 32, 32, dtype=np.uint64)
    for row, lane in enumerate(lanes):
        for block, code in enumerate(codes[row]):
            shift = np.uint64(8 * (byte + block))
            words[lane] = words[lane] & ~(np.uint64(255) << shift) | np.uint64(code) << shift
    return words.astype(np.uint32)


def value(kind: str, code: np.ndarray) -> np.ndarray:
    return np.ldexp(1.0, code - 127) if kind == "ue8m0" else numbers("e4m3", code)


SCALES = {"ue8m0": (0x78, 0x85), "ue4m3": (1, 0x7F)}  # with which sums are exact in double precision
CASES = [  # kind, blocks, scales, types, byte and thread of A's and of B's
    ("mxf8f6f4", 1, "ue8m0", ("e4m3", "e2m1"), (0, 0), (0, 0)),
    ("mxf8f6f4", 1, "ue8m0", ("e3m2", "e5m2"), (3, 1), (2, 3)),
    ("mxf4", 2, "ue8m0", ("e2m1", "e2m1"), (0, 1), (2, 1)),
    ("mxf4nvf4", 2, "ue8m0", ("e2m1", "e2m1"), (2, 0), (0, 2)),
    ("mxf4nvf4", 4, "ue4m3", ("e2m1", "e2m1"), (0, 1), (0, 3)),
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("kind", "blocks", "scale", "types", "of_a", "of_b"), CASES)
def test_product(
    kind: str,
    blocks: int,
    scale: str,
    types: tuple[str, str],
    of_a: tuple[int, int],
    of_b: tuple[int, int],
    unit: str,
) -> None:
    depth, bits = (32, 8) if kind == "mxf8f6f4" else (64, 4)
    random = np.random.default_rng(blocks)
    factors, words = [], []
    row = np.arange(16)
    has = row % 8 * 4 + row // 8 + 2 * of_a[1], row[:8] * 4 + of_b[1]
    for form, lanes, byte in zip(types, has, (of_a[0], of_b[0]), strict=True):
        codes = random.integers(0, 1 << FORMATS[form].bits, (len(lanes), depth))
        if form in ("e4m3", "e5m2"):  # whose sums are exact
            codes = codes & 0x87 | 0x38
        of_blocks = random.integers(*SCALES[scale], (len(lanes), blocks))
        factors.append(numbers(form, codes) * np.repeat(value(scale, of_blocks), depth // blocks, axis=1))
        words.append(held(codes << 2 if bits == 8 and form == "e2m1" else codes, bits))
        words.append(scales(of_blocks, lanes, byte)[:, None])
    (a, b), (of_rows, of_columns) = factors, words[1::2]
    begin = random.integers(-50, 50, (32, 4)).astype(np.float32)
    given = np.hstack([*words[::2], begin.view(np.uint32), of_rows, of_columns])
    loads = "".join(f"    ld.global.b32 %w{i}, [%x10+{4 * i}];\n" for i in range(12))
    shape, of = f"m16n8k{depth}", ".".join(types)
    vector = "" if kind == "mxf4" else f".scale_vec::{blocks}X"
    body = f"""
    .reg .b32 %w<12>;
    mad.wide.u32 %x10, %r0, 48, %x1;
    mad.wide.u32 %x11, %r0, 16, %x0;
{UNITS[unit]}{loads}
    mov.b16 %h1, {of_a[0]}; mov.b16 %h2, {of_a[1]};
    mov.b32 %f1, %w6; mov.b32 %f2, %w7; mov.b32 %f3, %w8; mov.b32 %f4, %w9;
    mma.sync.aligned.kind::{kind}.block_scale{vector}.{shape}.row.col.f32.{of}.f32.{scale}
        {{%f1, %f2, %f3, %f4}}, {{%w0, %w1, %w2, %w3}}, {{%w4, %w5}}, {{%f1, %f2, %f3, %f4}},
        {{%w10}}, {{%h1, %h2}}, %w11, {{{of_b[0]}, {of_b[1]}}};
    st.global.v4.f32 [%x11], {{%f1, %f2, %f3, %f4}};
    """
    out, _ = driver.run(kernel(body), "k", np.zeros((32, 4), np.float32), given, block=(32,))
    i = np.arange(4)[None, :]
    at = GROUP[:, None] + 8 * (i // 2), 2 * MEMBER[:, None] + i % 2
    assert (out == ((a @ b.T)[at] + begin).astype(np.float32)).all()


@pytest.mark.parametrize(
    "variant",
    [
        "kind::mxf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
        "kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e4m3.e2m1.f32.ue8m0",
        "kind::mxf4nvf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
        "kind::mxf4nvf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
        "kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
    ],
)
def test_others_are_refused(variant: str) -> None:
    statement = (
        f"mma.sync.aligned.{variant} {{%f1, %f2, %f3, %f4}}, {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}},"
        " {%f1, %f2, %f3, %f4}, %r7, {0, 0}, %r8, {0, 0};"
    )
    assert "no such matrices with scales" in refusal(statement)
