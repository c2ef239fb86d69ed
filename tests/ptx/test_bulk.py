"""cp.reduce.async.bulk: each number of a copy updates its place; st.bulk, and what reaches other devices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from . import driver
from .formats import BF16, F16, F32, Arithmetic, Format
from .ptx import UNITS, kernel

COUNT = 16  # numbers of a copy
TO_GLOBAL = "cp.reduce.async.bulk.global.shared::cta.bulk_group"
TO_SHARED = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
Change = Callable[[np.ndarray, np.ndarray], np.ndarray]
INTEGERS: dict[str, Change] = {
    "add": lambda was, x: was + x,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda was, x: np.where(was >= x, 0, was + 1),
    "dec": lambda was, x: np.where((was == 0) | (was > x), x, was - 1),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
CASES = [
    *((name, kind) for name in ("add", "min", "max") for kind in ("u32", "s32", "u64", "s64")),
    *((name, "u32") for name in ("inc", "dec")),
    *((name, kind) for name in ("and", "or", "xor") for kind in ("b32", "b64")),
]


def body(name: str, kind: str, size: int, to_shared: bool) -> str:
    """All threads store x1 in shared memory, of which the first copies `size` bytes onto x0's."""
    fill = """
    .shared .align 16 .b8 tile[256]; .shared .align 16 .b8 other[256]; .shared .align 8 .b64 bar;
    mov.u32 %r10, tile; mov.u32 %r11, other; mov.u32 %r12, bar; shl.b32 %r13, %r0, 2;
    cvt.u64.u32 %x10, %r13; add.u64 %x11, %x1, %x10; add.u64 %x12, %x0, %x10;
    ld.global.u32 %r14, [%x11]; ld.global.u32 %r15, [%x12];
    add.u32 %r16, %r10, %r13; st.shared.u32 [%r16], %r14;
    add.u32 %r17, %r11, %r13; st.shared.u32 [%r17], %r15;
    setp.ne.u32 %p0, %r0, 0; @!%p0 mbarrier.init.shared.b64 [%r12], 1; bar.sync 0; @%p0 bra WAIT;
"""
    if not to_shared:
        copy = f"{TO_GLOBAL}.{name}.{kind} [%x0], [%r10], {size};"
        return fill + f"    {copy} cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nWAIT:"
    return f"""{fill}
    mbarrier.arrive.expect_tx.shared.b64 %x13, [%r12], {size};
    {TO_SHARED}.{name}.{kind} [%r11], [%r10], {size}, [%r12];
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r12], 0; @!%p1 bra WAIT;
    ld.shared.u32 %r15, [%r17]; st.global.u32 [%x12], %r15;"""


def reduced(
    name: str, kind: str, was: np.ndarray, x: np.ndarray, unit: str, to_shared: bool = False
) -> np.ndarray:
    text = kernel(UNITS[unit] + body(name, kind, x.nbytes, to_shared))
    return driver.run(text, "k", was, x, block=(x.nbytes // 4,))[0]


@pytest.mark.some(2)
@pytest.mark.parametrize("to_shared", [False, True], ids=["global", "shared"])
@pytest.mark.parametrize("unit", UNITS)
def test_integers(unit: str, to_shared: bool) -> None:
    rng = np.random.default_rng(1)
    for name, kind in CASES:
        dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")
        was, x = (rng.integers(0, 256, (COUNT, dtype.itemsize), np.uint8).view(dtype)[:, 0] for _ in "ab")
        was[:4] = x[:4]
        expected = INTEGERS[name](was, x).astype(dtype)
        assert (reduced(name, kind, was, x, unit, to_shared) == expected).all(), (name, kind)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("f", [F16, BF16, F32], ids=lambda f: f.name)
def test_floats(f: Format, unit: str) -> None:
    """Single precision is flushed in global memory, as the atomics' is; the others say .noftz."""
    rng = np.random.default_rng(2)
    dtype = np.dtype(f"u{f.bits // 8}")
    values = [0.0, -0.0, f.smallest, f.smallest_normal, 1.0, -1.5, f.largest]
    was, x = (np.array([f.encode(value) for value in rng.choice(values, COUNT)], dtype) for _ in "ab")
    exact = Arithmetic(f, ftz=f is F32)
    sums = [f.encode(exact.add(f.decode(int(a)), f.decode(int(b)))) for a, b in zip(was, x, strict=True)]
    name = "add" if f is F32 else "add.noftz"
    assert reduced(name, f.name, was, x, unit).tolist() == sums


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("space", [".weak.shared::cta", ""])
def test_zeros(unit: str, space: str) -> None:
    """The last thread zeroes 72 of 128 bytes."""
    generic = "" if space else "cvta.shared.u64 %x10, %x10;"
    text = kernel(
        f"""{UNITS[unit]}    .shared .align 16 .b8 tile[128];
    mov.u64 %x10, tile; mad.wide.u32 %x11, %r0, 4, %x10; st.shared.u32 [%x11], 0x01010101; bar.sync 0;
    setp.ne.u32 %p0, %r0, 31; {generic} mov.u64 %x12, 72;
    @!%p0 st.bulk{space} [%x10+8], %x12, 0;
    bar.sync 0; ld.shared.u32 %r10, [%x11]; mad.wide.u32 %x13, %r0, 4, %x0; st.global.u32 [%x13], %r10;""",
        pointers=1,
    )
    (out,) = driver.run(text, "k", np.zeros(32, np.uint32), block=(32,))
    assert out.tolist() == [0 if 2 <= index < 20 else 0x01010101 for index in range(32)]


@pytest.mark.parametrize("order", ["mmio.release.sys", "release.gpu"])
@pytest.mark.parametrize("unit", UNITS)
def test_to_devices_elsewhere(unit: str, order: str) -> None:
    """st.async and red.async of global memory, whose order is that of a release."""
    text = kernel(
        UNITS[unit] + f"    mad.wide.u32 %x10, %r0, 4, %x0; st.async.{order}.global.u32 [%x10], %r0;\n"
        f"    red.async.{order}.global.add.u32 [%x0+128], %r0;",
        pointers=1,
    )
    (out,) = driver.run(text, "k", np.zeros(33, np.uint32), block=(32,))
    assert out.tolist() == [*range(32), sum(range(32))]
