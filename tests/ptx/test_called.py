"""Functions that a warp calls: threads end in them, and wait for each other."""

from __future__ import annotations

import numpy as np
import pytest
from gpuferry.native.simdevice.ptx import compile_kernel, parse

from . import driver
from .ptx import UNITS, kernel, store

# Threads with numbers from 20 on end, if they are odd.
LEAVE = """
.func (.param .b32 r) leave(.param .b32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    ld.param.b32 %r0, [n];
    setp.ge.u32 %p0, %r0, 20;
    @%p0 bra out;
    add.u32 %r0, %r0, 100;
    st.param.b32 [r], %r0;
    ret;
out:
    exit;
}
.func (.param .b32 r) again(.param .b32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    ld.param.b32 %r0, [n];
    and.b32 %r1, %r0, 1;
    setp.eq.u32 %p0, %r1, 1;
    {
        .param .b32 a;
        .param .b32 b;
        st.param.b32 [a], %r0;
        @%p0 call (b), leave, (a);
        @%p0 ld.param.b32 %r0, [b];
    }
    st.param.b32 [r], %r0;
    ret;
}
"""
CALL = """
    .reg .b64 %way;
    {{
        .param .b32 a;
        .param .b32 b;
        st.param.b32 [a], %r0;
        {call}
        ld.param.b32 %r10, [b];
    }}
    activemask.b32 %r11;
    bar.sync 0;
    add.u32 %r10, %r10, %r11;
"""
DIRECT = CALL.format(call="call (b), again, (a);")
INDIRECT = CALL.format(
    call="proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
    "        mov .u64 %way, again;\n        call (b), %way, (a), proto;"
)


def form(text: str) -> int:
    """Of a kernel: 1 threads, 2 warps."""
    made = compile_kernel(parse(text), "k")
    return 2 if b"sim_kernel_run_warp\0" in made else 1


@pytest.mark.parametrize("call", [DIRECT, INDIRECT], ids=["by its name", "by its address"])
@pytest.mark.parametrize("threads", [32, 70])
def test_threads_that_end_in_a_function(call: str, threads: int) -> None:
    """Two calls deep, some lanes of a warp, and all of none: the others go on, and meet without them."""
    text = kernel(call + store("%r10"), pointers=1, module=LEAVE)
    assert form(text) == 2
    (out,) = driver.run(text, "k", np.full(threads, 7, np.uint32), block=(threads,))
    left = [n for n in range(threads) if n < 20 or n % 2 == 0]
    expected = np.full(threads, 7, np.uint32)
    for n in left:
        mask = sum(1 << each % 32 for each in left if each // 32 == n // 32)
        expected[n] = (n + 100 * (n % 2) + mask) & 0xFFFFFFFF
    assert out.tolist() == expected.tolist()


def test_a_warp_of_which_nobody_comes_back() -> None:
    text = kernel("    or.b32 %r0, %r0, 33;\n" + DIRECT + store("%r10"), pointers=1, module=LEAVE)
    (out,) = driver.run(text, "k", np.full(64, 7, np.uint32), block=(64,))
    assert (out == 7).all()


# A lock: its argument is the address, and where it is needed, who takes it.
LOCK = """
.func take(.param .b64 lock)
{
    .reg .pred %p<1>;
    .reg .b32 %r<1>;
    .reg .b64 %x<1>;
    ld.param.b64 %x0, [lock];
again:
    atom.global.cas.b32 %r0, [%x0], 0, 1;
    setp.eq.u32 %p0, %r0, 0;
    @%p0 ret;
    bra again;
}
.func (.param .b32 was) add(.param .b64 lock, .param .b64 sum, .param .b32 number)
{
    .reg .pred %p<1>;
    .reg .b32 %r<2>;
    .reg .b64 %x<2>;
    ld.param.b64 %x0, [lock];
    ld.param.b64 %x1, [sum];
    ld.param.b32 %r0, [number];
    setp.ge.u32 %p0, %r0, 90;
    @%p0 exit;
    {
        .param .b64 param0;
        st.param.b64 [param0], %x0;
        call take, (param0);
    }
    ld.volatile.global.u32 %r1, [%x1];
    add.u32 %r0, %r1, %r0;
    st.volatile.global.u32 [%x1], %r0;
    membar.gl;
    atom.global.exch.b32 %r0, [%x0], 0;
    st.param.b32 [was], %r1;
    ret;
}
"""
IN_MEMORY = """
    {
        .param .b64 lock; .param .b64 param1; .param .b32 param2; .param .b32 was;
        st.param.b64 [lock], %x1;
        st.param.b64 [param1], %x2;
        st.param.b32 [param2], %r0;
        call (was), add, (lock, param1, param2);
        ld.param.b32 %r10, [was];
    }
"""
IN_REGISTERS = "    call (%r10), add, (%x1, %x2, %r0);\n"
GUARDED = "    setp.lt.u32 %p3, %r0, 100;\n    @%p3 call (%r10), add, (%x1, %x2, %r0);\n"


@pytest.mark.parametrize("call", [IN_MEMORY, IN_REGISTERS, GUARDED], ids=["memory", "registers", "guarded"])
def test_a_lock_that_a_function_takes(call: str) -> None:
    """Lanes of one warp; a function that calls it, some of whose threads end; called twice."""
    text = kernel(call + call + "    bar.sync 0;\n" + store("%r10"), pointers=3, module=LOCK)
    assert form(text) == 2
    arrays = [np.full(128, 7, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)]
    was, lock, added = driver.run(text, "k", *arrays, block=(128,))
    assert (lock[0], added[0]) == (0, 2 * sum(range(90)))
    assert (was[90:100] == 7).all()
    assert len(set(was[1:90].tolist())) == 89


def test_registers_of_a_function_that_becomes_part_of_another() -> None:
    """Of a million declared no more than are used; and of vectors, which had the names of the caller's."""
    declared = "    .reg .b32 %big<1000000>;\n    .reg .v2 .b32 %v;\n    mov.v2.b32 {%v.x, %v.y}, {5, 6};\n"
    used = "    add.u32 %big999999, %v.x, %v.y;\n    add.u32 %r0, %r0, %big999999;\n"
    module = LOCK.replace("again:\n", declared + used + "again:\n", 1)
    body = "    .reg .v2 .b32 %v;\n    mov.v2.b32 {%v.x, %v.y}, {70, 80};\n"
    body += "    setp.gt.u32 %p0, %r0, 9;\n    @%p0 bra end;\n    call take, (%x0);\n"
    body += "    add.u32 %r10, %v.x, %v.y;\n    atom.global.exch.b32 %r11, [%x0], 0;\nend:\n"
    text = kernel(body + store("%r10", pointer="%x1"), module=module)
    assert form(text) == 2
    arrays = [np.zeros(1, np.uint32), np.zeros(32, np.uint32)]
    _, out = driver.run(text, "k", *arrays, block=(32,))
    assert out.tolist() == [150] * 10 + [0] * 22


def test_a_function_that_waits_and_calls_itself_runs_as_threads() -> None:
    module = LOCK.replace("    bra again;\n", "    call take, (%x0);\n    bra again;\n", 1)
    text = kernel("    call take, (%x0);\n" + store("%r0", pointer="%x1"), module=module)
    assert form(text) == 1


def test_threads_that_end_on_one_side_of_a_branch() -> None:
    """Nothing comes after all ways then; the others meet at the barrier, wherever they come from."""
    body = """
    setp.lt.u32 %p0, %r0, 40;
    @!%p0 bra others;
    setp.lt.u32 %p1, %r0, 7;
    @%p1 ret;
others:
    activemask.b32 %r10;
    bar.sync 0;
    """
    text = kernel(body + store("%r10"), pointers=1)
    assert form(text) == 2
    (out,) = driver.run(text, "k", np.full(64, 7, np.uint32), block=(64,))
    assert out.tolist() == [7] * 7 + [0xFFFFFF80] * 25 + [0xFFFFFFFF] * 32


# The two functions of a call table, by what a call of them looks like.
TABLES = {
    "memory": (
        """
.func (.param .b32 r) one(.param .b32 n)
{ .reg .b32 %r; ld.param.b32 %r, [n]; add.u32 %r, %r, 1; st.param.b32 [r], %r; ret; }
.func (.param .b32 r) two(.param .b32 n)
{ .reg .b32 %r; ld.param.b32 %r, [n]; add.u32 %r, %r, 100; st.param.b32 [r], %r; ret; }
""",
        """
    {
        .param .b32 a; .param .b32 b;
        st.param.b32 [a], %r0;
        call (b), %x6, (a), table;
        ld.param.b32 %r10, [b];
    }
""",
    ),
    "registers": (
        """
.func (.reg .b32 r) one(.reg .b32 n) { add.u32 r, n, 1; ret; }
.func (.reg .b32 r) two(.reg .b32 n) { add.u32 r, n, 100; ret; }
""",
        "    call.uni (%r10), %x6, (%r0), table;\n",
    ),
}
TABLE = ".global .u64 table[3] = {one, two};\n"
CHOOSE = """
    and.b32 %r10, %r0, 1;
    mov.u64 %x5, table;
    mad.wide.u32 %x6, %r10, 8, %x5;
    ld.global.u64 %x6, [%x6];
"""


@pytest.mark.parametrize("by", TABLES)
def test_a_call_through_a_table(by: str) -> None:
    functions, call = TABLES[by]
    text = kernel(CHOOSE + call + store("%r10"), pointers=1, module=functions + TABLE)
    (out,) = driver.run(text, "k", np.zeros(64, np.uint32), block=(64,))
    assert out.tolist() == [n + (100 if n & 1 else 1) for n in range(64)]


def test_a_call_through_what_the_table_does_not_hold() -> None:
    """The third element is no function."""
    functions, call = TABLES["memory"]
    text = kernel(CHOOSE.replace("%r0, 1", "%r0, 2") + call, pointers=1, module=functions + TABLE)
    with driver.own_context(), pytest.raises(driver.CudaError) as caught:
        driver.run(text, "k", np.zeros(64, np.uint32), block=(64,))
    assert caught.value.status == driver.ILLEGAL_ADDRESS


ADDED = """
.func (.param .b32 r) one(.param .b32 n)
{ .reg .b32 %r; ld.param.b32 %r, [n]; add.u32 %r, %r, 1; st.param.b32 [r], %r; ret; }
.func (.param .b32 r) two(.param .b64 n)
{ .reg .b32 %r; .reg .b64 %x; ld.param.b64 %x, [n]; cvt.u32.u64 %r, %x; add.u32 %r, %r, 100;
  st.param.b32 [r], %r; ret; }
"""


def test_prototypes_of_one_name_in_two_scopes() -> None:
    part = """
    {{
        .param .b{bits} a; .param .b32 b;
        kind: .callprototype (.param .b32 _) _ (.param .b{bits} _);
        mov.b64 %x6, {name};
        st.param.b{bits} [a], {given};
        call (b), %x6, (a), kind;
        ld.param.b32 %r10, [b];
    }}
"""
    body = part.format(bits=32, name="one", given="%r0") + "    cvt.u64.u32 %x5, %r10;\n"
    body += part.format(bits=64, name="two", given="%x5")
    text = kernel(body + store("%r10"), pointers=1, module=ADDED)
    (out,) = driver.run(text, "k", np.zeros(64, np.uint32), block=(64,))
    assert out.tolist() == [n + 101 for n in range(64)]


@pytest.mark.parametrize("unit", UNITS)
def test_a_register_that_has_the_name_of_a_function(unit: str) -> None:
    """A call with a prototype is one of what the register holds."""
    body = f"""{UNITS[unit]}
    .reg .b64 one;
    mov.b64 one, three;
    {{
        .param .b32 a, b;
        kind: .callprototype (.param .b32 _) _ (.param .b32 _);
        st.param.b32 [a], %r0;
        call (b), one, (a), kind;
        ld.param.b32 %r10, [b];
    }}
    bar.sync 0;
{store("%r10")}
"""
    module = ADDED + ADDED.replace("two", "four").replace("one", "three").replace("%r, 1;", "%r, 7;")
    (out,) = driver.run(kernel(body, pointers=1, module=module), "k", np.zeros(40, np.uint32), block=(40,))
    assert out.tolist() == [n + 7 for n in range(40)]


@pytest.mark.parametrize(
    "taken",
    [
        "mov.s64 %x6, one;",
        "st.local.u64 [kept], one;\n    ld.local.u64 %x6, [kept];",
        "setp.eq.u32 %p0, %r0, -1;\n    selp.b64 %x6, 0, one, %p0;",
    ],
)
def test_an_address_of_a_function_comes_from_what_takes_64_bits(taken: str) -> None:
    call = """
    {
        .param .b32 a; .param .b32 b;
        kind: .callprototype (.param .b32 _) _ (.param .b32 _);
        st.param.b32 [a], %r0;
        call (b), %x6, (a), kind;
        ld.param.b32 %r10, [b];
    }
"""
    body = f"    .local .align 8 .b8 kept[8];\n    {taken}{call}{store('%r10')}"
    (out,) = driver.run(kernel(body, pointers=1, module=ADDED), "k", np.zeros(64, np.uint32), block=(64,))
    assert out.tolist() == [n + 1 for n in range(64)]


@pytest.mark.parametrize(
    ("code", "given", "expected"),
    [
        ("add.ftz.f32 r, a, a; mul.ftz.f32 a, r, r;", 0x007FFFFF, 0),
        ("sub.f32 r, a, a;", 0x7F800000, 0x7FFFFFFF),
    ],
    ids=["subnormal", "NaN"],
)
def test_floats_in_registers_that_callers_pass_and_see(code: str, given: int, expected: int) -> None:
    """Whose are all of a caller's: the subnormal is flushed, and the NaN is the GPU's."""
    module = f".func (.reg .f32 r) f(.reg .f32 a) {{ {code} ret; }}\n"
    body = f"    mov.b32 %f0, {given};\n    call (%r10), f, (%f0);\n"
    text = kernel(body + store("%r10"), pointers=1, module=module)
    (out,) = driver.run(text, "k", np.ones(1, np.uint32))
    assert out.tolist() == [expected]


WAITING = "again: ld.volatile.global.u32 %r1, [w]; setp.eq.u32 %p, %r1, 0; @%p bra again;"


@pytest.mark.parametrize("waits", ["", WAITING], ids=["at once", "waits"])
@pytest.mark.parametrize("unit", UNITS)
def test_a_result_that_takes_the_place_of_an_argument(unit: str, waits: str) -> None:
    """The function has the argument for itself, whatever it has written to its result."""
    module = f"""
.global .u32 w = 1;
.func (.param .b32 r) next(.param .b32 n)
{{
    .reg .pred %p; .reg .b32 %r<2>;
    {waits}
    st.param.b32 [r], 5;
    ld.param.b32 %r0, [n];
    add.u32 %r0, %r0, 1;
    st.param.b32 [r], %r0;
    ret;
}}
"""
    body = f"""{UNITS[unit]}
    {{ .param .b32 a; st.param.b32 [a], %r0; call (a), next, (a); ld.param.b32 %r10, [a]; }}
    bar.sync 0;
{store("%r10")}
"""
    (out,) = driver.run(kernel(body, pointers=1, module=module), "k", np.zeros(40, np.uint32), block=(40,))
    assert out.tolist() == list(range(1, 41))


BY_CALLS = """
.func (.param .b32 r) looked(.param .b64 p)
{ .reg .b32 %r; .reg .b64 %x; ld.param.b64 %x, [p]; ld.acquire.gpu.b32 %r, [%x]; st.param.b32 [r], %r; ret; }
.func told(.param .b64 p, .param .b32 n)
{
    .reg .b32 %r; .reg .b64 %x;
    ld.param.b64 %x, [p]; ld.param.b32 %r, [n];
    st.release.gpu.b32 [%x], %r;
    ret;
}
.func (.param .b32 r) others(.param .b32 n)
{ .reg .b32 %r; ld.param.b32 %r, [n]; shfl.sync.bfly.b32 %r, %r, 1, 31, -1; st.param.b32 [r], %r; ret; }
"""


def test_lanes_take_turns_by_calls_of_functions() -> None:
    """What comes behind the loop is a call, in which lanes do not meet: it is what the others wait for."""
    body = """
wait:
    { .param .b64 a; .param .b32 b; st.param.b64 [a], %x1; call (b), looked, (a); ld.param.b32 %r10, [b]; }
    setp.ne.u32 %p0, %r10, %r0;
    @%p0 bra wait;
    mul.lo.u32 %r11, %r0, 3;
    add.u32 %r12, %r0, 1;
    { .param .b64 a; .param .b32 b; st.param.b64 [a], %x1; st.param.b32 [b], %r12; call told, (a, b); }
""" + store("%r11")
    out, turn = driver.run(
        kernel(body, module=BY_CALLS), "k", np.zeros(64, np.uint32), np.zeros(1, np.uint32), block=(64,)
    )
    assert out.tolist() == [3 * n for n in range(64)]
    assert turn.tolist() == [64]


def test_lanes_that_meet_in_a_function_that_both_sides_of_a_branch_call() -> None:
    call = "{ .param .b32 a, b; st.param.b32 [a], %r0; call (b), others, (a); ld.param.b32 %r11, [b]; }"
    body = f"""
    and.b32 %r10, %r0, 1;
    setp.eq.u32 %p0, %r10, 0;
    @%p0 bra even;
    {call}
    bra end;
even:
    {call}
end:
""" + store("%r11")
    text = kernel(body, pointers=1, module=BY_CALLS)
    (out,) = driver.run(text, "k", np.zeros(64, np.uint32), block=(64,))
    assert out.tolist() == [n ^ 1 for n in range(64)]
