"""mma.sp: products with a matrix of which half is zero, against numpy's of the whole.

Which lane has what is written as CuTe writes it (layouts.py). Positions of A count the elements that are left
out as well; those of the metadata are the first elements of what 16 or 32 bits describe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from . import driver
from .formats import Format
from .layouts import SUMS, Layout, elements, packed, places
from .ptx import UNITS, kernel
from .refusals import refusal


@dataclass(frozen=True)
class Shape:
    """`chunk` elements of A, of which half is kept in pieces of `piece`, have four bits of metadata, of which
    a lane has `width` at a time."""

    k: int
    a: Layout
    metadata: Layout
    b: Layout
    chunk: int
    piece: int
    width: int


_OCTET = ((4, 8), (0, 1))
HALVES_16 = Shape(
    16,
    (((4, 8), (64, 1)), ((4, 2), (16, 8))),
    (_OCTET, ((2,), (8,))),
    (((4, 8), (16, 1)), ((2, 2), (8, 64))),
    *(4, 1, 16),
)
HALVES_32 = Shape(
    32,
    (((4, 8), (64, 1)), ((4, 2, 2), (16, 8, 256))),
    (((2, 2, 8), (256, 0, 1)), ((2,), (8,))),
    (((4, 8), (16, 1)), ((2, 4), (8, 64))),
    *(4, 1, 16),
)
SINGLES_8 = Shape(
    8,
    (((4, 8), (32, 1)), ((2, 2), (16, 8))),
    (_OCTET, ((2,), (8,))),
    (((4, 8), (8, 1)), ((2,), (32,))),
    *(2, 1, 16),
)
SINGLES_16 = Shape(
    16,
    (((4, 8), (32, 1)), ((2, 2, 2), (16, 8, 128))),
    (((2, 2, 8), (128, 0, 1)), ((2,), (8,))),
    (((4, 8), (8, 1)), ((4,), (32,))),
    *(2, 1, 16),
)
BYTES_32 = Shape(
    32,
    (((4, 8), (128, 1)), ((8, 2), (16, 8))),
    (((2, 2, 8), (8, 0, 1)), ((1,), (0,))),
    (((4, 8), (32, 1)), ((4, 2), (8, 128))),
    *(4, 1, 32),
)
BYTES_64 = Shape(
    64,
    (((4, 8), (128, 1)), ((8, 2, 2), (16, 8, 512))),
    (((2, 2, 8), (8, 512, 1)), ((1,), (0,))),
    (((4, 8), (32, 1)), ((4, 4), (8, 128))),
    *(4, 1, 32),
)
NIBBLES_64 = Shape(
    64,
    (((4, 8), (256, 1)), ((16, 2), (16, 8))),
    (((2, 2, 8), (8, 0, 1)), ((1,), (0,))),
    (((4, 8), (64, 1)), ((8, 2), (8, 256))),
    *(8, 2, 32),
)
NIBBLES_128 = Shape(
    128,
    (((4, 8), (256, 1)), ((16, 2, 2), (16, 8, 1024))),
    (((2, 2, 8), (8, 1024, 1)), ((1,), (0,))),
    (((4, 8), (64, 1)), ((8, 4), (8, 256))),
    *(8, 2, 32),
)


def _integers(bits: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values.astype(np.int64) & (1 << bits) - 1


def _floats(format_: Format) -> Callable[[np.ndarray], np.ndarray]:
    return np.vectorize(lambda value: format_.encode(float(value)))


F32, F16 = Format("f32", 32, 23), Format("f16", 16, 10)
# type of the elements: their bits, how they are encoded, their values, and that of sums
KINDS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray], tuple[int, int], str]] = {
    "f16": (16, _floats(F16), (-8, 8), "f32"),
    "bf16": (16, _floats(Format("bf16", 16, 7)), (-8, 8), "f32"),
    "tf32": (32, _floats(F32), (-8, 8), "f32"),
    "e4m3": (8, _floats(Format("e4m3", 8, 3)), (-8, 8), "f32"),
    "e5m2": (8, _floats(Format("e5m2", 8, 2)), (-6, 6), "f32"),
    "e2m1": (8, lambda values: _floats(Format("e2m1", 4, 1))(values) << 2, (-3, 3), "f32"),
    "e2m3": (8, _floats(Format("e2m3", 6, 3)), (-3, 3), "f32"),
    "e3m2": (8, _floats(Format("e3m2", 6, 2)), (-3, 3), "f32"),
    "s8": (8, _integers(8), (-128, 127), "s32"),
    "u8": (8, _integers(8), (0, 255), "s32"),
    "s4": (4, _integers(4), (-8, 7), "s32"),
    "u4": (4, _integers(4), (0, 15), "s32"),
}
SMALL = ("e2m1", "e2m3", "e3m2")  # in bytes, of which they are a part
CASES = [
    *(("f16", shape, selector) for shape in (HALVES_16,) for selector in range(4)),
    *(("f16", HALVES_32, selector) for selector in range(2)),
    *(("bf16", HALVES_16, 3), ("bf16", HALVES_32, 1)),
    *(("tf32", SINGLES_8, selector) for selector in range(4)),
    *(("tf32", SINGLES_16, selector) for selector in range(2)),
    *(("s8", BYTES_32, selector) for selector in range(2)),
    *(("u8", BYTES_32, 1), ("s8", BYTES_64, 0), ("u8", BYTES_64, 0)),
    *(("e4m3", BYTES_64, 0), ("e5m2", BYTES_64, 0)),
    *((kind, BYTES_64, 0) for kind in SMALL),
    *(("s4", NIBBLES_64, selector) for selector in range(2)),
    *(("u4", NIBBLES_64, 1), ("s4", NIBBLES_128, 0), ("u4", NIBBLES_128, 0)),
]


class Sparse:
    """A random matrix of 16 rows and what of it is kept."""

    def __init__(self, shape: Shape, low: int, high: int, rng: np.random.Generator, ordered: bool) -> None:
        self.shape = shape
        chunks = shape.k // shape.chunk
        pieces = shape.chunk // shape.piece
        self.dense = np.zeros((16, shape.k), np.int64)
        self.kept = np.zeros((16, chunks, shape.chunk // 2), np.int64)
        self.bits = np.zeros((16, chunks), np.int64)
        for row in range(16):
            for chunk in range(chunks):
                chosen = rng.choice(pieces, pieces // 2, replace=False)
                chosen = np.sort(chosen) if ordered or pieces == 2 else chosen
                values = rng.integers(low, high + 1, (len(chosen), shape.piece))
                for at, part in zip(chosen, values, strict=True):
                    begin = chunk * shape.chunk + at * shape.piece
                    self.dense[row, begin : begin + shape.piece] = part
                self.kept[row, chunk] = values.ravel()
                # Of two elements, the halves of the one that is kept.
                named = chosen if pieces == 4 else [2 * chosen[0], 2 * chosen[0] + 1]
                self.bits[row, chunk] = named[0] | named[1] << 2

    def fragments(self) -> list[list[int]]:
        """A lane's elements: of each chunk that the layout gives it, those kept."""
        found = []
        lanes, positions = (places(mode) for mode in self.shape.a)
        for lane in lanes:
            mine: list[int] = []
            for first in positions[:: self.shape.chunk]:
                row, column = (lane + first) % 16, (lane + first) // 16
                mine += list(self.kept[row, column // self.shape.chunk])
            found.append(mine)
        return found

    def metadata(self, selector: int, rng: np.random.Generator) -> np.ndarray:
        """A word for each lane; those that are not asked have anything."""
        lanes, positions = (places(mode) for mode in self.shape.metadata)
        chunks = self.shape.width // 4
        words = rng.integers(0, 1 << 32, 32, dtype=np.uint32)
        (sizes, strides), _ = self.shape.metadata
        # The digit of a lane's number that changes nothing is the selector.
        idle = next((i for i, stride in enumerate(strides) if stride == 0), None)
        for lane, base in enumerate(lanes):
            if idle is not None and lane // int(np.prod(sizes[:idle])) % sizes[idle] != selector:
                continue
            word = 0
            for number, first in enumerate(positions):
                row, column = (base + first) % 16, (base + first) // 16
                begin = column // self.shape.chunk
                for at, bits in enumerate(self.bits[row, begin : begin + chunks]):
                    word |= int(bits) << number * self.shape.width + 4 * at
            words[lane] = word
        return words


def run(name: str, words: np.ndarray, counts: list[int], sums: str, selector: int, unit: str) -> np.ndarray:
    """D of each lane: words of A, B, C and of the metadata, as many of each as `counts` says."""
    total = sum(counts)
    loads = "".join(f"    ld.global.b32 %w{i}, [%x10+{4 * i}];\n" for i in range(total))
    letter, results = ("f", "f32") if sums == "f32" else ("r", "b32")
    names, first = [], 0
    for count in counts[:3]:
        names.append("{" + ", ".join(f"%w{i}" for i in range(first, first + count)) + "}")
        first += count
    moves = "".join(
        f"    mov.b32 %{letter}{8 + i}, %w{counts[0] + counts[1] + i};\n" for i in range(counts[2])
    )
    names[2] = "{" + ", ".join(f"%{letter}{8 + i}" for i in range(counts[2])) + "}"
    d = ", ".join(f"%{letter}{i + 3}" for i in range(counts[2]))
    stores = "".join(f"    st.global.{results} [%x11+{4 * i}], %{letter}{i + 3};\n" for i in range(counts[2]))
    body = f"""
    .reg .b32 %w<{total}>;
    mad.wide.u32 %x10, %r0, {4 * total}, %x1;
    mad.wide.u32 %x11, %r0, {4 * counts[2]}, %x0;
{UNITS[unit]}{loads}{moves}
    {name} {{{d}}}, {", ".join(names)}, %w{total - 1}, {selector};
{stores}
    """
    out, _ = driver.run(kernel(body), "k", np.zeros((32, counts[2]), np.uint32), words, block=(32,))
    return out


@pytest.mark.some(15)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("variant", ["sp", "sp::ordered_metadata"])
@pytest.mark.parametrize(("kind", "shape", "selector"), CASES)
def test_product(kind: str, shape: Shape, selector: int, variant: str, unit: str) -> None:
    bits, encode, (low, high), sums = KINDS[kind]
    rng = np.random.default_rng(selector)
    a = Sparse(shape, low, high, rng, variant != "sp")
    b = rng.integers(low, high + 1, (8, shape.k))
    c = rng.integers(-100, 100, (16, 8))
    encode_sum = _floats(F32) if sums == "f32" else _integers(32)
    fragments = [
        packed(encode(np.array(a.fragments())).tolist(), bits),
        packed(encode(np.array(elements(b, shape.b))).tolist(), bits),
        packed(encode_sum(np.array(elements(c, SUMS))).tolist(), 32),
        a.metadata(selector, rng)[:, None],
    ]
    words = np.hstack(fragments).astype(np.uint32)
    if kind in SMALL:
        variant, sums_of = "sp::ordered_metadata", f"kind::f8f6f4.{sums}"
    else:
        sums_of = sums
    name = f"mma.{variant}.sync.aligned.m16n8k{shape.k}.row.col.{sums_of}.{kind}.{kind}.{sums}"
    out = run(name, words, [each.shape[1] for each in fragments], sums, selector, unit)
    expected = encode_sum(np.array(elements(a.dense @ b.T + c, SUMS)))
    assert (out == expected).all()


def test_sums_in_halves() -> None:
    """D and C of .f16: two to a register."""
    rng = np.random.default_rng(5)
    a = Sparse(HALVES_16, -4, 4, rng, True)
    b, c = rng.integers(-4, 5, (8, 16)), rng.integers(-9, 10, (16, 8))
    encode = KINDS["f16"][1]
    fragments = [packed(encode(np.array(a.fragments())).tolist(), 16)]
    fragments += [
        packed(encode(np.array(elements(each, layout))).tolist(), 16)
        for each, layout in ((b, HALVES_16.b), (c, SUMS))
    ]
    fragments.append(a.metadata(2, rng)[:, None])
    name = "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
    out = run(name, np.hstack(fragments), [each.shape[1] for each in fragments], "f16", 2, "warp")
    assert (out == packed(encode(np.array(elements(a.dense @ b.T + c, SUMS))).tolist(), 16)).all()


def test_sums_of_whole_numbers_saturate_or_wrap() -> None:
    rng = np.random.default_rng(6)
    a = Sparse(BYTES_64, 100, 127, rng, True)
    b, c = rng.integers(100, 128, (8, 64)), np.full((16, 8), 2**31 - 5)
    encode = KINDS["s8"][1]
    fragments = [
        packed(encode(np.array(a.fragments())).tolist(), 8),
        packed(encode(np.array(elements(b, BYTES_64.b))).tolist(), 8),
        packed(elements(c, SUMS), 32),
        a.metadata(0, rng)[:, None],
    ]
    counts = [each.shape[1] for each in fragments]
    words = np.hstack(fragments)
    begin = "mma.sp.sync.aligned.m16n8k64.row.col"
    wrapped = run(f"{begin}.s32.s8.s8.s32", words, counts, "s32", 0, "warp")
    assert (wrapped == _integers(32)(np.array(elements(a.dense @ b.T + c, SUMS)))).all()
    kept = run(f"{begin}.satfinite.s32.s8.s8.s32", words, counts, "s32", 0, "warp")
    assert (kept == 2**31 - 1).all()


@pytest.mark.parametrize(
    ("name", "counts", "selector", "reason"),
    [
        ("m16n8k16.row.col.f32.f16.f16.f32", (2, 2), 4, "no sparsity selector 4"),
        ("m16n8k32.row.col.f32.f16.f16.f32", (4, 4), 2, "no sparsity selector 2"),
        ("m16n8k64.row.col.s32.s8.s8.s32", (4, 4), 1, "no sparsity selector 1"),
        ("m16n8k64.row.col.f32.f16.f16.f32", (8, 8), 0, "this shape is not supported"),
        ("m16n8k16.row.col.f32.f16.f16.f32", (4, 2), 0, "a fragment has the wrong length"),
        ("m16n8k32.row.col.satfinite.f32.f16.f16.f32", (4, 4), 0, "unknown modifier .satfinite"),
    ],
)
def test_what_is_none_is_refused(name: str, counts: tuple[int, int], selector: int, reason: str) -> None:
    a, b = ("{" + ", ".join(["%r3"] * count) + "}" for count in counts)
    letter = "r" if "s32" in name else "f"
    sums = "{" + ", ".join(f"%{letter}{i}" for i in range(4)) + "}"
    body = f"    mma.sp.sync.aligned.{name} {sums}, {a}, {b}, {sums}, %r4, {selector};"
    assert reason in refusal(body)
