"""What programs rely on that take the lanes of a warp to run in step, and to wait for each other within
it."""

from __future__ import annotations

import numpy as np
import pytest
from gpuferry.native.simdevice.ptx import compile_kernel, parse
from gpuferry.native.simdevice.ptx.compiler import kernel_ir
from gpuferry.native.simdevice.ptx.kernel import KernelContext

from . import driver
from .ptx import UNITS, kernel, load, store

SUMS = ".shared .align 4 .b8 sums[256];\n"
# Lanes add what others have, again and again, with nothing between but the order of the program.
STEP = """
    ld{how}.shared.u32 %r11, [%r10];
    ld{how}.shared.u32 %r12, [%r10+{offset}];
    add.u32 %r11, %r11, %r12;
    st{how}.shared.u32 [%r10], %r11;
"""


def reduced(how: str, begin: str, threads: int) -> int:
    """The sum of 64 numbers by the lanes of one warp; `begin` stores them."""
    steps = "".join(STEP.format(how=how, offset=4 * distance) for distance in (32, 16, 8, 4, 2, 1))
    body = f"""
    {SUMS}
    mov.u32 %r9, sums;
    shl.b32 %r10, %r0, 2;
    add.u32 %r10, %r9, %r10;
    {begin}
    {steps}
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra end;
    ld.volatile.shared.u32 %r11, [sums];
    {store("%r11", index="%r0")}
end:
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1, np.uint32), block=(threads,))
    return int(out[0])


@pytest.mark.parametrize("how", [".volatile", ""])
def test_a_reduction_without_synchronisation(how: str) -> None:
    """As the CUDA samples had it before __syncwarp: 64 numbers, the lanes of one warp."""
    begin = f"""
    st{how}.shared.u32 [%r10], %r0;
    bar.sync 0;
    setp.gt.u32 %p0, %r0, 31;
    @%p0 bra end;
    """
    assert reduced(how, begin, 64) == 2016


@pytest.mark.parametrize("how", [".volatile", ""])
def test_a_reduction_of_one_warp_without_any_barrier(how: str) -> None:
    """Nothing in the kernel says that its threads need each other."""
    begin = f"""
    add.u32 %r8, %r0, 32;
    st{how}.shared.u32 [%r10], %r0;
    st{how}.shared.u32 [%r10+128], %r8;
    """
    assert reduced(how, begin, 32) == 2016


@pytest.mark.parametrize("unit", UNITS)
def test_the_first_of_eight_lanes_writes_for_them_behind_a_barrier(unit: str) -> None:
    """As Eigen's contractions do it, whose kernels are too large for warps: nothing but the lanes' order is
    between the stores of one and the loads of the others."""
    body = f"""{UNITS[unit]}
    {SUMS}
    mov.u32 %r9, sums;
    shl.b32 %r10, %r0, 2;
    add.u32 %r10, %r9, %r10;
    st.shared.u32 [%r10], -1;
    bar.sync 0;
    and.b32 %r11, %r0, 7;
    setp.ne.u32 %p0, %r11, 0;
    @%p0 bra others;
    st.shared.u32 [%r10], %r0;
    st.shared.u32 [%r10+4], %r0;
    st.shared.u32 [%r10+24], %r0;
    st.shared.u32 [%r10+28], %r0;
others:
    ld.shared.u32 %r12, [%r10];
    {store("%r12", index="%r0")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(64, np.int32), block=(64,))
    assert out.reshape(8, 8).tolist() == [[n, n, -1, -1, -1, -1, n, n] for n in range(0, 64, 8)]


@pytest.mark.parametrize("unit", UNITS)
def test_the_first_thread_is_the_first_behind_a_barrier(unit: str) -> None:
    """As in Eigen's sums of halves: all threads add to one number, and the first takes what it then is."""
    body = f"""{UNITS[unit]}
    {SUMS}
    st.shared.u32 [sums], 5;
    bar.sync 0;
    ld.shared.u32 %r10, [sums];
    add.u32 %r10, %r10, 1;
    st.shared.u32 [sums], %r10;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra end;
    {store("%r10", index="%r0")}
end:
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1, np.uint32), block=(128,))
    assert out[0] == 6


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


@pytest.mark.parametrize("inner", ["", "inner"])
@pytest.mark.parametrize("unit", UNITS)
def test_lanes_that_break_out_of_a_loop_that_the_others_leave_together(unit: str, inner: str) -> None:
    """Lanes leave it in the middle, each in its round, and those that do not leave it at its head: code that
    is not optimised looks like this. A loop around it goes on for all."""
    again = """
    add.u32 %r14, %r14, 1;
    setp.lt.u32 %p2, %r14, 3;
    @%p2 bra outer;
"""
    body = f"""{UNITS[unit]}
    mov.u32 %r14, 0; mov.u32 %r13, 0;
outer:
    mov.u32 %r10, 0;
again:
    mov.u32 %r11, %r10;
    setp.ge.u32 %p0, %r10, 8;
    @%p0 bra left;
    setp.eq.u32 %p1, %r10, %r0;
    @%p1 bra broke;
    add.u32 %r10, %r10, 1;
    bra again;
broke:
    bra met;
left:
    add.u32 %r11, %r11, 100;
met:
    bar.sync 0;
    add.u32 %r13, %r13, %r11;
    {again if inner else ""}
    {store("%r13", index="%r0")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(32, np.uint32), block=(32,))
    assert out.tolist() == [(n if n < 8 else 108) * (3 if inner else 1) for n in range(32)]


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


# As compilers write it that keep variables in memory, for debuggers, and by a table.
IN_MEMORY = "    .local .align 4 .b8 own[4];\n" + LOCK.replace(
    "    setp.ne", "    st.local.u32 [own], %r10;\n    ld.local.u32 %r10, [own];\n    setp.ne"
)
BY_TABLE = LOCK.replace(
    "    setp.ne.u32 %p0, %r10, 0;\n    @%p0 bra take;\n",
    "    ways: .branchtargets taken, take;\n    brx.idx %r10, ways;\ntaken:\n",
)


@pytest.mark.parametrize("lock", [LOCK, IN_MEMORY, BY_TABLE], ids=["register", "memory", "table"])
@pytest.mark.parametrize("block", [32, 50, 128])
def test_a_lock_within_a_warp(block: int, lock: str) -> None:
    """Whoever has the lock is held up by the lanes that want it, unless they let him go on."""
    arrays = [np.zeros(1, np.uint32), np.zeros(1, np.uint32)]
    out, left = driver.run(kernel(lock + "bar.sync 0;"), "k", *arrays, grid=(4,), block=(block,))
    assert (out[0], left[0]) == (4 * block, 0)


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


# Warps of even number produce; the others consume what the one before them has made, at the pair's barrier.
SPECIALISED = """
    .shared .align 4 .b8 words[2048];
    {warp}
    mov.u32 %r9, words;
    and.b32 %r11, %r8, 1;
    shr.u32 %r12, %r8, 1;
    setp.eq.u32 %p0, %r11, 0;
    @%p0 bra produce;
    bar.sync %r12, 64;
    and.b32 %r13, %r0, 31;
    xor.b32 %r13, %r13, 31;
    shl.b32 %r14, %r12, 5;
    add.u32 %r13, %r13, %r14;
    mad.lo.u32 %r13, %r13, 4, %r9;
    ld.shared.u32 %r10, [%r13];
    bra done;
produce:
    and.b32 %r13, %r0, 31;
    shl.b32 %r14, %r12, 5;
    add.u32 %r13, %r13, %r14;
    mad.lo.u32 %r13, %r13, 4, %r9;
    mul.lo.u32 %r10, %r0, 3;
    st.shared.u32 [%r13], %r10;
    bar.sync %r12, 64;
done:
    bar.sync 15;
"""
WARPS = {
    "shift": "    shr.u32 %r8, %r0, 5;\n",
    "quotient": "    div.u32 %r8, %r0, 32;\n",
    "masked": "    and.b32 %r8, %r0, -32;\n    shr.u32 %r8, %r8, 5;\n",
    "broadcast": "    shr.u32 %r8, %r0, 5;\n    shfl.sync.idx.b32 %r8, %r8, 0, 31, -1;\n",
}


def _forms(text: str) -> tuple[bool, bool]:
    """Whether an object has code for threads, and code for warps."""
    made = compile_kernel(parse(text), "k")
    return b"sim_kernel_run_thread\0" in made, b"sim_kernel_run_warp\0" in made


@pytest.mark.parametrize("block", [(256,), (32, 8), (64, 4)])
@pytest.mark.parametrize("how", WARPS)
def test_warps_that_do_different_things_wait_for_each_other(how: str, block: tuple[int, ...]) -> None:
    """No lane leaves its warp where a branch goes by the warp's number: such a kernel runs in warps."""
    text = kernel(SPECIALISED.format(warp=WARPS[how]) + store("%r10"), pointers=1)
    assert _forms(text) == (True, True)
    (out,) = driver.run(text, "k", np.zeros(256, np.uint32), block=block)
    index = np.arange(256)
    made = (index - 32) // 32 * 32 + 31 - index % 32
    assert out.tolist() == np.where(index // 32 % 2, made * 3, index * 3).tolist()


@pytest.mark.parametrize("block", [(48, 4), (16, 12), (96, 2)])
def test_a_row_that_is_no_multiple_of_a_warp(block: tuple[int, ...]) -> None:
    """The same code where the lanes of a warp differ in what they take for its number: tid.x alone."""
    body = """
    .shared .align 4 .b8 words[1024];
    mov.u32 %r9, words;
    mov.u32 %r7, %tid.x;
    shr.u32 %r8, %r7, 5;
    mad.lo.u32 %r13, %r0, 4, %r9;
    mul.lo.u32 %r10, %r0, 3;
    st.shared.u32 [%r13], %r10;
    setp.ne.u32 %p0, %r8, 0;
    @%p0 bra others;
    bar.sync 0;
    ld.shared.u32 %r10, [words];
    bra done;
others:
    bar.sync 0;
    ld.shared.u32 %r10, [%r13];
done:
    """
    text = kernel(body + store("%r10"), pointers=1)
    assert _forms(text) == (True, True)
    count = block[0] * block[1]
    (out,) = driver.run(text, "k", np.full(count, 7, np.uint32), block=block)
    index = np.arange(count)
    assert out.tolist() == np.where(index % block[0] < 32, 0, index * 3).tolist()


def test_what_lanes_wrote_while_they_were_apart_is_not_the_same_for_a_warp() -> None:
    """A register is tid.x + 32 for some lanes and tid.x + 64 for others: its high bits part them."""
    body = """
    .shared .align 4 .b8 words[1024];
    mov.u32 %r7, %tid.x;
    and.b32 %r8, %r7, 1;
    setp.eq.u32 %p0, %r8, 0;
    add.u32 %r9, %r7, 32;
    @%p0 bra even;
    add.u32 %r9, %r7, 64;
even:
    shr.u32 %r10, %r9, 5;
    and.b32 %r11, %r10, 1;
    setp.eq.u32 %p1, %r11, 0;
    @%p1 bra left;
    bar.warp.sync 0x55555555;
    add.u32 %r10, %r10, 100;
    bra done;
left:
    bar.warp.sync 0xaaaaaaaa;
    add.u32 %r10, %r10, 200;
done:
    """
    text = kernel(body + store("%r10"), pointers=1)
    assert _forms(text) == (True, False)
    (out,) = driver.run(text, "k", np.zeros(32, np.uint32), block=(32,))
    index = np.arange(32)
    number = (index + np.where(index % 2, 64, 32)) // 32
    assert out.tolist() == (number + np.where(number % 2, 100, 200)).tolist()


# The last lane of each warp leaves its number, and threads add up those of the warps before tid.x / 32, and
# the last word of shared memory.
SUMS_OF_WARPS = f"""
    .shared .align 4 .b8 words[32];
    mov.u32 %r9, words;
    mad.lo.u32 %r10, %r0, 4, %r9;
    setp.lt.u32 %p0, %r0, 8;
    @%p0 st.shared.u32 [%r10], 0;
    bar.sync 0;
    and.b32 %r10, %r0, 31;
    shr.u32 %r11, %r0, 5;
    mad.lo.u32 %r11, %r11, 4, %r9;
    setp.eq.u32 %p0, %r10, 31;
    @%p0 st.shared.u32 [%r11], %r0;
    bar.sync 0;
    mov.u32 %r15, %tid.x;
    shr.u32 %r12, %r15, 5;
    mov.u32 %r10, %r0;
    setp.eq.u32 %p1, %r12, 0;
    @%p1 bra done;
again:
    ld.shared.u32 %r13, [%r9];
    add.u32 %r10, %r10, %r13;
    add.u32 %r9, %r9, 4;
    sub.u32 %r12, %r12, 1;
    setp.ne.u32 %p1, %r12, 0;
    @%p1 bra again;
done:
{load("%r14", index="%r0")}
    ld.shared.u32 %r13, [%r14];
    add.u32 %r10, %r10, %r13;
{store("%r10", index="%r0")}
"""


@pytest.mark.parametrize("block", [(256,), (100,), (45,), (32, 3), (48, 4), (20, 4)], ids=str)
def test_loops_as_long_as_the_number_of_a_warp(block: tuple[int, ...]) -> None:
    """Lanes leave such a loop together where rows are a multiple of a warp, for which there is code."""
    text = kernel(SUMS_OF_WARPS)
    module = parse(text)
    made = kernel_ir(KernelContext(module, module.kernel("k")))
    assert "@warp.of.rows(" in made
    assert "@warp.of.any(" in made
    size = int(np.prod(block))
    out, _ = driver.run(text, "k", np.zeros(size, np.uint32), np.full(size, 28, np.uint32), block=block)
    index = np.arange(size)
    words = [last if (last := 32 * warp + 31) < size else 0 for warp in range(8)]
    assert out.tolist() == (index + [sum(words[: x // 32]) + words[7] for x in index % block[0]]).tolist()


def test_a_loop_that_lanes_leave_apart_in_any_block_has_its_code_once() -> None:
    body = SUMS_OF_WARPS.replace("shr.u32 %r12, %r15, 5", "shr.u32 %r12, %r15, 3")
    module = parse(kernel(body))
    assert "@warp.of.rows(" not in kernel_ir(KernelContext(module, module.kernel("k")))


# A warp number as compilers make it of signed numbers, and warps that do different things with it, each with
# what its lanes tell each other: as threads, unless the lanes of a warp are known to go the same way.
SIGNED = """
    shr.s32 %r10, %r1, 31;
    shr.u32 %r10, %r10, 27;
    add.s32 %r10, %r1, %r10;
    shr.s32 %r10, %r10, 5;
"""
DIVIDED = "    div.s32 %r10, %r1, 32;\n"
SHAPES = {"signed": (SIGNED, 2), "divided": (DIVIDED, 2), "of the grid": ("    shr.u32 %r10, %r1, 5;\n", 1)}
BY_WARP = """
    and.b32 %r11, %r10, 1;
    setp.ne.u32 %p0, %r11, 0;
    vote.sync.ballot.b32 %r12, %p0, 0xffffffff;
    setp.lt.u32 %p1, %r0, 40;
    @%p0 bra odd;
    not.b32 %r12, %r12;
    vote.sync.ballot.b32 %r13, %p1, %r12;
    bra met;
odd:
    vote.sync.ballot.b32 %r13, !%p1, %r12;
met:
"""


def by_warp(which: str) -> str:
    number, _ = SHAPES[which]
    thread = "" if which == "of the grid" else "    mov.u32 %r1, %tid.x;\n"
    return kernel(thread + number + BY_WARP + store("%r13", index="%r0"), pointers=1)


@pytest.mark.parametrize("which", SHAPES)
def test_warps_that_do_different_things_are_found(which: str) -> None:
    module = parse(by_warp(which))
    text = kernel_ir(KernelContext(module, module.kernel("k")))
    assert f"sim_kernel_rows = constant i32 {SHAPES[which][1]}" in text


@pytest.mark.parametrize("block", [(96,), (100,), (45,), (32, 3), (20, 4)], ids=str)
@pytest.mark.parametrize("which", ["signed", "divided"])
def test_warps_that_do_different_things(which: str, block: tuple[int, ...]) -> None:
    """In blocks of every shape; where it has two dimensions tid.x is not the number in the block."""
    size = int(np.prod(block))
    (out,) = driver.run(by_warp(which), "k", np.zeros(size, np.uint32), block=block)
    expected = []
    for thread in range(size):
        first = thread // 32 * 32
        odd = thread % block[0] // 32 % 2
        mine = [t for t in range(first, min(first + 32, size)) if t % block[0] // 32 % 2 == odd]
        expected.append(sum(1 << t - first for t in mine if (t < 40) != odd))
    assert list(out) == expected


def test_a_barrier_for_each_warp() -> None:
    """By a number that is not known to be the same for its lanes; all of them wait at the same one."""
    body = """
    .shared .align 4 .b8 words[512];
    mov.u32 %r9, words;
    mad.lo.u32 %r10, %r0, 4, %r9;
    st.shared.u32 [%r10], %r0;
    mul.lo.u32 %r11, %r0, 2049;
    shr.u32 %r11, %r11, 16;
    bar.sync %r11, 32;
    xor.b32 %r12, %r0, 1;
    mad.lo.u32 %r10, %r12, 4, %r9;
    ld.shared.u32 %r13, [%r10];
"""
    (out,) = driver.run(kernel(body + store("%r13"), pointers=1), "k", np.zeros(128, np.uint32), block=(128,))
    assert (out == np.arange(128) ^ 1).all()


STRIDES = """
    bar.warp.sync -1;
    mov.u32 %r10, 0;
    mov.u32 %r11, 0;
LOOP:
    mad.wide.u32 %x10, %r11, 65536, %x0;
    mad.wide.u32 %x10, %r1, 4, %x10;
    ld.global.u32 %r12, [%x10];
    add.u32 %r10, %r10, %r12;
    add.u32 %r11, %r11, 1;
    setp.lt.u32 %p0, %r11, 8;
    @%p0 bra LOOP;
"""


def test_what_a_loop_loads_next_is_asked_for() -> None:
    """Strides beyond a page are those of every reduction over a grid, and foreseen by no processor."""

    def asks(body: str) -> bool:
        module = parse(kernel(body))
        return "call void @llvm.prefetch" in kernel_ir(KernelContext(module, module.kernel("k")))

    assert asks(STRIDES)
    assert not asks(STRIDES.replace("@%p0 bra LOOP;", ""))


def test_what_a_loop_loads_may_end_where_memory_ends() -> None:
    given = np.arange(8 * 16384, dtype=np.uint32)
    body = STRIDES + store("%r10", pointer="%x1")
    _, out = driver.run(kernel(body), "k", given, np.zeros(16384, np.uint32), grid=(512,), block=(32,))
    assert (out == given.reshape(8, -1).sum(axis=0, dtype=np.uint32)).all()


MANY = 400  # registers, and branches that part lanes: as values they met at each barrier, in 29 MB of code


def many_registers_behind_a_lock(many: int = MANY) -> str:
    lines = [f".reg .b32 %a<{many}>;", *(f"add.u32 %a{i}, %r0, {i};" for i in range(many))]
    lines += [
        "mov.u32 %r12, 0;",
        "again: atom.global.cas.b32 %r10, [%x1], 0, 1;",
        "setp.ne.u32 %p0, %r10, 0;",
        "@%p0 bra again;",
        "atom.global.exch.b32 %r10, [%x1], 0;",
    ]
    for i in range(many):
        lines += [
            f"bfe.u32 %r11, %r0, {i % 5}, 1;",
            "setp.eq.u32 %p1, %r11, 0;",
            f"@%p1 bra over{i};",
            f"mad.lo.u32 %a{i}, %a{(i + 7) % many}, 3, {i};",
            f"over{i}:",
            *(["bar.sync 0;"] if i % 4 == 0 else []),
        ]
    lines += [f"xor.b32 %r12, %r12, %a{i};" for i in range(many)]
    return kernel("\n".join(lines) + store("%r12"))


@pytest.mark.system
def test_many_registers_behind_a_lock() -> None:
    text = many_registers_behind_a_lock()
    assert len(compile_kernel(parse(text), "k", quick=True)) < 4 << 20
    out, lock = driver.run(text, "k", np.zeros(32, np.uint32), np.zeros(1, np.uint32), block=(32,))
    assert lock[0] == 0
    for lane, got in enumerate(out):
        values = [lane + i for i in range(MANY)]
        for i in range(MANY):
            if lane >> i % 5 & 1:
                values[i] = (values[(i + 7) % MANY] * 3 + i) & 0xFFFFFFFF
        expected = 0
        for value in values:
            expected ^= value
        assert got == expected, lane


def test_quick_code_of_few_registers_behind_a_lock_is_small() -> None:
    """As values they took 570 KB of code, and half a megabyte of each warp's stack."""
    assert len(compile_kernel(parse(many_registers_behind_a_lock(50)), "k", quick=True)) < 100_000


def test_lanes_in_two_loops_wait_for_each_other() -> None:
    """A barrier of the program's own, which odd and even lanes wait at in loops of their own."""

    def arrive(label: str) -> str:
        return f"""
    atom.global.add.u32 %r11, [%x0], 1;
{label}:
    ld.volatile.global.u32 %r11, [%x0];
    setp.lt.u32 %p1, %r11, %r12;
    @%p1 bra {label};
"""

    body = f"""
    and.b32 %r10, %r0, 1;
    setp.eq.u32 %p0, %r10, 0;
    mov.u32 %r12, 32;
round:
    @%p0 bra even;
{arrive("one")}
    bra both;
even:
{arrive("other")}
both:
    add.u32 %r12, %r12, 32;
    setp.le.u32 %p2, %r12, 128;
    @%p2 bra round;
"""
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1, np.uint32), block=(32,))
    assert out.tolist() == [128]


# What a warp's threads have not in common though what it is made of looks so: code, and what threads 0, 1,
# 40 and 41 find in %r17 or %p2.
NOT_THE_SAME = {
    "bits of several lengths": (
        "and.b32 %r16, %r0, 1; bfe.u32 %r17, %r15, 5, %r16; setp.ne.u32 %p2, %r17, 0;",
        [0, 0, 0, 1],
    ),
    "lanes that a shuffle has no other for": (
        "mov.u32 %r16, %ntid.x; shfl.sync.up.b32 %r17|%p2, %r16, 1, 0, -1;",
        [0, 1, 1, 1],
    ),
    "what is above a multiple of 32": (
        "cvt.u64.u32 %x4, %ctaid.x; add.u64 %x4, %x4, 0x148000000; shl.b64 %x4, %x4, 5;"
        "mov.b64 {%r16, %r17}, %x4; setp.lt.u32 %p2, %r15, %r17;",
        [1, 1, 1, 0],
    ),
    "two packed into one": (
        "mov.u32 %r16, %ntid.x; and.b32 %r17, %r0, 1; cvt.pack.sat.u16.s32 %r17, %r16, %r17;"
        "and.b32 %r17, %r17, 1; setp.ne.u32 %p2, %r17, 0;",
        [0, 1, 0, 1],
    ),
}


@pytest.mark.parametrize("which", NOT_THE_SAME)
def test_what_a_warp_has_not_in_common(which: str) -> None:
    """The loop gives the kernel code for blocks of rows beside that for any, which a launch takes when it is
    there."""
    code, expected = NOT_THE_SAME[which]
    body = f"""
    mov.u32 %r15, %tid.x; shr.u32 %r12, %r15, 5; mov.u32 %r10, 0;
    setp.eq.u32 %p1, %r12, 0;
    @%p1 bra done;
again:
    sub.u32 %r12, %r12, 1;
    setp.ne.u32 %p1, %r12, 0;
    @%p1 bra again;
done:
    bar.sync 0;
    {code}
    @!%p2 bra end;
    mov.u32 %r10, 1;
end:
    {store("%r10")}
    """
    text = kernel(body, pointers=1)
    module = parse(text)
    made = kernel_ir(KernelContext(module, module.kernel("k")))
    assert made.count("%r0.p2 = alloca <32 x i1>") == made.count("%r0.p2 = alloca") == 2
    (out,) = driver.run(text, "k", np.zeros(64, np.uint32), block=(64,))
    assert out[[0, 1, 40, 41]].tolist() == expected
