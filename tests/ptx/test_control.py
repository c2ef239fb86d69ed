"""Branches, predicates, loops, calls, jump tables, special registers."""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .ptx import HEADER, UNITS, entry, kernel, store


def test_predicated_instructions_and_branches() -> None:
    """Collatz steps: data-dependent loops that diverge in every warp."""
    body = f"""
    add.u32 %r10, %r1, 1;
    mov.u32 %r11, 0;
loop:
    setp.eq.u32 %p0, %r10, 1;
    @%p0 bra.uni done;
    and.b32 %r12, %r10, 1;
    setp.eq.u32 %p1, %r12, 0;
    @%p1 shr.u32 %r10, %r10, 1;
    @!%p1 mad.lo.u32 %r10, %r10, 3, 1;
    add.u32 %r11, %r11, 1;
    bra loop;
done:
{store("%r11")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1000, np.uint32), grid=(8,), block=(125,))

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert list(out) == [steps(n + 1) for n in range(1000)]


def test_jump_table() -> None:
    body = f"""
    rem.u32 %r10, %r0, 5;
    setp.gt.u32 %p0, %r10, 3;
    mov.u32 %r11, 99;
    @%p0 bra end;
    targets: .branchtargets a, b<2>, a;
    brx.idx %r10, targets;
a:
    mov.u32 %r11, 10;
    bra.uni end;
b0:
    mov.u32 %r11, 20;
b1:
    add.u32 %r11, %r11, 5;
end:
{store("%r11")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(64, np.uint32), block=(64,))
    assert list(out) == [[10, 25, 104, 10, 99][i % 5] for i in range(64)]


@pytest.mark.parametrize("unit", UNITS)
def test_tables_of_one_name_in_two_scopes(unit: str) -> None:
    """With labels of one name as well: inline assembly has them so."""
    part = """
    {{
        brx.idx %r10, ways;
        ways: .branchtargets {targets};
    first:
        mad.lo.u32 %r11, %r11, 10, 1;
        bra end;
    second:
        mad.lo.u32 %r11, %r11, 10, 2;
    end:
    }}
"""
    parts = part.format(targets="first, second") + part.format(targets="second, first")
    body = f"""{UNITS[unit]}
    and.b32 %r10, %r0, 1;
    mov.u32 %r11, 0;
{parts}
    bar.sync 0;
{store("%r11")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(40, np.uint32), block=(40,))
    assert out.tolist() == [12, 21] * 20


FUNCTIONS = """
.func (.reg .u32 result) twice(.reg .u32 value) { add.u32 result, value, value; ret; }
.func (.param .b32 result) weigh(.param .align 8 .b8 pair[16], .param .f32 factor)
{
    .reg .b32 %r<2>; .reg .b64 %x<2>; .reg .f32 %f<4>; .reg .f64 %g<2>;
    ld.param.f64 %g0, [pair];
    ld.param.u32 %r0, [pair+8];
    ld.param.f32 %f0, [factor];
    cvt.rn.f32.f64 %f1, %g0;
    cvt.rn.f32.u32 %f2, %r0;
    fma.rn.f32 %f3, %f1, %f2, %f0;
    st.param.f32 [result], %f3;
    ret;
}
.func (.param .b32 result) factorial(.param .b32 n)
{
    .reg .pred %p; .reg .b32 %r<4>;
    ld.param.u32 %r0, [n];
    mov.u32 %r1, 1;
    setp.le.u32 %p, %r0, 1;
    @%p bra end;
    sub.u32 %r2, %r0, 1;
    {
        .param .b32 in; .param .b32 out;
        st.param.b32 [in], %r2;
        call.uni (out), factorial, (in);
        ld.param.b32 %r3, [out];
    }
    mul.lo.u32 %r1, %r0, %r3;
end:
    st.param.b32 [result], %r1;
    ret;
}
.func (.param .b32 r) plus_one(.param .b32 n)
{ .reg .b32 %r; ld.param.b32 %r, [n]; add.u32 %r, %r, 1; st.param.b32 [r], %r; ret; }
.func (.param .b32 r) times_ten(.param .b32 n)
{ .reg .b32 %r; ld.param.b32 %r, [n]; mul.lo.u32 %r, %r, 10; st.param.b32 [r], %r; ret; }
.func leave() { exit; }
.global .align 8 .u64 operations[2] = {plus_one, times_ten};
"""


@pytest.fixture(scope="module")
def calls() -> driver.Module:
    kernels = {
        "registers": f"    call (%r10), twice, (%r1);\n{store('%r10')}",
        "memory": f"""
    {{
        .param .align 8 .b8 pair[16]; .param .b32 factor; .param .b32 result;
        cvt.rn.f64.u32 %g0, %r1;
        st.param.f64 [pair], %g0;
        st.param.u32 [pair+8], %r1;
        mov.f32 %f0, 0f3F000000;
        st.param.f32 [factor], %f0;
        call.uni (result), weigh, (pair, factor);
        ld.param.f32 %f1, [result];
    }}
    cvt.rzi.u32.f32 %r10, %f1;
{store("%r10")}""",
        "recursion": f"""
    {{
        .param .b32 n; .param .b32 result;
        st.param.b32 [n], %r1;
        call.uni (result), factorial, (n);
        ld.param.b32 %r10, [result];
    }}
{store("%r10")}""",
        "indirect": f"""
    and.b32 %r11, %r1, 1;
    mov.u64 %x10, operations;
    mad.wide.u32 %x10, %r11, 8, %x10;
    ld.global.u64 %x11, [%x10];
    {{
        .param .b32 n; .param .b32 result;
        st.param.b32 [n], %r1;
        shape: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (result), %x11, (n), shape;
        ld.param.b32 %r10, [result];
    }}
{store("%r10")}""",
        "exit_inside": f"""
    setp.ge.u32 %p0, %r1, 10;
    @%p0 call leave;
{store("%r1")}""",
    }
    return driver.Module(HEADER + FUNCTIONS + "".join(entry(body, name, 1) for name, body in kernels.items()))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("registers", [2 * i for i in range(12)]),
        ("memory", [i * i for i in range(12)]),
        ("recursion", [1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800]),
        ("indirect", [i * 10 if i % 2 else i + 1 for i in range(12)]),
        ("exit_inside", [*range(10), 77, 77]),
    ],
)
def test_calls(calls: driver.Module, name: str, expected: list[int]) -> None:
    out = driver.Buffer(np.full(12, 77, np.uint32))
    calls.launch(name, out, block=(12,))
    assert list(out.read()) == expected


SPECIAL = [f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
SPECIAL += ["laneid", *(f"lanemask_{name}" for name in ("lt", "le", "eq", "ge", "gt"))]
SPECIAL += ["dynamic_smem_size", "total_smem_size"]


def test_special_registers() -> None:
    """In a grid and blocks of three dimensions."""
    grid, block = (2, 3, 2), (5, 4, 3)
    threads = 60
    code = []
    for i, name in enumerate(SPECIAL):
        index = f"    mad.lo.u32 %r13, %r12, {len(SPECIAL)}, {i};\n"
        code.append(f"    mov.u32 %r10, %{name};\n{index}{store('%r10', index='%r13')}")
    body = f"""
    .shared .align 16 .b8 tile[64];
    mov.u32 %r10, %ctaid.z;
    mov.u32 %r11, %ctaid.y;
    mad.lo.u32 %r10, %r10, 3, %r11;
    mov.u32 %r11, %ctaid.x;
    mad.lo.u32 %r10, %r10, 2, %r11;
    mad.lo.u32 %r12, %r10, {threads}, %r0;
    mov.u32 %r14, tile;
    st.shared.u32 [%r14], 0;
{"".join(code)}
    """
    out = driver.Buffer(np.zeros((12, threads, len(SPECIAL)), np.uint32))
    driver.Module(kernel(body, pointers=1)).launch("k", out, grid=grid, block=block, shared=128)
    got = out.read()
    for cta in range(12):
        for thread in range(threads):
            lane = thread % 32
            one, all_lanes = 1 << lane, 0xFFFFFFFF
            expected = [thread % 5, thread // 5 % 4, thread // 20, *block]
            expected += [cta % 2, cta // 2 % 3, cta // 6, *grid]
            expected += [lane, one - 1, 2 * one - 1, one, all_lanes & -one, all_lanes & -2 * one, 128, 192]
            assert list(got[cta, thread]) == expected, (cta, thread)


def test_clocks_advance() -> None:
    body = """
    mov.u64 %x10, %clock64;
    mov.u64 %x11, %globaltimer;
    mov.u32 %r10, %clock;
    nanosleep.u32 2000;
    mov.u64 %x12, %clock64;
    mov.u64 %x13, %globaltimer;
    sub.u64 %x12, %x12, %x10;
    sub.u64 %x13, %x13, %x11;
    st.global.u64 [%x0], %x12;
    st.global.u64 [%x0+8], %x13;
    mov.u32 %r11, %smid;
    mov.u32 %r12, %nsmid;
    setp.lt.u32 %p0, %r11, %r12;
    selp.u32 %r13, 1, 0, %p0;
    mov.u32 %r14, %locality_domain_id;
    add.u32 %r13, %r13, %r14;
    st.global.u32 [%x0+16], %r13;
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(3, np.uint64))
    assert out[0] > 0
    assert out[1] > 0
    assert out[2] == 1


def test_a_bad_kernel_harms_only_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """It is none by its modifiers, which the load does not look at where they are many."""
    code = "    cp.async.wait_some;"
    bad = entry(code, "bad", 1)
    text = HEADER + entry(store("%r1"), "good", 1) + bad
    module = driver.Module(text)
    out = driver.Buffer(np.zeros(4, np.uint32))
    with pytest.raises(driver.CudaError) as caught:
        module.launch("bad", out)
    assert caught.value.status == driver.INVALID_PTX
    message = capfd.readouterr().err
    assert "cp.async.wait_some" in message
    assert f"line {text.split(chr(10)).index(code) + 1}" in message
    module.launch("good", out, block=(4,))
    assert list(out.read()) == [0, 1, 2, 3]


def test_mixed_control_flow_with_barriers_in_a_loop() -> None:
    """Warps leave a loop of barriers at different times."""
    body = f"""
    .shared .align 4 .u32 sum;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 st.shared.u32 [sum], 0;
    bar.sync 0;
    shr.u32 %r10, %r0, 5;
    mov.u32 %r11, 0;
loop:
    atom.shared.add.u32 %r12, [sum], 1;
    add.u32 %r11, %r11, 1;
    setp.gt.u32 %p1, %r11, %r10;
    @%p1 bra out;
    bar.sync 0;
    bra loop;
out:
    setp.ne.u32 %p2, %r10, 3;
    @%p2 ret;
    ld.shared.u32 %r13, [sum];
{store("%r13")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(128, np.uint32), block=(128,))
    assert out[127] == 32 * (1 + 2 + 3 + 4)
