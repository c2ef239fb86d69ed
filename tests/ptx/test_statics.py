"""Declarations of variables that live as long as the module: several with initial values, ranges, those that
a function has of its own."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from gpuferry.native.simdevice.ptx import PtxError, check_bodies, parse

from . import driver
from .ptx import HEADER, UNITS, entry, kernel, load, store


def read(module: driver.Module, name: str, type_: type) -> np.ndarray:
    address, size = module.variable(name)
    out: np.ndarray = np.empty(size // np.dtype(type_).itemsize, type_)
    driver.call(
        "cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(size)
    )
    return out


def test_each_of_several_variables_has_its_values() -> None:
    text = f"""{HEADER}
.visible .global .u32 a = 1, b[3] = {{2, 3}}, c, d[2][2] = {{{{4}}, {{5, 6}}}},
    e = (7 + 1) * 2;
.visible .const .f32 f = 1.5, g[2] = {{0f40000000, 3.0}};
.visible .global .u64 h = generic(b) + 4, i[2] = {{b, 9}};
{entry("", "k", 1)}"""
    module = driver.Module(text)
    assert {name: read(module, name, np.uint32).tolist() for name in "abcde"} == {
        "a": [1],
        "b": [2, 3, 0],
        "c": [0],
        "d": [4, 0, 5, 6],
        "e": [16],
    }
    assert {name: read(module, name, np.float32).tolist() for name in "fg"} == {"f": [1.5], "g": [2.0, 3.0]}
    address = module.variable("b")[0]
    assert read(module, "h", np.uint64).tolist() == [address + 4]
    assert read(module, "i", np.uint64).tolist() == [address, 9]


def test_an_address_in_part() -> None:
    """The lower half of it in 32 bits, and single bytes beside others: nothing else is written."""
    text = f"""{HEADER}
.visible .global .align 8 .u32 a[2];
.visible .global .u32 half[3] = {{1, a + 4, 2}}, byte[2] = {{0xFF00(a), 3}};
.visible .global .u8 bytes[4] = {{0xFF(generic(a) + 4), 0xFF00(a), 0xFF0000(a), 9}};
{entry("", "k", 1)}"""
    module = driver.Module(text)
    address = module.variable("a")[0]
    assert read(module, "half", np.uint32).tolist() == [1, (address + 4) & 0xFFFFFFFF, 2]
    assert read(module, "byte", np.uint32).tolist() == [address >> 8 & 255, 3]
    expected = [(address + 4) & 255, address >> 8 & 255, address >> 16 & 255, 9]
    assert read(module, "bytes", np.uint8).tolist() == expected


def test_the_size_of_a_warp_stands_for_a_number() -> None:
    text = f"""{HEADER}
.visible .global .align WARP_SZ .u32 a[WARP_SZ] = {{WARP_SZ, WARP_SZ / 2 - 1}}, b = WARP_SZ;
.shared .u64 waiting[WARP_SZ];
{entry(".reg .b32 each<WARP_SZ>; mov.u32 each31, waiting; st.shared.u64 [each31+WARP_SZ], 1;", "k", 0)}"""
    module = driver.Module(text)
    module.launch("k")
    assert read(module, "a", np.uint32).tolist() == [32, 15, *[0] * 30]
    assert read(module, "b", np.uint32).tolist() == [32]
    assert parse(text).kernels[0].shared_static == 256


def test_a_line_behind_initial_values_is_known() -> None:
    with pytest.raises(PtxError) as caught:
        parse(f"{HEADER}.global .u32 a = 1,\n  b[2] = {{1,\n 2}},\n c$ = 3, 4 = 5;\n")
    assert caught.value.line == HEADER.count("\n") + 4


def test_a_range_of_variables() -> None:
    module_text = """
.visible .global .align 16 .u32 v<3>;
.visible .global .v2 .u32 w<2>, x = {7, 8};
.shared .u32 s<2>;
"""
    body = f"""
    st.global.u32 [v1], 5;
    st.global.v2.u32 [w1], {{6, 7}};
    mov.u32 %r10, s1;
    st.shared.u32 [s0], 9;
    st.shared.u32 [s1], 8;
    ld.shared.u32 %r11, [s0];
    ld.shared.u32 %r12, [%r10];
    mad.lo.u32 %r14, %r11, 10, %r12;
{store("%r14")}
    """
    module = driver.Module(kernel(body, pointers=1, module=module_text))
    out = driver.Buffer(np.zeros(1, np.uint32))
    module.launch("k", out)
    assert out.read().tolist() == [98]
    assert [read(module, f"v{i}", np.uint32).tolist() for i in range(3)] == [[0], [5], [0]]
    assert [module.variable(f"v{i}")[0] % 16 for i in range(3)] == [0, 0, 0]
    assert [read(module, f"w{i}", np.uint32).tolist() for i in range(2)] == [[0, 0], [6, 7]]
    assert read(module, "x", np.uint32).tolist() == [7, 8]
    with pytest.raises(driver.CudaError):
        module.variable("v3")


def test_names_that_begin_with_a_percent_sign() -> None:
    module = """
.global .u32 %g = 3;
.shared .u32 %s;
.func (.param .b32 r) %f(.param .b32 n)
{ .reg .b32 %r; ld.param.b32 %r, [n]; add.u32 %r, %r, 1; st.param.b32 [r], %r; ret; }
.global .u64 table[2] = {%f, %g};
"""
    body = f"""
    st.shared.u32 [%s], 20;
    ld.global.u64 %x10, [table+8];
    ld.global.u32 %r10, [%x10];
    ld.shared.u32 %r11, [%s];
    add.u32 %r10, %r10, %r11;
    ld.global.u64 %x10, [table];
    {{
        .param .b32 a; .param .b32 b;
        st.param.b32 [a], %r10;
        call (b), %x10, (a), table;
        call (a), %f, (b);
        ld.param.b32 %r10, [a];
    }}
{store("%r10")}
    """
    (out,) = driver.run(kernel(body, pointers=1, module=module), "k", np.zeros(1, np.uint32))
    assert out.tolist() == [25]


OWN = """
.visible .global .u32 shared_name = 100;
.func (.param .b32 result) count()
{
    .reg .b32 %r<3>;
    .global .u32 calls = 10;
    ld.global.u32 %r0, [calls];
    add.u32 %r1, %r0, 1;
    st.global.u32 [calls], %r1;
    st.param.b32 [result], %r0;
    ret;
}
"""


def test_a_function_has_variables_of_its_own() -> None:
    """Two functions have one name for them, which the module has for another; they outlive a launch."""
    body = f"""
    .global .align 8 .u32 calls[4] = {{1, 2, 3}}, shared_name = 7;
    {{
        .const .u64 where = calls;
        ld.const.u64 %x10, [where];
    }}
    {{
        .param .b32 out;
        call.uni (out), count, ();
        ld.param.b32 %r10, [out];
    }}
    ld.global.u32 %r11, [calls+4];
    ld.global.u32 %r12, [%x10+8];
    ld.global.u32 %r13, [shared_name];
    mad.lo.u32 %r14, %r11, 1000, %r10;
    mad.lo.u32 %r14, %r12, 100000, %r14;
    mad.lo.u32 %r14, %r13, 1000000, %r14;
    st.global.u32 [shared_name], 8;
{store("%r14")}
    """
    module = driver.Module(kernel(body, pointers=1, module=OWN))
    out = driver.Buffer(np.zeros(1, np.uint32))
    for expected in (7302010, 8302011):
        module.launch("k", out)
        assert out.read().tolist() == [expected]
    assert read(module, "shared_name", np.uint32).tolist() == [100]
    with pytest.raises(driver.CudaError):
        module.variable("calls")


def test_a_function_that_waits_has_variables_of_its_own() -> None:
    """It would become part of its caller (inline.py), where the name means something else."""
    function = """
.func wait(.param .b64 flag)
{
    .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %x;
    .global .u32 own = 5;
    ld.param.u64 %x, [flag];
again:
    ld.volatile.global.u32 %r0, [%x];
    setp.eq.u32 %p, %r0, 0;
    @%p bra again;
    ld.global.u32 %r1, [own];
    st.global.u32 [%x], %r1;
    ret;
}
"""
    body = f"""
    .global .u32 own = 6;
    bar.warp.sync -1;
{{ .param .b64 flag; st.param.b64 [flag], %x1; call.uni wait, (flag); }}
{load("%r10")}
    ld.global.u32 %r11, [own];
    mad.lo.u32 %r10, %r10, 10, %r11;
{store("%r10")}
    """
    text = kernel(body, module=function)
    out, _ = driver.run(text, "k", np.zeros(1, np.uint32), np.ones(1, np.uint32))
    assert out.tolist() == [56]


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        (".global .u32 a<3> = 5;", "a range of variables has no initial values"),
        (".global .u32 a<3>[2];", "unexpected"),
        (".global .u32 a<70000>;", "too many variables"),
        (".global .u32 a = 1 b = 2;", "not an initialiser"),
        (".global .u32 a = 1, a = 2;", "defined twice"),
        (".global .u32 a<2>, a1;", "defined twice"),
        (".global .u32 a[2] = {1, 2, 3}, b = 1;", "more initial values"),
    ],
)
def test_what_is_none_is_refused(declaration: str, reason: str) -> None:
    for text in (f"{HEADER}{declaration}\n", HEADER + entry(f"    {declaration}", "k", 1)):
        with pytest.raises(PtxError) as caught:
            judge(text)
        assert reason in caught.value.reason


def judge(text: str) -> None:
    module = parse(text)
    assert module.variables
    check_bodies(module)


@pytest.mark.parametrize("unit", UNITS)
def test_shared_variables_of_one_name_in_two_scopes(unit: str) -> None:
    """Each has its own memory and size."""
    body = f"""{UNITS[unit]}
    {{
        .shared .align 4 .b8 part[256];
        st.shared.u32 [part+252], 7;
        mov.u32 %r10, part;
    }}
    {{
        .shared .align 4 .b32 part;
        st.shared.u32 [part], 9;
        mov.u32 %r11, part;
    }}
    bar.sync 0;
    ld.shared.u32 %r12, [%r10+252];
    ld.shared.u32 %r13, [%r11];
    mad.lo.u32 %r12, %r12, 10, %r13;
    sub.u32 %r10, %r10, %r11;
    mad.lo.u32 %r12, %r12, 1000, %r10;
{store("%r12")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(2, np.uint32), block=(2,))
    assert out.tolist() == [79004] * 2


def test_shared_variables_lie_where_ptxas_puts_them() -> None:
    """By alignment, the largest first, then by size, the smallest first: LightGBM takes an array of 4-byte
    numbers for one of 8-byte ones, which it is behind an array of those."""
    names = ["word", "pairs", "flags", "half", "words"]
    asked = "\n".join(
        f"    mov.u32 %r{10 + i}, {name};\n{store(f'%r{10 + i}', index=str(i))}"
        for i, name in enumerate(names)
    )
    body = f"""
    .shared .align 4 .b8 words[256];
    .shared .align 1 .b8 flags[31];
    .shared .align 8 .b8 pairs[256];
    .shared .align 2 .b8 half[2];
    .shared .align 4 .b8 word[8];
{asked}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(5, np.uint32))
    assert (out - out[1]).tolist() == [256, 0, 522, 520, 264]
