"""Kernels in whose addresses lanes follow each other by tid.x, or only seem to: what test_lines.py runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import driver
from .ptx import kernel

BYTES = np.random.default_rng(3).integers(0, 256, 1 << 16, dtype=np.uint8)
MIDDLE = 1 << 14
SHAPES = [(32,), (100,), (33,), (256,), (16, 4), (64, 2), (48, 3)]
SHARED_SHAPES = [(32,), (20,), (96,), (16, 2), (48, 2)]
BLOCKS = 2
TOP = 0xFFFFFFF4  # the last lanes of a warp wrap around
HALF = 0x7FFFFFF4


@dataclass(frozen=True)
class Case:
    """`code` leaves in %x5 what `at` says of tid.x, ctaid.x and ntid.x: a distance in bytes from MIDDLE. %r20
    is tid.x, %r21 ctaid.x, %r22 ntid.x. `there`: code that leaves in %p1 whether the thread takes part."""

    code: str
    at: Callable[[int, int, int], int]
    size: int = 4
    there: str = "setp.eq.u32 %p1, %r20, %r20;"
    takes_part: Callable[[int], bool] = lambda tid: True


CASES = {
    "a word": Case("mul.wide.u32 %x5, %r20, 4;", lambda t, b, n: 4 * t),
    "of a block": Case(
        "mad.lo.s32 %r5, %r21, %r22, %r20; mul.wide.s32 %x5, %r5, 4;", lambda t, b, n: 4 * (b * n + t)
    ),
    "of the other factor": Case(
        "mul.lo.s32 %r5, %r21, %r22; add.s32 %r6, %r5, %r20; cvt.s64.s32 %x10, %r6; shl.b64 %x5, %x10, 2;",
        lambda t, b, n: 4 * (b * n + t),
    ),
    "a sum of 64 bits": Case(
        "cvt.u64.u32 %x10, %r20; mul.lo.s64 %x11, %x10, 4; cvt.u64.u32 %x12, %r21;"
        "mad.lo.s64 %x5, %x12, 4096, %x11;",
        lambda t, b, n: 4 * t + 4096 * b,
    ),
    "a product and a sum": Case(
        "cvt.u64.u32 %x10, %r21; shl.b64 %x11, %x10, 12; mad.wide.u32 %x5, %r20, 8, %x11;",
        lambda t, b, n: 8 * t + 4096 * b,
        size=8,
    ),
    "a byte": Case("cvt.u64.u32 %x10, %r20; sub.s64 %x5, %x10, 7;", lambda t, b, n: t - 7, size=1),
    "half a word": Case(
        "shl.b32 %r5, %r20, 1; sub.s32 %r6, %r5, 40; cvt.s64.s32 %x5, %r6;",
        lambda t, b, n: 2 * t - 40,
        size=2,
    ),
    "two of eight": Case("mul.wide.u32 %x5, %r20, 16;", lambda t, b, n: 16 * t, size=16),
    "every second": Case("mul.wide.u32 %x5, %r20, 8;", lambda t, b, n: 8 * t),
    "downwards": Case(
        "mul.lo.s32 %r5, %r20, -1; mul.wide.s32 %x5, %r5, 4;",
        lambda t, b, n: -4 * t,
    ),
    "downwards twice": Case(
        "mul.lo.s32 %r5, %r20, -1; cvt.s64.s32 %x10, %r5; mul.lo.s64 %x5, %x10, -4;", lambda t, b, n: 4 * t
    ),
    "one for all": Case("mul.wide.u32 %x5, %r21, 4;", lambda t, b, n: 4 * b),
    "some lanes": Case(
        "mul.wide.u32 %x5, %r20, 4;",
        lambda t, b, n: 4 * t,
        there="and.b32 %r6, %r20, 12; setp.ne.u32 %p1, %r6, 4;",
        takes_part=lambda t: (t & 12) != 4,
    ),
    "written apart": Case(
        """and.b32 %r6, %r20, 1; setp.eq.u32 %p2, %r6, 0; mov.u32 %r5, %r20; @%p2 bra even;
        add.u32 %r5, %r20, 8; even: mul.wide.u32 %x5, %r5, 4;""",
        lambda t, b, n: 4 * (t + 8 * (t % 2)),
    ),
    "written under a guard": Case(
        "and.b32 %r6, %r20, 2; setp.eq.u32 %p2, %r6, 0; mov.u32 %r5, %r20; @%p2 add.u32 %r5, %r20, 8; "
        "mul.wide.u32 %x5, %r5, 4;",
        lambda t, b, n: 4 * (t + 8 * ((t & 2) == 0)),
    ),
    "of a loop that lanes leave apart": Case(
        """mov.u32 %r5, %r20; mov.u32 %r6, 0; again: add.u32 %r5, %r5, 32; add.u32 %r6, %r6, 1;
        and.b32 %r7, %r20, 3; setp.lt.u32 %p2, %r6, %r7; @%p2 bra again; mul.wide.u32 %x5, %r5, 4;""",
        lambda t, b, n: 4 * (t + 32 * max(t & 3, 1)),
    ),
    "of a loop that they leave together": Case(
        """mov.u32 %r5, %r20; mov.u32 %r6, 0; again: add.u32 %r5, %r5, %r22; add.u32 %r6, %r6, 1;
        setp.lt.u32 %p2, %r6, 3; @%p2 bra again; mul.wide.u32 %x5, %r5, 4;""",
        lambda t, b, n: 4 * (t + 3 * n),
    ),
    "beyond the largest number": Case(
        f"add.u32 %r5, %r20, {TOP}; cvt.u64.u32 %x10, %r5; sub.s64 %x11, %x10, {TOP}; shl.b64 %x5, %x11, 2;",
        lambda t, b, n: 4 * t,
        there="setp.lt.u32 %p1, %r20, 12;",
        takes_part=lambda t: t < 12,
    ),
    "beyond the largest signed number": Case(
        f"add.s32 %r5, %r20, {HALF}; mul.wide.s32 %x10, %r5, 4; sub.s64 %x5, %x10, {4 * HALF};",
        lambda t, b, n: 4 * t,
        there="setp.lt.u32 %p1, %r20, 12;",
        takes_part=lambda t: t < 12,
    ),
}
LOADS = {
    1: "ld.global.u8 %r10, [%x16];",
    2: "ld.global.u16 %r10, [%x16];",
    4: "ld.global.u32 %r10, [%x16];",
    8: "ld.global.v2.u32 {%r10, %r11}, [%x16];",
    16: "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%x16];",
}
STORES = {
    size: f"st.{form} [%x16], {value};"
    for size, form, value in (
        (1, "global.u8", "%r10"),
        (2, "global.u16", "%r10"),
        (4, "global.u32", "%r10"),
        (8, "global.v2.u32", "{%r10, %r11}"),
        (16, "global.v4.u32", "{%r10, %r11, %r12, %r13}"),
    )
}


def body(case: Case, access: str) -> str:
    address = f"add.s64 %x15, %x1, {MIDDLE}; add.s64 %x16, %x5, %x15;"
    return f"""mov.u32 %r20, %tid.x; mov.u32 %r21, %ctaid.x; mov.u32 %r22, %ntid.x; bar.sync 0;
    mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;
    {case.code} {address} {case.there} @!%p1 bra past; {access} past:"""


def threads(shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(tid.x, ctaid.x, thread of the grid)"""
    size = int(np.prod(shape))
    return [(i % shape[0], block, block * size + i) for block in range(BLOCKS) for i in range(size)]


def loads(name: str, shape: tuple[int, ...]) -> bool:
    """Whether each thread finds what lies where it looks."""
    case = CASES[name]
    keep = "mad.wide.u32 %x17, %r15, 16, %x0; st.global.v4.u32 [%x17], {%r10, %r11, %r12, %r13};"
    # The grid's thread of a block of several dimensions.
    index = "mov.u32 %r8, %ntid.y; mul.lo.u32 %r9, %r8, %r22; mad.lo.u32 %r15, %r21, %r9, %r0;"
    text = kernel(f"{body(case, LOADS[case.size])} {index} {keep}")
    all_ = threads(shape)
    out = np.full((len(all_), 16), 99, np.uint8)
    got, _ = driver.run(text, "k", out, BYTES, grid=(BLOCKS,), block=shape)
    expected = np.zeros_like(out)
    for tid, block, thread in all_:
        if case.takes_part(tid):
            at = MIDDLE + case.at(tid, block, shape[0])
            expected[thread, : case.size] = BYTES[at : at + case.size]
    return bool((got == expected).all())


def stores(name: str, shape: tuple[int, ...]) -> bool:
    """Whether all lies where it should, if each thread stores what follows from the place."""
    case = CASES[name]
    values = "cvt.u32.u64 %r10, %x5; add.u32 %r11, %r10, 1; add.u32 %r12, %r10, 2; add.u32 %r13, %r10, 3;"
    text = kernel(body(case, f"{values} {STORES[case.size]}"))
    _, got = driver.run(text, "k", np.zeros(1, np.uint8), BYTES, grid=(BLOCKS,), block=shape)
    expected = BYTES.copy()
    for tid, block, _ in threads(shape):
        if case.takes_part(tid):
            at = case.at(tid, block, shape[0])
            words = np.array([at + index for index in range(4)], np.int64).astype(np.uint32)
            expected[MIDDLE + at : MIDDLE + at + case.size] = words.view(np.uint8)[: case.size]
    return bool((got == expected).all())


SHARED: dict[str, tuple[str, int, str, Callable[[int], bool]]] = {
    "a word": ("mad.lo.u32 %r5, %r20, 4, %r6;", 4, "setp.eq.u32 %p1, %r20, %r20;", lambda tid: True),
    "two words": ("mad.lo.u32 %r5, %r20, 8, %r6;", 8, "setp.eq.u32 %p1, %r20, %r20;", lambda tid: True),
    "but the first lanes, which would be before the first byte": (
        "mad.lo.u32 %r7, %r20, 4, %r6; sub.u32 %r5, %r7, 32;",
        4,
        "setp.ge.u32 %p1, %r20, 8;",
        lambda tid: tid >= 8,
    ),
    "but the last lanes, which would be behind the last": (
        "mad.lo.u32 %r7, %r20, 4, %r6; add.u32 %r5, %r7, 4064;",
        4,
        "setp.lt.u32 %p1, %r20, 8;",
        lambda tid: tid < 8,
    ),
}


def shared(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a thread finds in shared memory what it has stored, and nothing where it did not look."""
    code, size, there, takes_part = SHARED[name]
    words = ("%r10", "%r11")[: size // 4]
    form = f"shared{'.v2' if size == 8 else ''}.u32"
    given = f"{{{', '.join(words)}}}" if size == 8 else words[0]
    text = kernel(f"""
    .shared .align 16 .b8 sh[4096];
    mov.u32 %r20, %tid.x; mov.u32 %r6, sh; {code} add.u32 %r10, %r20, 100; add.u32 %r11, %r20, 200; {there}
    @!%p1 bra stored; st.{form} [%r5], {given}; stored: bar.sync 0;
    mov.u32 %r10, 0; mov.u32 %r11, 0;
    @!%p1 bra loaded; ld.{form} {given}, [%r5]; loaded:
    mad.wide.u32 %x17, %r0, 8, %x0; st.global.v2.u32 [%x17], {{%r10, %r11}};""")
    got, _ = driver.run(text, "k", np.full((int(np.prod(shape)), 2), 9, np.uint32), BYTES, block=shape)
    expected = np.zeros_like(got)
    for tid, _, thread in threads(shape)[: len(got)]:
        if takes_part(tid):
            expected[thread] = 100 + tid, 200 + tid if size == 8 else 0
    return bool((got == expected).all())


WRONG = {
    "the last lane is beyond shared memory": (
        "mov.u32 %r6, sh; mad.lo.u32 %r5, %r20, 4, %r6; st.shared.u32 [%r5+3972], %r20;",
        driver.ILLEGAL_ADDRESS,
    ),
    "the first lane is before shared memory": (
        "mad.lo.u32 %r5, %r20, 4, -4; st.shared.u32 [%r5], %r20;",
        driver.ILLEGAL_ADDRESS,
    ),
    "no lane's is a multiple": (
        "mad.wide.u32 %x5, %r20, 4, %x1; ld.global.u32 %r6, [%x5+2];",
        driver.MISALIGNED_ADDRESS,
    ),
    "of two together, no lane's is a multiple": (
        "mad.wide.u32 %x5, %r20, 8, %x1; ld.global.v2.u32 {%r6, %r7}, [%x5+4];",
        driver.MISALIGNED_ADDRESS,
    ),
    "the last lanes wrap around": (
        f"add.s32 %r5, %r20, {HALF}; mul.wide.s32 %x10, %r5, 4; sub.s64 %x11, %x10, {4 * HALF}; "
        "add.s64 %x5, %x11, %x1; ld.global.u32 %r6, [%x5];",
        driver.ILLEGAL_ADDRESS,
    ),
}


def wrong(name: str) -> bool:
    """Whether the kernel ends with its error."""
    code, error = WRONG[name]
    text = kernel(
        ".shared .align 8 .b8 sh[4096]; mov.u32 %r20, %tid.x; mov.u32 %r6, 0; bar.sync 0;"
        f"{code} st.shared.u32 [sh], %r6;"
    )
    with driver.own_context():
        try:
            driver.run(text, "k", BYTES, BYTES, block=(32,))
        except driver.CudaError as failed:
            return failed.status == error
    return False


def main() -> None:
    """Prints the names of the kernels that do something else."""
    found = [f"loads {each}" for each in itertools.product(CASES, SHAPES) if not loads(*each)]
    found += [f"stores {each}" for each in itertools.product(CASES, SHAPES) if not stores(*each)]
    found += [f"shared {each}" for each in itertools.product(SHARED, SHARED_SHAPES) if not shared(*each)]
    found += [name for name in WRONG if not wrong(name)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
