"""Forms of products of matrices and of what moves them, by whole warps.

Registers hold anything, so of each word an element's type keeps what makes numbers near one, whose sums are
exact in any order. Who holds what is said by the formulas of the PTX ISA and by CuTe's layouts (layouts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from . import narrow, test_quads, test_sparse
from .form import Form, Names, Scene, Words, mix, mixed
from .layouts import SUMS, elements, places

LANES = np.arange(32)
GROUP, MEMBER = LANES // 4, LANES % 4
GIVEN = 4  # registers that all words are made of
TILE = 4096  # bytes of shared memory for a warp


@dataclass(frozen=True)
class Element:
    """`keep` and `put`: what a word keeps of what a register holds, and what is set in it."""

    bits: int
    keep: int = 0xFFFFFFFF
    put: int = 0


ELEMENTS = {
    "f16": Element(16, 0x83008300, 0x40004000),
    "bf16": Element(16, 0x80608060, 0x40004000),
    "tf32": Element(32, 0x80600000, 0x40000000),
    "f32": Element(32, 0x80600000, 0x40000000),
    "f64": Element(64, 0x800C0000, 0x40000000),  # of the upper half; the lower is zero
    "e4m3": Element(8, 0x86868686, 0x40404040),
    "e5m2": Element(8, 0x83838383, 0x40404040),
    "e2m1": Element(8, 0x3C3C3C3C),
    "e2m3": Element(8, 0x3F3F3F3F),
    "e3m2": Element(8, 0x3F3F3F3F),
    "s8": Element(8),
    "u8": Element(8),
    "s4": Element(4),
    "u4": Element(4),
    "b1": Element(1),
    "s32": Element(32),
}


def _salt(index: int) -> int:
    return index * 0x9E3779B9 & 0xFFFFFFFF


def _make(to: str, kind: str, index: int, a: Sequence[str]) -> str:
    """Word `index` of all that the registers are made to."""
    element = ELEMENTS[kind]
    if kind == "f64" and index % 2 == 0:
        return f"mov.u32 {to}, 0;"
    return (
        f"xor.b32 {to}, {a[index % GIVEN]}, {_salt(index)};"
        f" and.b32 {to}, {to}, {element.keep}; or.b32 {to}, {to}, {element.put};"
    )


def _made(kind: str, index: int, words: Sequence[Words]) -> Words:
    element = ELEMENTS[kind]
    if kind == "f64" and index % 2 == 0:
        return np.zeros_like(words[0])
    word = words[index % GIVEN] ^ np.uint32(_salt(index))
    return np.asarray(word & np.uint32(element.keep) | np.uint32(element.put))


def _narrow(kind: str, codes: np.ndarray) -> np.ndarray:
    form = narrow.FORMATS[kind]
    if kind == "e2m1":
        codes = codes >> 2
    sizes = np.array([form.value(code) for code in range(1 << form.bits - 1)])
    signs = np.where(codes >> form.bits - 1 & 1, -1.0, 1.0)
    return np.asarray(signs * sizes[codes & (1 << form.bits - 1) - 1])


def values(kind: str, words: np.ndarray) -> np.ndarray:
    """The numbers in words, along the last dimension."""
    words = np.ascontiguousarray(words)
    if kind in narrow.FORMATS:
        return _narrow(kind, words.view(np.uint8).astype(np.int64))
    if kind == "bf16":
        wide = words.view(np.uint16).astype(np.uint32) << np.uint32(16)
        return np.asarray(wide.view(np.float32), np.float64)
    views = {"f16": "f2", "tf32": "f4", "f32": "f4", "f64": "f8", "s8": "i1", "u8": "u1", "s32": "i4"}
    if kind in views:
        found = words.view(views[kind])
        return found.astype(np.float64 if found.dtype.kind == "f" else np.int64)
    bits = ELEMENTS[kind].bits
    each = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    codes = (words[..., None] >> each & np.uint32((1 << bits) - 1)).astype(np.int64)
    codes = codes.reshape(*words.shape[:-1], -1)
    return np.asarray(codes - (codes >> 3 << 4) if kind == "s4" else codes)


def encoded(kind: str, numbers: np.ndarray, saturated: bool = False) -> np.ndarray:
    """The words of numbers."""
    if kind == "s32":
        if saturated:
            numbers = numbers.clip(-(2**31), 2**31 - 1)
        return np.ascontiguousarray(numbers.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)
    type_ = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    return np.ascontiguousarray(numbers.astype(type_)).view(np.uint32)


def factor(extent: int, k: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each lane's elements: four lanes hold a row, each neighbours of one register."""
    each = max(1, 32 // bits)
    rows, columns = [], []
    for first in range(0, k, 4 * each):
        for eight in range(0, extent, 8):
            rows.append(np.repeat(GROUP[:, None] + eight, each, 1))
            columns.append(first + MEMBER[:, None] * each + np.arange(each))
    return np.hstack(rows), np.hstack(columns)


def sums(rows: int) -> tuple[np.ndarray, np.ndarray]:
    columns = MEMBER[:, None] * 2 + np.arange(2)
    eights = range(0, rows, 8)
    return (
        np.hstack([np.repeat(GROUP[:, None] + eight, 2, 1) for eight in eights]),
        np.hstack([columns for _ in eights]),
    )


@dataclass(frozen=True)
class Product:
    """`shape`: rows, columns, depth; the columns are eight. `kinds`: of D, A, B, C."""

    shape: tuple[int, int, int]
    kinds: tuple[str, str, str, str]
    before: str = ""  # of the shape
    after: str = ""  # in front of the types
    operation: str = ""  # of bits

    @property
    def name(self) -> str:
        rows, columns, depth = self.shape
        head = f"mma.sync.aligned.m{rows}n{columns}k{depth}.row.col"
        return f"{head}{self.operation}{self.after}.{'.'.join(self.kinds)}"

    def counts(self) -> tuple[int, int, int, int]:
        """Words of D, A, B and C."""
        rows, columns, depth = self.shape
        sizes = (rows * columns, rows * depth, columns * depth, rows * columns)
        bits = [ELEMENTS[kind].bits for kind in self.kinds]
        d, a, b, c = (size * each // 1024 for size, each in zip(sizes, bits, strict=True))
        return d, a, b, c

    def multiplied(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        if self.operation:
            parts = a[:, None] ^ b if "xor" in self.operation else a[:, None] & b
            return np.asarray(parts.sum(2) + c)
        return np.asarray(a @ b.T + c)


def _fragment(words: Sequence[str], kind: str) -> str:
    if kind == "f64":
        return "{" + ", ".join(f"%g{word[2:]}" for word in words[::2]) + "}"
    letter = "%f" if kind == "f32" else "%e"
    return "{" + ", ".join(letter + word[2:] for word in words) + "}"


def _to_registers(words: Sequence[str], kind: str) -> str:
    if kind == "f64":
        return " ".join(
            f"mov.b64 %g{low[2:]}, {{{low}, {high}}};"
            for low, high in zip(words[::2], words[1::2], strict=True)
        )
    return " ".join(f"mov.b32 %f{word[2:]}, {word};" for word in words) if kind == "f32" else ""


def _from_registers(words: Sequence[str], kind: str) -> str:
    if kind == "f64":
        return " ".join(
            f"mov.b64 {{{low}, {high}}}, %g{low[2:]};"
            for low, high in zip(words[::2], words[1::2], strict=True)
        )
    return " ".join(f"mov.b32 {word}, %f{word[2:]};" for word in words) if kind == "f32" else ""


_SCOPE = (
    "{ .reg .b32 %e<64>; .reg .f32 %f<64>; .reg .f64 %g<64>; .reg .b32 %lane, %tile, %w<6>; .reg .pred %here;"
)


def _product_code(name: str, counts: Sequence[int], kinds: Sequence[str], tail: str, n: Names) -> str:
    """`counts` and `kinds` of D, A, B, C."""
    index, lines, fragments = 0, [_SCOPE], []
    for count, kind in zip(counts[1:], kinds[1:], strict=True):
        words = [f"%e{index + each}" for each in range(count)]
        lines += [_make(word, kind, index + each, n.a) for each, word in enumerate(words)]
        lines.append(_to_registers(words, kind))
        fragments.append(_fragment(words, kind))
        index += count
    result = [f"%e{index + each}" for each in range(counts[0])]
    if tail:
        lines.append(_metadata_code(f"%e{index + counts[0]}", tail, n.a[1]))
        fragments.append(f"%e{index + counts[0]}, {tail.split()[1]}")
    lines.append(f"{name} {_fragment(result, kinds[0])}, {', '.join(fragments)};")
    lines += [_from_registers(result, kinds[0]), mixed(n.d, result), "}"]
    return "\n    ".join(line for line in lines if line)


def _given(counts: Sequence[int], kinds: Sequence[str], words: Sequence[Words]) -> list[np.ndarray]:
    """The words of A, B and C, [lane][word]."""
    index, found = 0, []
    for count, kind in zip(counts[1:], kinds[1:], strict=True):
        found.append(np.stack([_made(kind, index + each, words) for each in range(count)], axis=1))
        index += count
    return found


Warp = Callable[[list[Words]], np.ndarray]  # the words of D, [lane][word]


def _by_warps(compute: Warp, scene: Scene, *words: Words) -> list[Words]:
    results = [scene.nothing(), scene.nothing()]
    for first in range(0, scene.size, 32):
        warp = slice(first, first + 32)
        made = compute([each[warp] for each in words])
        for result, each in zip(results, mix(2, list(made.T)), strict=True):
            result[warp] = each
    return results


def _dense(product: Product, words: list[Words]) -> np.ndarray:
    rows, columns, depth = product.shape
    d_kind, a_kind, b_kind, c_kind = product.kinds
    a_words, b_words, c_words = _given(product.counts(), product.kinds, words)
    whole = a_kind[0] in "su" or a_kind == "b1"
    extents = (rows, depth), (columns, depth), (rows, columns)
    a, b, c = (np.zeros(each, np.int64 if whole else np.float64) for each in extents)
    a[factor(rows, depth, ELEMENTS[a_kind].bits)] = values(a_kind, a_words)
    b[factor(columns, depth, ELEMENTS[b_kind].bits)] = values(b_kind, b_words)
    c[sums(rows)] = values(c_kind, c_words)
    d = product.multiplied(a, b, c)
    return encoded(d_kind, d[sums(rows)], product.after == ".satfinite")


def _products() -> list[Product]:
    made = []
    for k in (8, 16):
        made += [Product((16, 8, k), (each, "f16", "f16", each)) for each in ("f32", "f16")]
        made.append(Product((16, 8, k), ("f32", "bf16", "bf16", "f32")))
    made += [Product((16, 8, k), ("f32", "tf32", "tf32", "f32")) for k in (4, 8)]
    made += [Product(shape, ("f64",) * 4) for shape in ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16))]
    for letters, depths in (("8", (16, 32)), ("4", (32, 64))):
        for a in "su":
            for b in "su":
                kinds = ("s32", a + letters, b + letters, "s32")
                shapes = [(8, 8, depths[0]), *((16, 8, depth) for depth in depths)]
                for after in ("", ".satfinite"):
                    made += [Product(shape, kinds, after=after) for shape in shapes]
    for how in (".xor.popc", ".and.popc"):
        for shape in ((8, 8, 128), (16, 8, 128), (16, 8, 256)):
            made.append(Product(shape, ("s32", "b1", "b1", "s32"), operation=how))
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            made += [Product((16, 8, k), (d, a, b, d)) for k in (16, 32) for d in ("f32", "f16")]
    for a, b in (("e2m1", "e4m3"), ("e3m2", "e2m3"), ("e5m2", "e3m2"), ("e2m3", "e2m1")):
        made.append(Product((16, 8, 32), ("f32", a, b, "f32"), after=".kind::f8f6f4"))
    return made


# Sparse ones.


def _pairs(word: Words) -> Words:
    """Of four the first or second, and the third or fourth."""
    return np.asarray(word & np.uint32(0x55555555) | np.uint32(0x88888888))


def _halves(word: Words) -> Words:
    """Of two elements one, of which both halves are named."""
    chosen = word & np.uint32(0x22222222)
    return np.asarray(chosen | chosen << np.uint32(2) | np.uint32(0x44444444))


def _metadata_code(to: str, tail: str, a: str) -> str:
    if tail.split()[0] == "pairs":
        return f"and.b32 {to}, {a}, 0x55555555; or.b32 {to}, {to}, 0x88888888;"
    return (
        f"and.b32 {to}, {a}, 0x22222222; shl.b32 %w0, {to}, 2; or.b32 {to}, {to}, %w0;"
        f" or.b32 {to}, {to}, 0x44444444;"
    )


@dataclass(frozen=True)
class Sparse:
    kinds: tuple[str, str, str, str]
    shape: test_sparse.Shape
    selector: int
    form: str = "sp::ordered_metadata"

    @property
    def name(self) -> str:
        return f"mma.{self.form}.sync.aligned.m16n8k{self.shape.k}.row.col.{'.'.join(self.kinds)}"

    @property
    def tail(self) -> str:
        return f"{'halves' if self.shape.chunk == 2 else 'pairs'} {self.selector}"

    def counts(self) -> tuple[int, int, int, int]:
        d, a, b, c = Product((16, 8, self.shape.k), self.kinds).counts()
        return d, a // 2, b, c


def _sparse(product: Sparse, words: list[Words]) -> np.ndarray:
    shape = product.shape
    d_kind, a_kind, b_kind, c_kind = product.kinds
    a_words, b_words, c_words = _given(product.counts(), product.kinds, words)
    metadata = (_halves if shape.chunk == 2 else _pairs)(words[1])
    chunks = shape.k // shape.chunk
    named = np.zeros((16, chunks), np.int64)
    lanes, positions = (places(mode) for mode in shape.metadata)
    (sizes, strides), _ = shape.metadata
    idle = next((i for i, stride in enumerate(strides) if stride == 0), None)
    for lane, base in enumerate(lanes):
        if idle is not None and lane // int(np.prod(sizes[:idle])) % sizes[idle] != product.selector:
            continue
        for number, first in enumerate(positions):
            row, begin = (base + first) % 16, (base + first) // 16 // shape.chunk
            for at in range(shape.width // 4):
                named[row, begin + at] = int(metadata[lane]) >> number * shape.width + 4 * at & 15
    whole = a_kind[0] in "su"
    dense = np.zeros((16, shape.k), np.int64 if whole else np.float64)
    kept = values(a_kind, a_words)
    lanes, positions = (places(mode) for mode in shape.a)
    for lane, base in enumerate(lanes):
        for number, first in enumerate(positions[:: shape.chunk]):
            row, chunk = (base + first) % 16, (base + first) // 16 // shape.chunk
            mine = kept[lane, number * shape.chunk // 2 : (number + 1) * shape.chunk // 2]
            if shape.chunk == 2:
                dense[row, 2 * chunk + (named[row, chunk] & 3) // 2] = mine[0]
                continue
            for which, part in enumerate(mine.reshape(2, -1)):
                at = named[row, chunk] >> 2 * which & 3
                begin = chunk * shape.chunk + at * shape.piece
                dense[row, begin : begin + shape.piece] = part
    b = np.zeros((8, shape.k), dense.dtype)
    lanes, positions = (places(mode) for mode in shape.b)
    given = values(b_kind, b_words)
    for lane, base in enumerate(lanes):
        for number, at in enumerate(positions):
            b[(base + at) % 8, (base + at) // 8] = given[lane, number]
    c = np.zeros((16, 8), dense.dtype)
    c[sums(16)] = values(c_kind, c_words)
    d = dense @ b.T + c
    return encoded(d_kind, np.array(elements(d, SUMS)))


def _sparse_products() -> list[Sparse]:
    made = []
    for kind, shape, selector in test_sparse.CASES:
        if kind in test_sparse.SMALL:
            continue
        total = "s32" if kind[0] in "su" else "f32"
        made.append(Sparse((total, kind, kind, total), shape, selector))
    made.append(Sparse(("f16", "f16", "f16", "f16"), test_sparse.HALVES_16, 1, "sp"))
    return made


# Volta's four at once.


@dataclass(frozen=True)
class Quads:
    a: str
    b: str
    sums: str

    @property
    def name(self) -> str:
        return f"mma.sync.aligned.m8n8k4.{self.a}.{self.b}.{self.sums}.f16.f16.{self.sums}"

    @property
    def kinds(self) -> tuple[str, str, str, str]:
        return self.sums, "f16", "f16", self.sums

    def counts(self) -> tuple[int, int, int, int]:
        count = 4 if self.sums == "f16" else 8
        return count, 2, 2, count


def _four(product: Quads, words: list[Words]) -> np.ndarray:
    a_words, b_words, c_words = _given(product.counts(), product.kinds, words)
    a, b, c = np.zeros((4, 8, 4)), np.zeros((4, 4, 8)), np.zeros((4, 8, 8))
    quad = test_quads.QUAD[:, None]
    for matrix, kind, given, where in (
        (a, "f16", a_words, test_quads.factor_places("A", product.a)),
        (b, "f16", b_words, test_quads.factor_places("B", product.b)),
        (c, product.sums, c_words, test_quads.sum_places(product.sums)),
    ):
        matrix[quad, where[0], where[1]] = values(kind, given)
    return encoded(product.sums, test_quads.held(a @ b + c, test_quads.sum_places(product.sums)))


# What moves matrices.

_TILE = (
    "mov.u32 %lane, %laneid; mov.u32 %tile, %tid.x; shr.u32 %tile, %tile, 5; mov.u32 %w0, tiles;"
    f" mad.lo.u32 %tile, %tile, {TILE}, %w0;"
)


def _order(k: int) -> tuple[int, int]:
    """Lane l's row is (l * the first + the second) % 32."""
    return 2 * (k >> 8 & 15) + 1, k >> 12 & 31


def _load_code(shape: str, count: int, trans: str, n: Names) -> str:
    by, first = _order(n.k)
    to = [f"%e{each}" for each in range(count * (2 if shape == "m16n16" else 1))]
    kind = "b16" if shape == "m8n8" else "b8"
    return (
        f"{_SCOPE} {_TILE} mad.lo.u32 %w1, %lane, 16, %tile; bar.warp.sync 0xffffffff;"
        f" st.shared.v4.u32 [%w1], {{{', '.join(n.a)}}}; bar.warp.sync 0xffffffff;"
        f" mad.lo.u32 %w2, %lane, {by}, {first}; and.b32 %w2, %w2, 31; mad.lo.u32 %w2, %w2, 16, %tile;"
        f" ldmatrix.sync.aligned.{shape}.x{count}{trans}.shared.{kind} {{{', '.join(to)}}}, [%w2];"
        f" bar.warp.sync 0xffffffff; {mixed(n.d, to)} }}"
    )


def _rows(k: int) -> np.ndarray:
    by, first = _order(k)
    return (LANES * by + first) % 32


def _loaded(shape: str, count: int, trans: str, scene: Scene, *words: Words) -> list[Words]:
    rows = _rows(scene.k)

    def compute(given: list[Words]) -> np.ndarray:
        memory = np.ascontiguousarray(np.stack(given, axis=1)).view(np.uint8)[rows]
        found = []
        for index in range(count):
            if shape == "m8n8":
                matrix = memory[8 * index : 8 * index + 8].view(np.uint16)
                matrix = matrix.T if trans else matrix
                pairs = matrix[GROUP[:, None], MEMBER[:, None] * 2 + np.arange(2)]
                found.append(np.ascontiguousarray(pairs).view(np.uint32))
                continue
            matrix = memory[16 * index : 16 * index + 16].T
            for half in (0, 1):
                part = matrix[(GROUP + 8 * half)[:, None], MEMBER[:, None] * 4 + np.arange(4)]
                found.append(np.ascontiguousarray(part).view(np.uint32))
        return np.hstack(found)

    return _by_warps(compute, scene, *words)


def _store_code(shape: str, count: int, trans: str, n: Names) -> str:
    by, first = _order(n.k)
    kind = "b16" if shape == "m8n8" else "b8"
    return (
        f"{_SCOPE} {_TILE} mad.lo.u32 %w1, %lane, 16, %tile; bar.warp.sync 0xffffffff;"
        f" st.shared.v4.u32 [%w1], {{{', '.join(n.a)}}}; bar.warp.sync 0xffffffff;"
        f" mad.lo.u32 %w2, %lane, {by}, {first}; and.b32 %w2, %w2, 31; mad.lo.u32 %w2, %w2, 16, %tile;"
        f" stmatrix.sync.aligned.{shape}.x{count}{trans}.shared.{kind} [%w2], {{{', '.join(n.a[:count])}}};"
        f" bar.warp.sync 0xffffffff; ld.shared.v4.u32 {{%e0, %e1, %e2, %e3}}, [%w1];"
        f" {mixed(n.d, [f'%e{each}' for each in range(4)])} }}"
    )


def _stored(shape: str, count: int, trans: str, scene: Scene, *words: Words) -> list[Words]:
    rows = _rows(scene.k)

    def compute(given: list[Words]) -> np.ndarray:
        memory = np.ascontiguousarray(np.stack(given, axis=1)).view(np.uint8).copy()
        for index in range(count):
            if shape == "m8n8":
                matrix = np.zeros((8, 8), np.uint16)
                pairs = np.ascontiguousarray(given[index]).view(np.uint16).reshape(32, 2)
                matrix[GROUP[:, None], MEMBER[:, None] * 2 + np.arange(2)] = pairs
                matrix = np.ascontiguousarray(matrix.T if trans else matrix)
                memory[rows[8 * index : 8 * index + 8]] = matrix.view(np.uint8)
                continue
            whole = np.zeros((16, 8), np.uint8)
            i = np.arange(4)[None, :]
            where = GROUP[:, None] + 8 * (i // 2), 2 * MEMBER[:, None] + i % 2
            whole[where] = np.ascontiguousarray(given[index]).view(np.uint8).reshape(32, 4)
            memory[rows[8 * index : 8 * index + 8]] = whole.T
        return np.ascontiguousarray(memory).view(np.uint32)

    return _by_warps(compute, scene, *words)


def _moved(words: list[Words]) -> np.ndarray:
    matrix = np.zeros((8, 8), np.uint16)
    where = GROUP[:, None], MEMBER[:, None] * 2 + np.arange(2)
    matrix[where] = np.ascontiguousarray(words[0]).view(np.uint16).reshape(32, 2)
    return np.ascontiguousarray(matrix.T[where]).view(np.uint32)


# wmma.


@dataclass(frozen=True)
class Wmma:
    shape: tuple[int, int, int]
    kinds: tuple[str, str, str, str]  # of D, A, B, C
    layouts: tuple[str, str, str]  # of A, B, and of C and D
    operation: str = ""

    @property
    def name(self) -> str:
        rows, columns, depth = self.shape
        return f"wmma m{rows}n{columns}k{depth} {'.'.join((*self.kinds, *self.layouts))}{self.operation}"

    def extents(self) -> list[tuple[int, int]]:
        """Of A, B and C as they lie in memory, the lines first."""
        rows, columns, depth = self.shape
        found = [(rows, depth), (depth, columns), (rows, columns)]
        return [
            each if layout == "row" else each[::-1] for each, layout in zip(found, self.layouts, strict=True)
        ]

    def spans(self) -> list[int]:
        """Bytes of A, B and C."""
        return [
            lines * each * ELEMENTS[kind].bits // 8
            for (lines, each), kind in zip(self.extents(), self.kinds[1:], strict=True)
        ]

    def registers(self) -> list[int]:
        """Of A, B, and of C and D."""
        counts = [span // 128 for span in self.spans()]
        if self.kinds[1] == "f16":
            counts[:2] = 8, 8
        if self.kinds[1] == "f64":
            counts = [count // 2 for count in counts]
        return counts


def _names(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"{letter}{first + each}" for each in range(count)) + "}"


def _wmma_code(w: Wmma, n: Names) -> str:
    rows, columns, depth = w.shape
    shape = f"m{rows}n{columns}k{depth}"
    lines = [_SCOPE, _TILE, "bar.warp.sync 0xffffffff;"]
    begins, index = [], 0
    begin = 0
    for span, kind in zip(w.spans(), w.kinds[1:], strict=True):
        begins.append(begin)
        for part in range(-(-span // 512)):
            lines += [_make(f"%e{each}", kind, index + each, n.a) for each in range(4)]
            index += 4
            lines.append(
                f"mad.lo.u32 %w1, %lane, 16, %tile; setp.lt.u32 %here, %lane, {(span - 512 * part) // 16};"
            )
            lines.append(f"@%here st.shared.v4.u32 [%w1+{begin + 512 * part}], {{%e0, %e1, %e2, %e3}};")
        begin += span
    lines.append("bar.warp.sync 0xffffffff;")
    letter = "%g" if w.kinds[1] == "f64" else "%e"
    c_letter = {"f64": "%g", "f32": "%f"}.get(w.kinds[3], "%e")
    a, b, c = w.registers()
    fragments = [_names(letter, 0, a), _names(letter, 16, b), _names(c_letter, 32, c)]
    d = _names(c_letter, 48, c)
    for which, (matrix, kind) in enumerate(zip("abc", w.kinds[1:], strict=True)):
        lines.append(f"add.u32 %w2, %tile, {begins[which]};")
        pitch = w.extents()[which][1]
        lines.append(
            f"wmma.load.{matrix}.sync.aligned.{w.layouts[which]}.{shape}.shared.{kind}"
            f" {fragments[which]}, [%w2], {pitch};"
        )
    types = f"{w.kinds[0]}.{w.kinds[3]}" if w.kinds[1] == "f16" else ".".join(w.kinds)
    lines.append(
        f"wmma.mma{w.operation}.sync.aligned.{w.layouts[0]}.{w.layouts[1]}.{shape}.{types}"
        f" {d}, {', '.join(fragments)};"
    )
    lines.append("bar.warp.sync 0xffffffff;")
    lines.append(
        f"wmma.store.d.sync.aligned.{w.layouts[2]}.{shape}.shared.{w.kinds[0]}"
        f" [%w2], {d}, {w.extents()[2][1]};"
    )
    lines.append("bar.warp.sync 0xffffffff;")
    count = w.spans()[2] // 128
    results = [f"%e{each}" for each in range(count)]
    lines.append("mad.lo.u32 %w1, %lane, 4, %w2;")
    lines += [f"ld.shared.u32 {each}, [%w1+{128 * at}];" for at, each in enumerate(results)]
    lines += ["bar.warp.sync 0xffffffff;", mixed(n.d, results), "}"]
    return "\n    ".join(lines)


def _wmma(w: Wmma, words: list[Words]) -> np.ndarray:
    index, matrices = 0, []
    for span, kind, extents, layout in zip(w.spans(), w.kinds[1:], w.extents(), w.layouts, strict=True):
        parts = []
        for _ in range(-(-span // 512)):
            parts.append(np.stack([_made(kind, index + each, words) for each in range(4)], axis=1).ravel())
            index += 4
        matrix = values(kind, np.concatenate(parts)[: span // 4]).reshape(extents)
        matrices.append(matrix if layout == "row" else matrix.T)
    a, b, c = matrices
    if w.operation:
        parts = a[:, None] ^ b.T if "xor" in w.operation else a[:, None] & b.T
        d = parts.sum(2) + c
    else:
        d = a @ b + c
    d = d if w.layouts[2] == "row" else d.T
    return np.asarray(encoded(w.kinds[0], np.ascontiguousarray(d)).reshape(-1, 32).T)


def _wmmas() -> list[Wmma]:
    made = []
    ways = [(a, b, c) for a in ("row", "col") for b in ("row", "col") for c in ("row", "col")]
    bytes_ = ((16, 16, 16), (8, 32, 16), (32, 8, 16))
    for number, shape in enumerate(bytes_):
        for way in range(8):
            layouts = ways[way]
            if way % 3 == number % 3:
                made.append(Wmma(shape, ("f32", "f16", "f16", "f32"), layouts))
                made.append(Wmma(shape, ("s32", "s8", "s8", "s32"), layouts))
            elif way % 3 == (number + 1) % 3:
                made.append(Wmma(shape, ("f16", "f16", "f16", "f16"), layouts))
                made.append(Wmma(shape, ("s32", "u8", "u8", "s32"), layouts))
            else:
                made.append(Wmma(shape, ("f32", "bf16", "bf16", "f32"), layouts))
    for layouts in ways:
        made.append(Wmma((16, 16, 8), ("f32", "tf32", "tf32", "f32"), layouts))
        made.append(Wmma((8, 8, 4), ("f64",) * 4, layouts))
    for c in ("row", "col"):
        for kind in ("s4", "u4"):
            made.append(Wmma((8, 8, 32), ("s32", kind, kind, "s32"), ("row", "col", c)))
        for how in (".xor.popc", ".and.popc"):
            made.append(Wmma((8, 8, 128), ("s32", "b1", "b1", "s32"), ("row", "col", c), how))
    return made


def forms() -> list[Form]:
    made = []

    def add(name: str, code: Callable[[Names], str], value: Callable[..., Sequence[Words]]) -> None:
        made.append(Form(name, "warp", 2, GIVEN, code, value))

    for p in _products():
        add(
            p.name,
            partial(_product_code, p.name, p.counts(), p.kinds, ""),
            partial(_by_warps, partial(_dense, p)),
        )
    for s in _sparse_products():
        add(
            f"{s.name} {s.selector}",
            partial(_product_code, s.name, s.counts(), s.kinds, s.tail),
            partial(_by_warps, partial(_sparse, s)),
        )
    for a in ("row", "col"):
        for b in ("row", "col"):
            for c in ("f16", "f32"):
                q = Quads(a, b, c)
                add(
                    q.name,
                    partial(_product_code, q.name, q.counts(), q.kinds, ""),
                    partial(_by_warps, partial(_four, q)),
                )
    for w in _wmmas():
        add(w.name, partial(_wmma_code, w), partial(_by_warps, partial(_wmma, w)))
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            how = ("m8n8", count, trans)
            add(f"ldmatrix x{count}{trans}", partial(_load_code, *how), partial(_loaded, *how))
            add(f"stmatrix x{count}{trans}", partial(_store_code, *how), partial(_stored, *how))
        rows = ("m16n8", count, ".trans")
        add(f"stmatrix m16n8 x{count}", partial(_store_code, *rows), partial(_stored, *rows))
        if count < 4:
            rows = ("m16n16", count, ".trans")
            add(f"ldmatrix m16n16 x{count}", partial(_load_code, *rows), partial(_loaded, *rows))
    add(
        "movmatrix",
        lambda n: (
            f"movmatrix.sync.aligned.m8n8.trans.b16 %t0, {n.a[0]}; mov.u32 {n.d[0]}, %t0; "
            f"mov.u32 {n.d[1]}, 0;"
        ),
        partial(_by_warps, lambda words: np.hstack([_moved(words), np.zeros((32, 1), np.uint32)])),
    )
    return made
