"""What programs rely on that take the lanes of a warp to run in step, and to wait for each other within
it."""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .ptx import kernel, store

SUMS = ".shared .align 4 .b8 sums[256];\n"
# Lanes add what others have, again and again, with nothing between but the order of the program.
STEP = """
    ld{how}.shared.u32 %r11, [%r10];
    ld{how}.shared.u32 %r12, [%r10+{offset}];
    add.u32 %r11, %r11, %r12;
    st{how}.shared.u32 [%r10], %r11;
"""


@pytest.mark.parametrize("how", [".volatile", ""])
def test_a_reduction_without_synchronisation(how: str) -> None:
    """As the CUDA samples had it before __syncwarp: 64 numbers, the lanes of one warp."""
    steps = "".join(STEP.format(how=how, offset=4 * distance) for distance in (32, 16, 8, 4, 2, 1))
    body = f"""
    {SUMS}
    mov.u32 %r9, sums;
    shl.b32 %r10, %r0, 2;
    add.u32 %r10, %r9, %r10;
    st{how}.shared.u32 [%r10], %r0;
    bar.sync 0;
    setp.gt.u32 %p0, %r0, 31;
    @%p0 bra end;
    {steps}
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra end;
    ld.volatile.shared.u32 %r11, [sums];
    {store("%r11", index="%r0")}
end:
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1, np.uint32), block=(64,))
    assert out[0] == 2016


@pytest.mark.parametrize("how", [".volatile", ""])
def test_a_reduction_of_one_warp_without_any_barrier(how: str) -> None:
    """Nothing in the kernel says that its threads need each other."""
    steps = "".join(STEP.format(how=how, offset=4 * distance) for distance in (32, 16, 8, 4, 2, 1))
    body = f"""
    {SUMS}
    mov.u32 %r9, sums;
    shl.b32 %r10, %r0, 2;
    add.u32 %r10, %r9, %r10;
    add.u32 %r8, %r0, 32;
    st{how}.shared.u32 [%r10], %r0;
    st{how}.shared.u32 [%r10+128], %r8;
    {steps}
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra end;
    ld.volatile.shared.u32 %r11, [sums];
    {store("%r11", index="%r0")}
end:
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1, np.uint32), block=(32,))
    assert out[0] == 2016


def test_warps_that_take_one_side_each_run_in_step() -> None:
    """Lanes exchange values on both sides of a branch, as in OpenMM; a warp takes one side as a whole."""
    side = """
    st.volatile.shared.u32 [%r10], %r0;
    ld.volatile.shared.u32 %r11, [%r14];
    shfl.sync.idx.b32 %r12, %r11, {lane}, 31, -1;
"""
    body = f"""
    {SUMS}
    mov.u32 %r9, sums;
    shl.b32 %r10, %r0, 2;
    xor.b32 %r14, %r10, 4;
    add.u32 %r10, %r9, %r10;
    add.u32 %r14, %r9, %r14;
    setp.lt.u32 %p0, %r0, 32;
    @%p0 bra low;
    {side.format(lane=2)}
    bra both;
low:
    {side.format(lane=5)}
both:
    {store("%r12", index="%r0")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(64, np.uint32), block=(64,))
    assert (out[:32] == 4).all()
    assert (out[32:] == 35).all()


def test_lanes_meet_after_a_loop_of_their_own_length() -> None:
    """Each lane goes round as often as its number says; all of them then vote."""
    body = f"""
    mov.u32 %r10, 0;
again:
    setp.ge.u32 %p0, %r10, %r0;
    @%p0 bra met;
    add.u32 %r10, %r10, 1;
    bra again;
met:
    activemask.b32 %r11;
    {store("%r11", index="%r0")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(32, np.uint32), block=(32,))
    assert (out == 0xFFFFFFFF).all()


LOCK = """
take:
    atom.global.cas.b32 %r10, [%x1], 0, 1;
    setp.ne.u32 %p0, %r10, 0;
    @%p0 bra take;
    ld.volatile.global.u32 %r11, [%x0];
    add.u32 %r11, %r11, 1;
    st.volatile.global.u32 [%x0], %r11;
    membar.gl;
    atom.global.exch.b32 %r10, [%x1], 0;
"""


@pytest.mark.parametrize("block", [32, 50, 128])
def test_a_lock_within_a_warp(block: int) -> None:
    """Whoever has the lock is held up by the lanes that want it, unless they let him go on."""
    arrays = [np.zeros(1, np.uint32), np.zeros(1, np.uint32)]
    out, lock = driver.run(kernel(LOCK + "bar.sync 0;"), "k", *arrays, grid=(4,), block=(block,))
    assert (out[0], lock[0]) == (4 * block, 0)


def test_a_lock_taken_again_and_again() -> None:
    body = (
        f"    mov.u32 %r13, 0;\nround:\n{LOCK}"
        + """
    add.u32 %r13, %r13, 1;
    setp.lt.u32 %p1, %r13, 5;
    @%p1 bra round;
    bar.sync 0;
    """
    )
    out, _ = driver.run(
        kernel(body), "k", np.zeros(1, np.uint32), np.zeros(1, np.uint32), grid=(2,), block=(64,)
    )
    assert out[0] == 5 * 128


def test_lanes_that_hand_a_flag_to_each_other() -> None:
    """Lane after lane waits for the one before it, in the same loop."""
    body = """
wait:
    ld.volatile.global.u32 %r10, [%x0];
    setp.ne.u32 %p0, %r10, %r0;
    @%p0 bra wait;
    add.u32 %r10, %r10, 1;
    st.volatile.global.u32 [%x0], %r10;
    bar.sync 0;
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1, np.uint32), block=(96,))
    assert out[0] == 96
