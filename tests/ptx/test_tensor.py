"""cp.async.bulk.tensor: boxes of tensors, element by element as CUDA's manual describes them."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from . import driver
from .ptx import UNITS, kernel
from .refusals import refusal

UNTOUCHED, SHARED = 0xCD, 8192
U8, U16, U32, S32, U64, S64, F16, F32, F64, BF16 = range(10)
SIZES = {U8: 1, U16: 2, U32: 4, S32: 4, U64: 8, S64: 8, F16: 2, F32: 4, F64: 8, BF16: 2}
SPANS = [0, 32, 64, 128, 128]
LOAD = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
REDUCE = "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{change}.tile.bulk_group"


@dataclass(frozen=True)
class Box:
    """A box of a tensor: of each dimension, the innermost first, how far it goes and where it begins."""

    type: int
    dims: tuple[int, ...]
    box: tuple[int, ...]
    corner: tuple[int, ...]
    steps: tuple[int, ...] = (1, 1, 1, 1, 1)
    swizzle: int = 0
    nan: bool = False

    @property
    def rank(self) -> int:
        return len(self.dims)

    def strides(self) -> list[int]:
        """In bytes, of the outer dimensions, with a gap behind each."""
        found = [-(-self.dims[0] * SIZES[self.type] // 16) * 16 + 16]
        for size in self.dims[1:-1]:
            found.append(found[-1] * size + 32)
        return found[: self.rank - 1]

    def bytes(self) -> int:
        return 1 + sum(
            (n - 1) * s for n, s in zip(self.dims, [SIZES[self.type], *self.strides()], strict=True)
        )

    def counts(self) -> list[int]:
        return [-(-n // s) for n, s in zip(self.box, self.steps[: self.rank], strict=True)]

    def elements(self) -> Iterator[tuple[int, int | None]]:
        """Where each of the box lies in shared memory, and in the tensor (None: beyond it), in bytes."""
        size = SIZES[self.type]
        pitch = max(self.counts()[0] * size, SPANS[self.swizzle])
        for row, outer in enumerate(itertools.product(*(range(n) for n in reversed(self.counts()[1:])))):
            for index in range(self.counts()[0]):
                at = [
                    c + i * s
                    for c, i, s in zip(self.corner, (index, *reversed(outer)), self.steps, strict=False)
                ]
                inside = all(0 <= i < n for i, n in zip(at, self.dims, strict=True))
                where = sum(i * s for i, s in zip(at, [size, *self.strides()], strict=True))
                yield self._swizzled(row * pitch + index * size), where if inside else None

    def _swizzled(self, place: int) -> int:
        line, within = divmod(place, 128)
        if self.swizzle == 4:
            return line * 128 + ((within // 32) ^ (line % 4)) * 32 + within % 32
        mask = (1, 2, 4, 8)[self.swizzle] - 1
        return line * 128 + ((within // 16) ^ (line & mask)) * 16 + within % 16

    def encoded(self, address: int) -> np.ndarray:
        room = np.zeros(192, np.uint8)
        map_ = room[-room.ctypes.data % 64 :][:128]

        def array(kind: type[ctypes.c_uint32 | ctypes.c_uint64], values: Sequence[int]) -> object:
            return (kind * 5)(*values)

        driver.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(map_.ctypes.data),
            self.type,
            self.rank,
            ctypes.c_void_p(address),
            array(ctypes.c_uint64, self.dims),
            array(ctypes.c_uint64, self.strides()),
            array(ctypes.c_uint32, self.box),
            array(ctypes.c_uint32, self.steps[: self.rank]),
            0,
            self.swizzle,
            0,
            int(self.nan),
        )
        return np.array(map_)


def coordinates(box: Box) -> str:
    return f"[%x1, {{{', '.join(str(each) for each in box.corner)}}}]"


SHAPES = {
    "line": Box(U8, (100,), (32,), (11,)),
    "line beyond its end": Box(U16, (100,), (64,), (70,)),
    "plane": Box(F32, (40, 30), (16, 8), (5, 6)),
    "plane before its beginning": Box(U32, (40, 30), (16, 8), (-3, -2)),
    "plane beyond all": Box(S32, (40, 30), (16, 8), (100, 3)),
    "not there is NaN": Box(F16, (40, 30), (16, 8), (35, 25), nan=True),
    "single NaN": Box(F32, (9, 3), (8, 4), (4, 1), nan=True),
    "double": Box(F64, (9, 5), (4, 4), (6, 2)),
    "solid": Box(U64, (8, 7, 6), (4, 3, 2), (1, 5, 4)),
    "four": Box(U16, (16, 5, 4, 3), (8, 2, 3, 2), (3, -1, 2, 1)),
    "five": Box(U8, (32, 4, 3, 3, 2), (16, 2, 2, 2, 2), (9, 3, -1, 2, 0)),
    "steps": Box(U32, (40, 30), (16, 9), (2, 1), steps=(1, 2)),
    "32 B": Box(F32, (40, 30), (8, 16), (5, 6), swizzle=1),
    "64 B": Box(F16, (40, 30), (32, 16), (5, 6), swizzle=2),
    "128 B": Box(F32, (60, 30), (32, 20), (5, 16), swizzle=3),
    "128 B, and less in a row": Box(F32, (60, 30), (16, 20), (5, 6), swizzle=3),
    "128 B in chunks of 32": Box(F32, (60, 30), (32, 20), (5, 6), swizzle=4),
}


def load_text(box: Box, unit: str) -> str:
    """The first thread has the box loaded; all of shared memory is stored."""
    copy = LOAD.format(rank=box.rank)
    count = SIZES[box.type] * int(np.prod(box.counts()))
    return kernel(
        UNITS[unit]
        + f"""
    .shared .align 1024 .b8 tile[{SHARED}]; .shared .align 8 .b64 bar;
    mov.u32 %r10, tile; mov.u32 %r11, bar; shl.b32 %r12, %r0, 2; mov.u32 %r13, %r12;
FILL: add.u32 %r14, %r10, %r13; st.shared.u32 [%r14], 0xCDCDCDCD; add.u32 %r13, %r13, 128;
    setp.lt.u32 %p0, %r13, {SHARED}; @%p0 bra FILL;
    setp.ne.u32 %p0, %r0, 0; @!%p0 mbarrier.init.shared.b64 [%r11], 1; bar.sync 0;
    @%p0 bra WAIT;
    mbarrier.arrive.expect_tx.shared.b64 %x13, [%r11], {count};
    {copy} [%r10], {coordinates(box)}, [%r11];
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r11], 0; @!%p1 bra WAIT;
    mov.u32 %r13, %r12;
OUT: add.u32 %r14, %r10, %r13; ld.shared.u32 %r15, [%r14]; cvt.u64.u32 %x10, %r13; add.u64 %x10, %x10, %x0;
    st.global.u32 [%x10], %r15; add.u32 %r13, %r13, 128; setp.lt.u32 %p0, %r13, {SHARED}; @%p0 bra OUT;"""
    )


def store_text(box: Box, unit: str, copy: str) -> str:
    """All threads put %x0's bytes into shared memory, which the first has stored."""
    return kernel(
        UNITS[unit]
        + f"""
    .shared .align 1024 .b8 tile[{SHARED}];
    mov.u32 %r10, tile; shl.b32 %r13, %r0, 2;
IN: add.u32 %r14, %r10, %r13; cvt.u64.u32 %x10, %r13; add.u64 %x10, %x10, %x0; ld.global.u32 %r15, [%x10];
    st.shared.u32 [%r14], %r15; add.u32 %r13, %r13, 128; setp.lt.u32 %p0, %r13, {SHARED}; @%p0 bra IN;
    bar.sync 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
    {copy} {coordinates(box)}, [%r10]; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
END:"""
    )


def filling(box: Box) -> bytes:
    size = SIZES[box.type]
    return b"\xff" * (size - 1) + b"\x7f" if box.nan else b"\0" * size


@pytest.mark.some(14)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", SHAPES)
def test_load(name: str, unit: str) -> None:
    box = SHAPES[name]
    tensor = np.random.default_rng(1).integers(0, 256, box.bytes() + 16, np.uint8)
    memory, out = driver.Buffer(tensor), driver.Buffer(np.zeros(SHARED, np.uint8))
    map_ = driver.Buffer(box.encoded(memory.address.value))
    driver.Module(load_text(box, unit)).launch("k", out, map_, block=(32,))
    expected, size = np.full(SHARED, UNTOUCHED, np.uint8), SIZES[box.type]
    for place, where in box.elements():
        value = filling(box) if where is None else tensor[where : where + size].tobytes()
        expected[place : place + size] = np.frombuffer(value, np.uint8)
    assert (out.read() == expected).all()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", SHAPES)
def test_store(name: str, unit: str) -> None:
    """What lies beyond the tensor, and between its rows, stays."""
    box, rng = SHAPES[name], np.random.default_rng(2)
    tensor = rng.integers(0, 256, box.bytes() + 16, np.uint8)
    tile = rng.integers(0, 256, SHARED, np.uint8)
    memory, source = driver.Buffer(tensor), driver.Buffer(tile)
    map_ = driver.Buffer(box.encoded(memory.address.value))
    text = store_text(box, unit, STORE.format(rank=box.rank))
    driver.Module(text).launch("k", source, map_, block=(32,))
    for place, where in box.elements():
        if where is not None:
            tensor[where : where + SIZES[box.type]] = tile[place : place + SIZES[box.type]]
    assert (memory.read() == tensor).all()


CHANGES = [
    *((change, kind) for change in ("add", "min", "max") for kind in ("u4", "i4", "u8", "i8", "f4")),
    *((change, "u4") for change in ("inc", "dec")),
    *((change, kind) for change in ("and", "or", "xor") for kind in ("u4", "u8")),
    ("add", "f2"),
    ("max", "f2"),
]
TYPES = {"u4": U32, "i4": S32, "u8": U64, "i8": S64, "f4": F32, "f2": F16}


def changed(change: str, was: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Each number as an atomic leaves it."""
    if change == "inc":
        return np.where(was >= by, 0, was + 1)
    if change == "dec":
        return np.where((was == 0) | (was > by), by, was - 1)
    names = {"add": "add", "min": "minimum", "max": "maximum"}
    return getattr(np, names.get(change, f"bitwise_{change}"))(was, by)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("change", "kind"), CHANGES)
def test_reduce(change: str, kind: str) -> None:
    box = Box(TYPES[kind], (64 // int(kind[1]), 8), (32 // int(kind[1]), 4), (2, 6))
    rng, dtype = np.random.default_rng(3), np.dtype(kind)
    numbers = (
        rng.integers(-50, 50, 1024).astype(dtype) if kind[0] != "u" else rng.integers(0, 90, 1024)
    ).astype(dtype)
    tensor, tile = (
        np.resize(numbers, box.bytes() // dtype.itemsize + 8),
        np.resize(numbers[::-1], SHARED // dtype.itemsize),
    )
    memory, source = driver.Buffer(tensor), driver.Buffer(tile)
    map_ = driver.Buffer(box.encoded(memory.address.value))
    text = store_text(box, "warp", REDUCE.format(rank=2, change=change))
    driver.Module(text).launch("k", source, map_, block=(32,))
    for place, where in box.elements():
        if where is not None:
            at = where // dtype.itemsize
            tensor[at] = changed(change, tensor[at], tile[place // dtype.itemsize])
    assert (memory.read() == tensor).all()


def test_what_is_no_map_is_illegal() -> None:
    box = SHAPES["plane"]
    with driver.own_context():
        map_, out = driver.Buffer(np.zeros(128, np.uint8)), driver.Buffer(np.zeros(SHARED, np.uint8))
        with pytest.raises(driver.CudaError) as caught:
            driver.Module(load_text(box, "warp")).launch("k", out, map_, block=(32,))
        assert caught.value.status == driver.ILLEGAL_ADDRESS


def test_memory_beyond_the_blocks_is_illegal() -> None:
    """The box is larger than what is left of shared memory."""
    box = Box(F64, (256, 256), (64, 64), (0, 0))
    with driver.own_context():
        memory = driver.Buffer(np.zeros(box.bytes() + 16, np.uint8))
        map_, out = (
            driver.Buffer(box.encoded(memory.address.value)),
            driver.Buffer(np.zeros(SHARED, np.uint8)),
        )
        with pytest.raises(driver.CudaError) as caught:
            driver.Module(load_text(box, "warp")).launch("k", out, map_, block=(32,))
        assert caught.value.status == driver.ILLEGAL_ADDRESS


def test_what_is_not_written_right_is_refused() -> None:
    copy = LOAD.format(rank=2)
    assert "2 coordinates" in refusal(f"{copy} [%r10], [%x1, {{%r1}}], [%r11];")
    assert "a tensor map" in refusal(f"{copy} [%r10], [%x1], [%r11];")
