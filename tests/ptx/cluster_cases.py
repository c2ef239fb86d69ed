"""Kernels of clusters, each with what it has to leave behind. As a program: runs all of them on a device of
compute capability 9.0 and says, as JSON, what each left, or the error that ended it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from . import driver
from .ptx import kernel, store

SM_90 = ".target sm_90\n"


@dataclass(frozen=True)
class Case:
    """`expected`: the words of the first array, or an error. %x1 is a second array of zeros."""

    body: str
    expected: list[int] | int
    cluster: Sequence[int] = (2,)
    grid: Sequence[int] = (4,)
    block: Sequence[int] = (64,)
    shared: int = 0
    directives: str = ""
    module: str = ""

    @property
    def words(self) -> int:
        return len(self.expected) if isinstance(self.expected, list) else 1 << 10

    def run(self) -> list[int] | int:
        text = kernel(self.body, directives=self.directives, module=self.module)
        text = text.replace(".target sm_80\n", SM_90)
        with driver.own_context():
            try:
                module = driver.Module(text)
                arrays = (
                    driver.Buffer(np.zeros(self.words, np.uint32)),
                    driver.Buffer(np.zeros(64, np.uint32)),
                )
                module.launch(
                    "k", *arrays, grid=self.grid, block=self.block, shared=self.shared, cluster=self.cluster
                )
                found: list[int] = arrays[0].read().tolist()
                return found
            except driver.CudaError as error:
                return error.status


BARRIER = "    barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;\n"
# %r3: rank, %r4: blocks of the cluster, %r5: the next rank; %r20: the tile, %r21: the thread's word in it.
TILE = """
    .shared .align 16 .b8 tile[1024];
    mov.u32 %r3, %cluster_ctarank;
    mov.u32 %r4, %cluster_nctarank;
    add.u32 %r5, %r3, 1;
    rem.u32 %r5, %r5, %r4;
    mov.u32 %r20, tile;
    mad.lo.u32 %r21, %r0, 4, %r20;
"""
# Each thread leaves 1000 times its block's rank, and its own number, in its word.
MARKED = TILE + "    mad.lo.u32 %r6, %r3, 1000, %r0;\n    st.shared.u32 [%r21], %r6;\n" + BARRIER
ALONE = "    setp.ne.u32 %p7, %r0, 0;\n    @%p7 bra join;\n"  # thread 0 of each block


def of_threads(
    value: Callable[[int, int], int], cluster: int = 2, blocks: int = 4, threads: int = 64
) -> list[int]:
    """value(rank, thread) for each thread of a one-dimensional grid."""
    return [value(block % cluster, thread) for block in range(blocks) for thread in range(threads)]


def next_mark(rank: int, thread: int) -> int:
    return 1000 * (1 - rank) + thread


# Special registers

NAMES = [
    f"%{name}.{axis}"
    for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    for axis in "xyz"
]
NAMES += ["%cluster_ctarank", "%cluster_nctarank"]
PLACES = 16  # words of each block
REGISTERS = (
    """
    mov.u32 %r10, %ctaid.z;
    mov.u32 %r11, %nctaid.y;
    mov.u32 %r12, %ctaid.y;
    mad.lo.u32 %r10, %r10, %r11, %r12;
    mov.u32 %r11, %nctaid.x;
    mov.u32 %r12, %ctaid.x;
    mad.lo.u32 %r10, %r10, %r11, %r12;
    mad.wide.u32 %x10, %r10, 64, %x0;
"""
    + "".join(
        f"    mov.u32 %r12, {name};\n    st.global.u32 [%x10+{4 * at}], %r12;\n"
        for at, name in enumerate(NAMES)
    )
    + """
    mov.pred %p1, %is_explicit_cluster;
    selp.u32 %r12, 2, 0, %p1;
    @%is_explicit_cluster sub.u32 %r12, %r12, 1;
    st.global.u32 [%x10+56], %r12;
    mov.u32 %r12, %ctaid.x;
    st.global.u32 [%x10+60], %r12;
"""
)


def registers(grid: Sequence[int], cluster: Sequence[int], explicit: int = 1) -> list[int]:
    found = []
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                at = (x, y, z)
                inside = [a % c for a, c in zip(at, cluster, strict=True)]
                found += [a // c for a, c in zip(at, cluster, strict=True)]
                found += [g // c for g, c in zip(grid, cluster, strict=True)]
                found += [*inside, *cluster]
                found += [inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])]
                found += [cluster[0] * cluster[1] * cluster[2], explicit, x]
    return found


# Barriers

# Each thread counts itself; behind the barrier all of the cluster have, and behind another nobody is early.
COUNTED = """
    mov.u32 %r10, %clusterid.x;
    mad.wide.u32 %x10, %r10, 4, %x1;
    mov.u32 %r11, 0;
    mov.u32 %r12, 0;
again:
    red.relaxed.gpu.global.add.u32 [%x10], 1;
    ARRIVE;
    WAIT;
    ld.relaxed.gpu.global.u32 %r13, [%x10];
    add.u32 %r11, %r11, %r13;
    ARRIVE;
    WAIT;
    add.u32 %r12, %r12, 1;
    setp.lt.u32 %p0, %r12, 3;
    @%p0 bra again;
""" + store("%r11")


def counted(arrive: str, wait: str) -> Case:
    body = COUNTED.replace("ARRIVE", f"barrier.cluster.arrive{arrive}").replace(
        "WAIT", f"barrier.cluster.wait{wait}"
    )
    return Case(body, [144 * 6] * 288, cluster=(3,), grid=(6,), block=(48,))


CASES = {
    "registers": Case(REGISTERS, registers((4, 6, 2), (2, 3, 1)), (2, 3, 1), (4, 6, 2), (32,)),
    "registers in three dimensions": Case(
        REGISTERS, registers((4, 2, 2), (2, 2, 2)), (2, 2, 2), (4, 2, 2), (8, 4)
    ),
    "registers behind a barrier": Case(
        BARRIER + REGISTERS, registers((8, 2, 1), (4, 1, 1)), (4,), (8, 2), (40,)
    ),
    "registers by directive": Case(
        REGISTERS, registers((4, 2, 1), (2, 2, 1)), (), (4, 2), (32,), directives=".reqnctapercluster 2, 2, 1"
    ),
    "registers without clusters": Case(REGISTERS, registers((2, 2, 1), (1, 1, 1), 0), (), (2, 2), (32,)),
    "barrier": counted("", ""),
    "barrier, aligned": counted(".aligned", ".aligned"),
    "barrier, ordered": counted(".release.aligned", ".acquire.aligned"),
    "barrier, relaxed": counted(".relaxed", ".acquire"),
    "barrier of one block": Case(BARRIER + "    mov.u32 %r10, 7;\n" + store("%r10"), [7] * 256, ()),
    # Those that have ended are not waited for, whatever their warp.
    "barrier without those that ended": Case(
        TILE
        + "    setp.eq.u32 %p0, %r3, 1;\n    setp.ge.and.u32 %p1, %r0, 7, %p0;\n    @%p1 exit;\n"
        + BARRIER
        + BARRIER
        + "    mov.u32 %r10, 1;\n"
        + store("%r10"),
        of_threads(lambda rank, thread: int(rank == 0 or thread < 7)),
    ),
    "arrive and end": Case(
        TILE
        + "    barrier.cluster.arrive;\n    setp.eq.u32 %p0, %r3, 1;\n    @%p0 exit;\n"
        + "    barrier.cluster.wait;\n"
        + BARRIER
        + "    mov.u32 %r10, 1;\n"
        + store("%r10"),
        of_threads(lambda rank, thread: int(rank == 0)),
    ),
    # Every second lane arrives by a way of its own.
    "barrier from two places": Case(
        MARKED
        + "    and.b32 %r7, %r0, 1;\n    setp.eq.u32 %p0, %r7, 0;\n    @%p0 bra even;\n"
        + "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n    bra met;\neven:\n"
        + "    barrier.cluster.arrive;\n    barrier.cluster.wait;\nmet:\n"
        + store("%r6"),
        of_threads(lambda rank, thread: 1000 * rank + thread),
    ),
    "a block that waits for itself": Case(
        TILE
        + "    setp.eq.u32 %p0, %r3, 0;\n    @%p0 bra other;\n    bar.sync 1, 128;\nother:\n"
        + "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n",
        driver.LAUNCH_FAILED,
        block=(64,),
    ),
}


# Distributed shared memory

# %r22: the thread's word in the next block's tile; %x11 the same as a generic address.
MAPPED = (
    MARKED
    + """
    mapa.shared::cluster.u32 %r22, %r21, %r5;
    cvt.u64.u32 %x10, %r21;
    cvta.shared.u64 %x10, %x10;
    mapa.u64 %x11, %x10, %r5;
"""
)
LEFT = BARRIER  # nobody ends while others read
SUM = """
    mov.u32 %r10, 0;
    mov.u32 %r11, 0;
again:
    mapa.shared::cluster.u32 %r12, tile, %r11;
    mad.lo.u32 %r12, %r0, 4, %r12;
    ld.shared::cluster.u32 %r13, [%r12];
    add.u32 %r10, %r10, %r13;
    add.u32 %r11, %r11, 1;
    setp.lt.u32 %p0, %r11, %r4;
    @%p0 bra again;
"""


def mapped(body: str, value: Callable[[int, int], int] = next_mark) -> Case:
    """Each thread leaves %r10, and has what MAPPED says."""
    return Case(MAPPED + body + LEFT + store("%r10"), of_threads(value))


CASES |= {
    "load": mapped("    ld.shared::cluster.u32 %r10, [%r22];\n"),
    "load by a generic address": mapped("    ld.u32 %r10, [%x11];\n"),
    "load of few": mapped(
        "    mov.u32 %r10, 5;\n    setp.lt.u32 %p0, %r0, 3;\n    @%p0 ld.shared::cluster.u32 %r10, [%r22];\n",
        lambda rank, thread: next_mark(rank, thread) if thread < 3 else 5,
    ),
    "load of what is the same for all": mapped(
        "    mapa.shared::cluster.u32 %r22, tile, %r5;\n    ld.shared::cluster.u32 %r10, [%r22+20];\n",
        lambda rank, thread: next_mark(rank, 5),
    ),
    "load with an offset": mapped(
        "    add.u32 %r22, %r22, 64;\n    ld.shared::cluster.u32 %r10, [%r22+-64];\n"
    ),
    "load of a variable by name": mapped(
        "    ld.shared::cluster.u32 %r10, [tile+8];\n", lambda rank, thread: 1000 * rank + 2
    ),
    "load of parts": mapped(
        "    ld.shared::cluster.u8 %r10, [%r22];\n    ld.shared::cluster.u16 %h0, [%r22];\n"
        "    cvt.u32.u16 %r11, %h0;\n    sub.u32 %r10, %r11, %r10;\n",
        lambda rank, thread: next_mark(rank, thread) & 0xFF00,
    ),
    "load of a vector": mapped(
        "    and.b32 %r22, %r22, -16;\n    ld.shared::cluster.v4.u32 {%r10, %r11, %r12, %r13}, [%r22];\n"
        "    add.u32 %r10, %r10, %r13;\n",
        lambda rank, thread: 2 * next_mark(rank, thread & ~3) + 3,
    ),
    "load that acquires": mapped("    ld.acquire.cluster.shared::cluster.u32 %r10, [%r22];\n"),
    "load of all": Case(
        MARKED + SUM + LEFT + store("%r10"),
        of_threads(lambda rank, thread: 6000 + 4 * thread, 4, 8),
        cluster=(4,),
        grid=(8,),
    ),
    "store": mapped(
        "    mov.u32 %r12, %r6;\n"
        + BARRIER
        + "    st.shared::cluster.u32 [%r22], %r12;\n"
        + BARRIER
        + "    ld.shared.u32 %r10, [%r21];\n"
    ),
    "store by a generic address": mapped(
        BARRIER + "    st.u32 [%x11], %r6;\n" + BARRIER + "    ld.shared.u32 %r10, [%r21];\n"
    ),
    "store of a vector": mapped(
        BARRIER + "    and.b32 %r12, %r0, 3;\n    setp.eq.u32 %p0, %r12, 0;\n"
        "    @%p0 st.shared::cluster.v2.u32 [%r22+8], {%r6, %r0};\n"
        + BARRIER
        + "    and.b32 %r11, %r21, -16;\n    ld.shared.u32 %r10, [%r11+8];\n",
        lambda rank, thread: next_mark(rank, thread & ~3),
    ),
    "atomics": Case(
        TILE + "    st.shared.u32 [%r21], 0;\n" + BARRIER + "    mapa.shared::cluster.u32 %r22, tile, 0;\n"
        "    atom.shared::cluster.add.u32 %r10, [%r22], 3;\n"
        "    red.relaxed.cluster.shared::cluster.max.u32 [%r22+4], %r0;\n"
        "    atom.shared::cluster.cas.b32 %r11, [%r22+8], 0, 77;\n"
        "    cvt.u64.u32 %x10, %r20;\n    cvta.shared.u64 %x10, %x10;\n    mapa.u64 %x10, %x10, 0;\n"
        "    atom.add.u32 %r11, [%x10+12], 1;\n"
        "    red.add.f32 [%x10+16], 0f00000001;\n"
        + BARRIER
        + "    rem.u32 %r11, %r0, 5;\n    mad.lo.u32 %r22, %r11, 4, %r22;\n"
        "    ld.shared::cluster.u32 %r10, [%r22];\n" + LEFT + store("%r10"),
        # subnormals are not flushed in shared memory, also in another's
        of_threads(lambda rank, thread: (384, 63, 77, 128, 128)[thread % 5]),
    ),
    "ranks": mapped(
        "    getctarank.shared::cluster.u32 %r10, %r22;\n    getctarank.shared::cluster.u32 %r11, %r21;\n"
        "    getctarank.u64 %r12, %x11;\n    getctarank.u64 %r13, %x10;\n"
        "    mad.lo.u32 %r10, %r10, 10, %r11;\n    mad.lo.u32 %r10, %r10, 10, %r12;\n"
        "    mad.lo.u32 %r10, %r10, 10, %r13;\n",
        lambda rank, thread: (100 if rank else 1010) + rank,
    ),
    "mapped twice": mapped(
        "    mapa.shared::cluster.u32 %r23, %r22, %r3;\n    mapa.u64 %x12, %x11, %r3;\n"
        "    sub.u32 %r10, %r23, %r21;\n    sub.u64 %x12, %x12, %x10;\n    cvt.u32.u64 %r11, %x12;\n"
        "    or.b32 %r10, %r10, %r11;\n",
        lambda rank, thread: 0,
    ),
    "between generic and shared": mapped(
        "    cvta.to.shared::cluster.u64 %x12, %x11;\n    cvt.u32.u64 %r11, %x12;\n"
        "    sub.u32 %r11, %r11, %r22;\n    cvt.u64.u32 %x12, %r22;\n"
        "    cvta.shared::cluster.u64 %x13, %x12;\n"
        "    cvta.shared.u64 %x12, %x12;\n    sub.u64 %x13, %x13, %x11;\n    sub.u64 %x12, %x12, %x11;\n"
        "    or.b64 %x12, %x12, %x13;\n    cvt.u32.u64 %r10, %x12;\n    or.b32 %r10, %r10, %r11;\n",
        lambda rank, thread: 0,
    ),
    "spaces": mapped(
        "    mov.u32 %r10, 0;\n"
        + "".join(
            f"    isspacep.{space} %p0, {address};\n    selp.u32 %r11, {1 << bit}, 0, %p0;\n"
            "    or.b32 %r10, %r10, %r11;\n"
            for bit, (space, address) in enumerate(
                (space, address)
                for address in ("%x10", "%x11", "%x0")
                for space in ("shared", "shared::cta", "shared::cluster", "global", "local")
            )
        ),
        lambda rank, thread: 0b01000_00100_00111,
    ),
    "dynamic shared memory": Case(
        MARKED.replace("tile[1024]", "first[16]").replace("mov.u32 %r20, tile", "mov.u32 %r20, dynamic")
        + "    mapa.shared::cluster.u32 %r22, %r21, %r5;\n    ld.shared::cluster.u32 %r10, [%r22];\n"
        + LEFT
        + store("%r10"),
        of_threads(next_mark),
        shared=256,
        module=".extern .shared .align 16 .b8 dynamic[];\n",
    ),
    # What nobody may
    "a rank that is not there": mapped("    mapa.shared::cluster.u32 %r22, %r21, 2;\n"),
    "behind the last block": mapped("    ld.shared::cluster.u32 %r10, [%r22+1048576];\n"),
    "between two blocks": mapped("    ld.shared::cluster.u32 %r10, [%r22+1024];\n"),
    "before the first block": mapped("    ld.shared::cluster.u32 %r10, [%r22+-1048576];\n"),
    "another's as the block's own": mapped("    ld.shared.u32 %r10, [%r22];\n"),
    "misaligned": mapped("    ld.shared::cluster.u32 %r10, [%r22+2];\n"),
}
_ERRORS = {
    "a rank that is not there": driver.LAUNCH_FAILED,
    "behind the last block": driver.ILLEGAL_ADDRESS,
    "between two blocks": driver.ILLEGAL_ADDRESS,
    "before the first block": driver.ILLEGAL_ADDRESS,
    "another's as the block's own": driver.ILLEGAL_ADDRESS,
    "misaligned": driver.MISALIGNED_ADDRESS,
}
CASES |= {name: replace(CASES[name], expected=error) for name, error in _ERRORS.items()}


# mbarriers, and copies that count on them

WAIT = """
wait:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0;
    @!%p1 bra wait;
"""


def counting(
    count: int, body: str, value: Callable[[int, int], int] = next_mark, result: str = "inbox"
) -> Case:
    """Each thread waits for its block's mbarrier, for `count` arrivals, and leaves its word of `result`. %r22
    is the word of the next block's inbox, %r23 the next block's mbarrier, %p0 says whether it is thread 0."""
    text = f"""
    .shared .align 8 .b8 bar[8];
    .shared .align 16 .b8 inbox[256];
{TILE}
    mad.lo.u32 %r6, %r3, 1000, %r0;
    st.shared.u32 [%r21], %r6;
    mov.u32 %r24, inbox;
    mad.lo.u32 %r24, %r0, 4, %r24;
    st.shared.u32 [%r24], 0;
    mapa.shared::cluster.u32 %r22, %r24, %r5;
    mapa.shared::cluster.u32 %r23, bar, %r5;
    setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared::cta.b64 [bar], {count};
    fence.mbarrier_init.release.cluster;
{BARRIER}{body}{WAIT}
    mov.u32 %r24, {result};
    mad.lo.u32 %r24, %r0, 4, %r24;
    ld.shared.u32 %r10, [%r24];
{LEFT}{store("%r10")}"""
    return Case(text, of_threads(value))


EXPECT = "    @%p0 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 256;\n"
BYTES = "mbarrier::complete_tx::bytes"
CASES |= {
    "arrive elsewhere": counting(
        64,
        "    st.shared::cluster.u32 [%r22], %r6;\n"
        "    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r23];\n",
    ),
    "arrive elsewhere by two": counting(
        128,
        "    st.shared::cluster.u32 [%r22], %r6;\n"
        "    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r23], 2;\n",
    ),
    "expect elsewhere": counting(
        1,
        "    st.shared::cluster.u32 [%r22], %r6;\n"
        + BARRIER
        + "    @%p0 mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r23], 64;\n"
        "    mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r23], 1;\n",
    ),
    "copy elsewhere": counting(
        1,
        EXPECT + "    mapa.shared::cluster.u32 %r22, inbox, %r5;\n    fence.proxy.async;\n"
        f"    @%p0 cp.async.bulk.shared::cluster.shared::cta.{BYTES} [%r22], [tile], 256, [%r23];\n",
    ),
    "copy to all": counting(
        1,
        EXPECT
        + "    mad.wide.u32 %x10, %r0, 4, %x1;\n    add.u32 %r11, %r0, 5;\n    st.global.u32 [%x10], %r11;\n"
        "    fence.acq_rel.gpu;\n" + BARRIER + "    mov.u32 %r11, 3;\n    cvt.u16.u32 %h0, %r11;\n"
        "    setp.eq.and.u32 %p2, %r3, 1, %p0;\n"
        f"    @%p2 cp.async.bulk.shared::cluster.global.{BYTES}.multicast::cluster"
        " [inbox], [%x1], 256, [bar], %h0;\n",
        lambda rank, thread: thread + 5,
    ),
    # Whether the launch of another cluster was cancelled, told to each block of this one.
    "answer to all": counting(
        1,
        "    @%p0 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 16;\n"
        "    st.shared.u32 [%r24], %r6;\n" + BARRIER + "    setp.eq.and.u32 %p2, %r3, 1, %p0;\n"
        f"    @%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.{BYTES}.multicast::cluster::all.b128"
        " [inbox], [bar];\n",
        lambda rank, thread: 0 if thread < 4 else 1000 * rank + thread,
    ),
    "store that counts": counting(
        1, EXPECT + f"    st.async.shared::cluster.{BYTES}.u32 [%r22], %r6, [%r23];\n"
    ),
    "stores of pairs that count": counting(
        1,
        EXPECT + "    setp.lt.u32 %p2, %r0, 32;\n    mapa.shared::cluster.u32 %r22, inbox, %r5;\n"
        "    mad.lo.u32 %r22, %r0, 8, %r22;\n    add.u32 %r11, %r6, 1;\n"
        f"    @%p2 st.async.weak.shared::cluster.{BYTES}.v2.u32 [%r22], {{%r6, %r11}}, [%r23];\n",
        lambda rank, thread: 1000 * (1 - rank) + thread // 2 + thread % 2,
    ),
    "sum that counts": counting(
        1,
        EXPECT + "    mapa.shared::cluster.u32 %r22, inbox, %r5;\n    mov.u32 %r11, 3;\n"
        f"    red.async.relaxed.cluster.shared::cluster.{BYTES}.add.u32 [%r22], %r11, [%r23];\n",
        lambda rank, thread: 192 * (thread == 0),
    ),
    "copies of each thread that arrive": counting(
        64,
        "    mad.wide.u32 %x10, %r0, 4, %x1;\n    cp.async.ca.shared.global [%r21], [%x10], 4;\n"
        "    cp.async.mbarrier.arrive.noinc.shared.b64 [bar];\n",
        lambda rank, thread: 0,
        "tile",
    ),
}

# Of addresses that nothing says the space of, where they are checked.
CHECKED = {
    "between the memory of two blocks": replace(
        mapped("    ld.u32 %r10, [%x11+3072];\n"), expected=driver.ILLEGAL_ADDRESS
    ),
    "behind the memory of the last": replace(
        mapped("    ld.u32 %r10, [%x11+1048576];\n"), expected=driver.ILLEGAL_ADDRESS
    ),
    "a store before the first": replace(
        mapped("    st.u32 [%x11+-1048576], %r0;\n"), expected=driver.ILLEGAL_ADDRESS
    ),
    "an atomic between": replace(
        mapped("    atom.add.u32 %r10, [%x11+4096], 1;\n"), expected=driver.ILLEGAL_ADDRESS
    ),
}


def main() -> None:
    cases = CASES | CHECKED if os.environ.get("GPUFERRY_SIM_CHECK") == "1" else CASES
    print(json.dumps({name: case.run() for name, case in cases.items()}))


if __name__ == "__main__":
    main()
