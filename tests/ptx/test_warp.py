"""shfl, vote, match, redux, activemask: full and partial warps, segments, masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gpuferry.native.simdevice.ptx import compile_kernel, parse

from . import driver
from .ptx import UNITS, entry, kernel, load, store

MODES = ("up", "down", "bfly", "idx")
CLAMPS = [0x1F, 0x00, 0x181F, 0x1C1F, 0x1E1F, 0x1807, 0x0F]


def shuffled(mode: str, values: np.ndarray, b: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    """As in the PTX ISA's description of shfl."""
    out, inside = values.copy(), np.zeros(32, np.uint32)
    segment, clamp = c >> 8 & 31, c & 31
    for lane in range(32):
        low = lane & segment
        limit = low | clamp & ~segment
        source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": low | b & ~segment}[mode]
        valid = source >= limit if mode == "up" else source <= limit
        inside[lane] = valid
        out[lane] = values[source if valid else lane]
    return out, inside


@pytest.fixture(scope="module")
def shuffles() -> driver.Module:
    kernels = []
    for mode in MODES:
        body = f"""
{load("%r10")}
    cvt.u32.u64 %r11, %x3;
    cvt.u32.u64 %r12, %x4;
    shfl.sync.{mode}.b32 %r13|%p0, %r10, %r11, %r12, 0xffffffff;
    selp.u32 %r14, 1, 0, %p0;
{store("%r13")}
{store("%r14", "%x2")}
    """
        kernels.append(entry(body, mode, 5))
    return driver.Module(kernel("", "unused") + "".join(kernels))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("c", CLAMPS)
def test_shuffle(shuffles: driver.Module, mode: str, c: int) -> None:
    values = np.random.default_rng(1).integers(0, 1 << 32, 64, dtype=np.uint32)
    for b in (0, 1, 5, 16, 31):
        out, inside = driver.Buffer(np.zeros(64, np.uint32)), driver.Buffer(np.zeros(64, np.uint32))
        shuffles.launch(mode, out, driver.Buffer(values), inside, b, c, block=(64,))
        for warp in range(2):
            lanes = slice(32 * warp, 32 * warp + 32)
            expected, valid = shuffled(mode, values[lanes], b, c)
            assert (inside.read()[lanes] == valid).all()
            assert (out.read()[lanes] == expected).all()


def test_reduction_in_a_partial_warp() -> None:
    """20 threads of the second warp: a mask of the lanes that exist."""
    body = f"""
    add.u32 %r10, %r0, 1;
    mov.u32 %r11, 16;
    activemask.b32 %r15;
loop:
    shfl.sync.down.b32 %r12|%p0, %r10, %r11, 0x1f, %r15;
    mov.u32 %r13, %laneid;
    add.u32 %r14, %r13, %r11;
    setp.lt.and.u32 %p1, %r14, 20, %p0;
    setp.lt.or.u32 %p1, %r0, 32, %p1;
    @%p1 add.u32 %r10, %r10, %r12;
    shr.u32 %r11, %r11, 1;
    setp.ne.u32 %p2, %r11, 0;
    @%p2 bra loop;
{store("%r10")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(52, np.uint32), block=(52,))
    assert out[32] == sum(range(33, 53))


VOTES: dict[str, Callable[[list[bool]], bool]] = {
    "all.pred": lambda votes: all(votes),
    "any.pred": lambda votes: any(votes),
    "uni.pred": lambda votes: len(set(votes)) == 1,
}


@pytest.mark.parametrize("chosen", [0, 0xFFFFFFFF, 0x00010000, 0xFFFFFFFE])
def test_votes(chosen: int) -> None:
    parts = [f"    mov.u32 %r16, {chosen};\n    shr.u32 %r10, %r16, %r0;\n    and.b32 %r10, %r10, 1;\n"]
    parts.append("    setp.eq.u32 %p0, %r10, 1;\n")
    for i, name in enumerate(VOTES):
        parts.append(f"    vote.sync.{name} %p1, %p0, 0xffffffff;\n    selp.u32 %r11, 1, 0, %p1;\n")
        parts.append(f"    add.u32 %r12, %r0, {32 * i};\n{store('%r11', index='%r12')}\n")
    parts.append("    vote.sync.ballot.b32 %r11, %p0, 0xffffffff;\n    add.u32 %r12, %r0, 96;\n")
    parts.append(store("%r11", index="%r12"))
    (out,) = driver.run(kernel("".join(parts), pointers=1), "k", np.zeros(128, np.uint32), block=(32,))
    votes = [bool(chosen >> lane & 1) for lane in range(32)]
    for i, expected in enumerate(VOTES.values()):
        assert np.all(out[32 * i : 32 * i + 32] == expected(votes))
    assert (out[96:] == chosen).all()


@pytest.mark.parametrize("bits", [32, 64])
def test_match(bits: int) -> None:
    value, widen = (
        ("%r10", "") if bits == 32 else ("%x10", "    cvt.u64.u32 %x10, %r10;\n    shl.b64 %x10, %x10, 33;\n")
    )
    body = f"""
{load("%r10")}
{widen}
    match.any.sync.b{bits} %r11, {value}, 0xffffffff;
{store("%r11")}
    match.all.sync.b{bits} %r12|%p0, {value}, 0xffffffff;
    selp.u32 %r13, %r12, 0, %p0;
    add.u32 %r14, %r1, 64;
{store("%r13", index="%r14")}
    """
    values = np.array([lane % 5 for lane in range(32)] + [9] * 32, np.uint32)
    out, _ = driver.run(kernel(body), "k", np.zeros(128, np.uint32), values, block=(64,))
    expected = [sum(1 << i for i in range(32) if i % 5 == lane % 5) for lane in range(32)] + [0xFFFFFFFF] * 32
    assert list(out[:64]) == expected
    assert list(out[64:]) == [0] * 32 + [0xFFFFFFFF] * 32


REDUCTIONS = {
    "add.u32": lambda v: int(v.astype(np.uint64).sum()) & 0xFFFFFFFF,
    "add.s32": lambda v: int(v.astype(np.uint64).sum()) & 0xFFFFFFFF,
    "min.u32": lambda v: int(v.min()),
    "max.u32": lambda v: int(v.max()),
    "min.s32": lambda v: int(v.view(np.int32).min()) & 0xFFFFFFFF,
    "max.s32": lambda v: int(v.view(np.int32).max()) & 0xFFFFFFFF,
    "and.b32": lambda v: int(np.bitwise_and.reduce(v)),
    "or.b32": lambda v: int(np.bitwise_or.reduce(v)),
    "xor.b32": lambda v: int(np.bitwise_xor.reduce(v)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_redux(name: str) -> None:
    body = f"{load('%r10')}\n    redux.sync.{name} %r11, %r10, 0xffffffff;\n{store('%r11')}"
    values = np.random.default_rng(3).integers(0, 1 << 32, 64, dtype=np.uint32) | 0x100
    out, _ = driver.run(kernel(body), "k", np.zeros(64, np.uint32), values, block=(64,))
    for warp in (0, 1):
        assert (out[32 * warp : 32 * warp + 32] == REDUCTIONS[name](values[32 * warp : 32 * warp + 32])).all()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_redux_by_groups(name: str) -> None:
    """Lanes of one warp reduce among eight, and among those of their parity: the kernel runs in warps."""
    body = f"""
{load("%r10")}
    and.b32 %r11, %r0, 24;
    mov.u32 %r12, 0xff;
    shl.b32 %r12, %r12, %r11;
    redux.sync.{name} %r13, %r10, %r12;
    and.b32 %r14, %r0, 1;
    mov.u32 %r15, 0x55555555;
    shl.b32 %r15, %r15, %r14;
    setp.lt.u32 %p0, %r14, 2;
    @%p0 redux.sync.{name} %r16, %r10, %r15;
{store("%r13")}
    add.u32 %r17, %r1, 64;
{store("%r16", index="%r17")}
"""
    text = kernel(body)
    assert b"sim_kernel_run_warp\0" in compile_kernel(parse(text), "k")
    values = np.random.default_rng(5).integers(0, 1 << 32, 64, dtype=np.uint32) | 0x100
    out, _ = driver.run(text, "k", np.zeros(128, np.uint32), values, block=(64,))
    for index in range(64):
        first = index // 8 * 8
        assert out[index] == REDUCTIONS[name](values[first : first + 8])
        first = index // 32 * 32 + index % 2
        assert out[64 + index] == REDUCTIONS[name](values[first : index // 32 * 32 + 32 : 2])


def test_masks_of_diverged_lanes() -> None:
    """Each side of a branch reduces among its own lanes, asked by activemask and given as a constant."""
    body = f"""
    and.b32 %r10, %r0, 1;
    setp.eq.u32 %p0, %r10, 1;
    @%p0 bra odd;
    activemask.b32 %r11;
    redux.sync.add.u32 %r12, %r0, %r11;
    bra both;
odd:
    redux.sync.add.u32 %r12, %r0, 0xaaaaaaaa;
    activemask.b32 %r11;
both:
{store("%r12")}
    add.u32 %r13, %r0, 32;
{store("%r11", index="%r13")}
    bar.warp.sync 0xffffffff;
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(64, np.uint32), block=(32,))
    even, odd = sum(range(0, 32, 2)), sum(range(1, 32, 2))
    assert list(out[:32]) == [even, odd] * 16
    assert list(out[32:]) == [0x55555555, 0xAAAAAAAA] * 16


# As __activemask() is in a program compiled with -G, which cooperative groups call by functions of their own.
ASKING = """
.func (.param .b32 mask) asked()
{
    .reg .b32 %r;
    activemask.b32 %r;
    st.param.b32 [mask], %r;
    ret;
}
.func (.param .b32 mask) group()
{
    .reg .b32 %r;
    { .param .b32 m; call (m), asked, (); ld.param.b32 %r, [m]; }
    st.param.b32 [mask], %r;
    ret;
}
"""


@pytest.mark.parametrize("unit", UNITS)
def test_a_function_tells_those_who_came_the_same_way(unit: str) -> None:
    """Lanes are not together because they are in one function, which they called in different places."""
    asked = "{ .param .b32 m; call (m), group, (); ld.param.b32 %r11, [m]; }"
    body = f"""{UNITS[unit]}
    and.b32 %r10, %r0, 3;
    setp.eq.u32 %p0, %r10, 1;
    @%p0 bra one;
    setp.eq.u32 %p0, %r10, 2;
    @%p0 bra two;
    {asked.replace("group", "asked")}
    bra all;
one:
    {asked}
    bra all;
two:
    {asked}
all:
{store("%r11")}
    """
    (out,) = driver.run(kernel(body, pointers=1, module=ASKING), "k", np.zeros(32, np.uint32), block=(32,))
    assert out.tolist() == [0x99999999, 0x22222222, 0x44444444, 0x99999999] * 8


@pytest.mark.parametrize("unit", UNITS)
def test_lanes_that_met_go_on_in_their_order(unit: str) -> None:
    """Tiles of several warps in cooperative groups rely on it: lane 0 resets what the others look at next."""
    body = f"""{UNITS[unit]}
    setp.ne.u32 %p0, %r0, 0;
    bar.warp.sync 0xffffffff;
    @%p0 bra look;
    st.relaxed.gpu.global.u32 [%x1], 7;
look:
    ld.relaxed.gpu.global.u32 %r10, [%x1];
{store("%r10")}
    """
    out, _ = driver.run(kernel(body), "k", np.zeros(32, np.uint32), np.zeros(1, np.uint32), block=(32,))
    assert (out == 7).all()


def test_exited_lanes_do_not_hold_up_a_full_mask() -> None:
    body = f"""
    setp.ge.u32 %p0, %r0, 24;
    @%p0 exit;
    vote.sync.ballot.b32 %r10, 1, 0xffffffff;
{store("%r10")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(32, np.uint32), block=(32,))
    assert (out[:24] == 0x00FFFFFF).all()


@pytest.mark.parametrize("unit", UNITS)
def test_who_is_elected_is_there(unit: str) -> None:
    """All others know who it is, though the mask names lanes that have ended."""
    body = f"""{UNITS[unit]}
    setp.lt.u32 %p0, %r0, 5;
    @%p0 exit;
    elect.sync %r10|%p1, 0xffffffff;
    @%p1 add.u32 %r10, %r10, 100;
{store("%r10")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.full(32, 99, np.uint32), block=(32,))
    leader = int(out[5:].min())
    assert leader in range(5, 32)
    assert out.tolist() == [99] * 5 + [leader + 100 * (lane == leader) for lane in range(5, 32)]


def test_elect_like_leader() -> None:
    """The idiom of cooperative groups: the first active lane adds for all."""
    body = f"""
    rem.u32 %r10, %r0, 3;
    setp.ne.u32 %p0, %r10, 0;
    @%p0 bra end;
    activemask.b32 %r11;
    popc.b32 %r12, %r11;
    mov.u32 %r13, %lanemask_lt;
    and.b32 %r13, %r13, %r11;
    popc.b32 %r14, %r13;
    setp.ne.u32 %p1, %r14, 0;
    @!%p1 atom.global.add.u32 %r15, [%x1], %r12;
    brev.b32 %r16, %r11;
    clz.b32 %r16, %r16;
    shfl.sync.idx.b32 %r15, %r15, %r16, 0x1f, %r11;
    add.u32 %r15, %r15, %r14;
{store("%r15")}
end:
    """
    out, total = driver.run(
        kernel(body), "k", np.full(96, 999, np.uint32), np.zeros(1, np.uint32), block=(96,)
    )
    assert total[0] == 32
    assert sorted(out[::3]) == list(range(32))


def test_shuffles_by_what_is_known_and_what_is_not() -> None:
    """Of the same distances and limits, as numbers, in a register that holds one, and read from memory."""
    ways = [
        (mode, by, limits)
        for mode in ("up", "down", "bfly", "idx")
        for by in (0, 1, 5, 16, 31, 37)
        for limits in ((0, 0x1C00) if mode == "up" else (31, 0x1C1F, 0x100A))
    ]
    body = "    mul.lo.u32 %r10, %r0, 3;\n"
    for place, (mode, by, limits) in enumerate(ways):
        register = f"%known{place}"
        body += f"""
    .reg .b32 {register};
    mov.u32 {register}, {by};
    shfl.sync.{mode}.b32 %r11|%p0, %r10, {by}, {limits}, -1;
    shfl.sync.{mode}.b32 %r12|%p1, %r10, {register}, {limits}, -1;
    ld.global.u32 %r20, [%x1+{8 * place}];
    ld.global.u32 %r21, [%x1+{8 * place + 4}];
    shfl.sync.{mode}.b32 %r13|%p2, %r10, %r20, %r21, -1;
    selp.u32 %r14, 1000, 0, %p0;
    selp.u32 %r15, 1000, 0, %p1;
    selp.u32 %r16, 1000, 0, %p2;
    add.u32 %r11, %r11, %r14;
    add.u32 %r12, %r12, %r15;
    add.u32 %r13, %r13, %r16;
    mad.wide.u32 %x5, %r0, 12, %x0;
    st.global.u32 [%x5+{384 * place}], %r11;
    st.global.u32 [%x5+{384 * place + 4}], %r12;
    st.global.u32 [%x5+{384 * place + 8}], %r13;
"""
    given = np.array([(by, limits) for _, by, limits in ways], np.uint32).ravel()
    out, _ = driver.run(kernel(body), "k", np.zeros(96 * len(ways), np.uint32), given, block=(32,))
    number, register, memory = out.reshape(len(ways), 32, 3).transpose(2, 0, 1)
    assert (number == memory).all()
    assert (register == memory).all()
    assert len(np.unique(memory, axis=0)) > len(ways) // 2


@pytest.mark.parametrize("by", ["1", "%r0"])
def test_a_shuffle_of_what_is_the_same_for_all(by: str) -> None:
    body = f"    shfl.sync.down.b32 %r10|%p0, 255, {by}, 31, -1;\n    selp.u32 %r10, %r10, 0, %p0;\n"
    (out,) = driver.run(kernel(body + store("%r10"), pointers=1), "k", np.zeros(32, np.uint32), block=(32,))
    assert out.tolist() == [255 if n + (1 if by == "1" else n) < 32 else 0 for n in range(32)]
