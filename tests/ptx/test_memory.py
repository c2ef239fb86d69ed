"""Loads and stores: widths, vectors, state spaces, generic addresses, module variables, cp.async."""

from __future__ import annotations

import numpy as np
import pytest

from . import driver
from .ptx import APART, entry, kernel, load, store

RNG = np.random.default_rng(7)


MOVES = [
    (type_, lanes)
    for type_ in ("u8", "s8", "u16", "s16", "u32", "u64", "f32", "f64")
    for lanes in (1, 2, 4)
    if int(type_[1:]) * lanes <= 128
]


@pytest.mark.parametrize(("type_", "lanes"), MOVES)
def test_vector_moves(type_: str, lanes: int) -> None:
    bits = int(type_[1:])
    prefix = (
        {8: "%h", 16: "%h", 32: "%r1", 64: "%x1"}[bits] if type_[0] != "f" else {32: "%f", 64: "%g"}[bits]
    )
    names = [f"{prefix}{i}" for i in range(lanes)]
    vector = f".v{lanes}" if lanes > 1 else ""
    operands = f"{{{', '.join(names)}}}" if lanes > 1 else names[0]
    size = bits // 8 * lanes
    body = f"""
    mad.wide.u32 %x20, %r1, {size}, %x1;
    mad.wide.u32 %x21, %r1, {size}, %x0;
    ld.global{vector}.{type_} {operands}, [%x20];
    st.global{vector}.{type_} [%x21], {operands};
    """
    data = RNG.integers(0, 256, 64 * size, dtype=np.uint8)
    out, _ = driver.run(kernel(body), "k", np.zeros_like(data), data, block=(64,))
    assert (out == data).all()


@pytest.mark.parametrize("before", ["", "    bar.sync 0;\n", APART], ids=["loop", "warps", "threads"])
@pytest.mark.parametrize("how", ["", ".relaxed.gpu"])
def test_elements_that_a_store_leaves_out(before: str, how: str) -> None:
    """Nothing is written where a vector of 32 bytes has `_`; of threads with odd numbers nothing at all."""
    body = f"""{before}
    and.b32 %r10, %r0, 1;
    setp.eq.u32 %p0, %r10, 0;
    mad.wide.u32 %x10, %r1, 32, %x0;
    mad.wide.u32 %x11, %r1, 32, %x1;
    add.u32 %r11, %r1, 100;
    cvt.u64.u32 %x12, %r11;
    @%p0 st{how}.global.v8.b32 [%x10], {{%r1, _, %r11, _, _, 7, _, %r11}};
    @%p0 st{how}.global.v4.b64 [%x11], {{_, %x12, _, %x12}};
    """
    words, pairs = np.full((64, 8), 9, np.uint32), np.full((64, 4), 9, np.uint64)
    got_words, got_pairs = driver.run(kernel(body), "k", words, pairs, grid=(2,), block=(32,))
    even = np.arange(0, 64, 2)
    for column, value in ((0, even), (2, even + 100), (5, 7), (7, even + 100)):
        words[::2, column] = value
    pairs[::2, 1::2] = even[:, None] + 100
    assert (got_words == words).all()
    assert (got_pairs == pairs).all()


@pytest.mark.parametrize(
    ("narrow", "dtype"), [("s8", np.int8), ("u8", np.uint8), ("s16", np.int16), ("u16", np.uint16)]
)
def test_narrow_loads_extend(narrow: str, dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    body = f"""
    mad.wide.u32 %x20, %r1, {size}, %x1;
    ld.global.{narrow} %r10, [%x20];
    {store("%r10")}
    """
    data = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 64, dtype=dtype, endpoint=True)
    out, _ = driver.run(kernel(body), "k", np.zeros(64, np.int32), data, block=(64,))
    assert (out == data.astype(np.int32)).all()


SPACES = """
    .shared .align 16 .b8 tile[1024];
    .local .align 16 .b8 own[64];
"""


@pytest.mark.parametrize("way", ["shared", "shared generic", "local", "local generic", "register base"])
def test_spaces(way: str) -> None:
    """Each thread writes to a place of its own in the space, and reads it back (shared: its neighbour's)."""
    shared = way.startswith("shared")
    generic = way.endswith("generic")
    space = "" if generic else ".shared" if shared else ".local"
    base = "mov.u64 %x10, tile;" if shared else "mov.u64 %x10, own;"
    if generic:
        base += f" cvta.{'shared' if shared else 'local'}.u64 %x10, %x10;"
    offset = (
        "shl.b32 %r10, %r0, 2; cvt.u64.u32 %x11, %r10; add.u64 %x11, %x10, %x11;"
        if shared
        else "add.u64 %x11, %x10, 12;"
    )
    neighbour = (
        "xor.b32 %r11, %r0, 1; shl.b32 %r11, %r11, 2; cvt.u64.u32 %x12, %r11; add.u64 %x12, %x10, %x12;"
        if shared
        else "mov.u64 %x12, %x11;"
    )
    body = f"""{SPACES}
    {base}
    {offset}
    {load("%r12")}
    st{space}.u32 [%x11], %r12;
    bar.sync 0;
    {neighbour}
    ld{space}.u32 %r13, [%x12];
    {store("%r13")}
    """
    data = RNG.integers(0, 1 << 32, 128, dtype=np.uint32)
    out, _ = driver.run(kernel(body), "k", np.zeros_like(data), data, block=(128,))
    assert (out == (data.reshape(-1, 2)[:, ::-1].ravel() if shared else data)).all()


def test_dynamic_shared_memory_follows_the_static() -> None:
    body = f"""
    .shared .align 4 .b8 fixed[20];
    mov.u32 %r10, dynamic;
    shl.b32 %r11, %r0, 2;
    add.u32 %r10, %r10, %r11;
    mov.u32 %r15, fixed;
    st.shared.u32 [%r15+16], 77;
    {load("%r12")}
    st.shared.u32 [%r10], %r12;
    bar.sync 0;
    sub.u32 %r13, 63, %r0;
    shl.b32 %r13, %r13, 2;
    mov.u32 %r14, dynamic;
    add.u32 %r14, %r14, %r13;
    ld.shared.u32 %r12, [%r14];
    ld.shared.u32 %r16, [fixed+16];
    add.u32 %r12, %r12, %r16;
    {store("%r12")}
    """
    text = kernel(body, module=".extern .shared .align 16 .b8 dynamic[];\n")
    data = np.arange(64, dtype=np.uint32)
    module, out = driver.Module(text), driver.Buffer(np.zeros(64, np.uint32))
    module.launch("k", out, driver.Buffer(data), block=(64,), shared=256)
    assert (out.read() == data[::-1] + 77).all()


def test_external_shared_memory_of_a_size_is_the_kernels_own() -> None:
    """Taichi declares its shared arrays so, and launches with no dynamic shared memory."""
    body = f"""
    mov.u32 %r10, turned;
    shl.b32 %r11, %r0, 2;
    add.u32 %r10, %r10, %r11;
    {load("%r12")}
    st.shared.u32 [%r10], %r12;
    bar.sync 0;
    mov.u32 %r14, turned;
    sub.u32 %r14, %r14, %r11;
    ld.shared.u32 %r12, [%r14+252];
    st.shared.u32 [counted], 7;
    {store("%r12")}
    """
    text = kernel(body, module=".extern .shared .align 8 .b8 turned[256];\n.extern .shared .b32 counted;\n")
    data = np.arange(64, dtype=np.uint32)
    out, _ = driver.run(text, "k", np.zeros_like(data), data, block=(64,))
    assert (out == data[::-1]).all()


VARIABLES = """
.visible .global .align 4 .u32 counter = 41;
.visible .global .align 8 .u64 pointer = generic(table) + 8;
.visible .global .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};
.visible .const .align 8 .f64 half = 0d3FE0000000000000;
.visible .const .align 4 .f32 list[3] = {0f3F800000, 0f40000000, 0f40400000};
.visible .global .align 4 .u32 zeroed[8];
"""


def test_module_variables() -> None:
    body = """
    ld.global.u32 %r10, [counter];
    st.global.u32 [%x0], %r10;
    ld.global.u64 %x10, [pointer];
    ld.u32 %r11, [%x10];
    st.global.u32 [%x0+4], %r11;
    ld.const.f64 %g0, [half];
    cvt.rn.f32.f64 %f0, %g0;
    st.global.f32 [%x0+8], %f0;
    ld.const.f32 %f1, [list+8];
    st.global.f32 [%x0+12], %f1;
    mov.u64 %x11, zeroed;
    cvta.global.u64 %x11, %x11;
    ld.u32 %r12, [%x11+28];
    st.global.u32 [%x0+16], %r12;
    add.u32 %r10, %r10, 1;
    st.global.u32 [counter], %r10;
    """
    module = driver.Module(kernel(body, pointers=1, module=VARIABLES))
    out = driver.Buffer(np.zeros(5, np.uint32))
    module.launch("k", out)
    assert list(out.read()[[0, 1, 4]]) == [41, 3, 0]
    assert list(out.read().view(np.float32)[2:4]) == [0.5, 3.0]
    module.launch("k", out)
    assert out.read()[0] == 42
    assert module.variable("table")[1] == 16
    assert module.variable("zeroed")[1] == 32


def test_isspacep() -> None:
    body = f"""{SPACES}
    mov.u64 %x10, tile; cvta.shared.u64 %x10, %x10;
    mov.u64 %x11, own; cvta.local.u64 %x11, %x11;
    mov.u32 %r10, 0;
    isspacep.shared %p0, %x10; @%p0 or.b32 %r10, %r10, 1;
    isspacep.shared %p0, %x0; @%p0 or.b32 %r10, %r10, 2;
    isspacep.global %p0, %x0; @%p0 or.b32 %r10, %r10, 4;
    isspacep.global %p0, %x10; @%p0 or.b32 %r10, %r10, 8;
    isspacep.local %p0, %x11; @%p0 or.b32 %r10, %r10, 16;
    isspacep.local %p0, %x0; @%p0 or.b32 %r10, %r10, 32;
    {store("%r10")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1, np.uint32))
    assert out[0] == 1 | 4 | 16


@pytest.mark.parametrize("meet", ["", "bar.warp.sync -1;"])
def test_addresses_of_local_memory_in_32_bits(meet: str) -> None:
    """As LLVM forms them when it is asked for short pointers: Triton's device_print."""
    body = f"""
    .local .align 8 .b8 own[72]; .reg .b32 %SPL;
    mov.b32 %SPL, own;
    add.s32 %r10, %SPL, 8; cvt.u64.u32 %x10, %r10; cvta.local.u64 %x11, %x10;
    st.local.v2.b32 [%SPL+8], {{%r0, 5}};
    and.b32 %r11, %r0, 7; mad.lo.u32 %r11, %r11, 4, %r10; {meet}
    st.local.u32 [%r11+8], %r0; ld.local.u32 %r12, [%r11+8];
    ld.u32 %r13, [%x11]; add.u32 %r12, %r12, %r13; ld.u32 %r13, [%x11+4]; add.u32 %r12, %r12, %r13;
    mov.u64 %x12, own; cvta.local.u64 %x12, %x12; ld.u32 %r13, [%x12+8]; add.u32 %r12, %r12, %r13;
    cvta.to.local.u64 %x13, %x11; cvt.u32.u64 %r14, %x13; sub.u32 %r14, %r14, %r10; add.u32 %r12, %r12, %r14;
    {store("%r12")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(64, np.uint32), block=(64,))
    assert (out == 3 * np.arange(64) + 5).all()


def test_parameters_by_value() -> None:
    """Structures and scalars at their natural alignment."""
    text = """.version 8.8
.target sm_80
.address_size 64
.visible .entry k(.param .u8 a, .param .u16 b, .param .f64 c, .param .align 8 .b8 s[24], .param .u64 out)
{
    .reg .b16 %h<3>; .reg .b32 %r<4>; .reg .b64 %x<3>; .reg .f64 %g<3>;
    ld.param.u64 %x0, [out];
    ld.param.u8 %h0, [a]; cvt.u32.u16 %r0, %h0; st.global.u32 [%x0], %r0;
    ld.param.u16 %h1, [b]; cvt.u32.u16 %r1, %h1; st.global.u32 [%x0+4], %r1;
    ld.param.f64 %g0, [c]; st.global.f64 [%x0+8], %g0;
    ld.param.v2.u32 {%r2, %r3}, [s+8]; st.global.v2.u32 [%x0+16], {%r2, %r3};
    mov.b64 %x1, s; ld.param.u64 %x2, [%x1+16]; st.global.u64 [%x0+24], %x2;
    ret;
}"""
    structure = np.arange(24, dtype=np.uint8)
    out = driver.Buffer(np.zeros(32, np.uint8))
    driver.Module(text).launch(
        "k", np.uint8(200), np.uint16(60000), np.float64(2.5), structure.view("V24")[0], out
    )
    got = out.read()
    assert list(got[:8].view(np.uint32)) == [200, 60000]
    assert got[8:16].view(np.float64)[0] == 2.5
    assert (got[16:32] == structure[8:]).all()


def test_cp_async() -> None:
    body = """
    .shared .align 16 .b8 tile[1024];
    mad.wide.u32 %x10, %r0, 16, %x1;
    mov.u32 %r10, tile;
    mad.lo.u32 %r10, %r0, 16, %r10;
    cp.async.cg.shared.global [%r10], [%x10], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    xor.b32 %r11, %r0, 63;
    mov.u32 %r12, tile;
    mad.lo.u32 %r12, %r11, 16, %r12;
    ld.shared.v4.u32 {%r13, %r14, %r15, %r16}, [%r12];
    mad.wide.u32 %x11, %r0, 16, %x0;
    st.global.v4.u32 [%x11], {%r13, %r14, %r15, %r16};
    """
    data = np.arange(256, dtype=np.uint32).reshape(64, 4)
    out, _ = driver.run(kernel(body), "k", np.zeros_like(data), data, block=(64,))
    assert (out == data[::-1]).all()


def test_cache_and_order_modifiers() -> None:
    """They change how fast and in which order, not what."""
    loads = [
        "ld.global.nc.u32",
        "ld.volatile.global.u32",
        "ld.relaxed.gpu.global.u32",
        "ld.acquire.sys.global.u32",
        "ld.mmio.acquire.sys.global.u32",
        "ld.acquire.mmio.sys.global.u32",
        "ld.global.ca.u32",
        "ld.global.cg.u32",
        "ld.global.L1::evict_last.u32",
        "ldu.global.u32",
    ]
    stores = [
        "st.global.wb.u32",
        "st.volatile.global.u32",
        "st.relaxed.gpu.global.u32",
        "st.release.gpu.global.u32",
        "st.mmio.release.sys.global.u32",
        "st.global.cs.u32",
    ]
    kernels = [
        entry(
            f"    {ld} %r10, [%x1];\n    {st} [%x0], %r10;\n    membar.gl; fence.acq_rel.gpu; fence.sc.sys;",
            f"k{i}_{j}",
        )
        for i, ld in enumerate(loads)
        for j, st in enumerate(stores)
        if i == 0 or j == 0
    ]
    module = driver.Module(kernel("", "unused") + "".join(kernels))
    source = driver.Buffer(np.array([1234567], np.uint32))
    for i in range(len(loads)):
        for j in range(len(stores)):
            if i == 0 or j == 0:
                out = driver.Buffer(np.zeros(1, np.uint32))
                module.launch(f"k{i}_{j}", out, source)
                assert out.read()[0] == 1234567


def test_a_large_grid_touches_every_element() -> None:
    body = f"    {load('%r10')}\n    add.u32 %r10, %r10, 1;\n    {store('%r10')}"
    data = np.arange(1 << 18, dtype=np.uint32)
    out, _ = driver.run(kernel(body), "k", np.zeros_like(data), data, grid=(1 << 10,), block=(256,))
    assert (out == data + 1).all()


ELEMENTS = """
.global .align 4 .u32 words[4] = {10, 11, 12, 13};
.const .align 16 .v4 .u32 quads[2] = {20, 21, 22, 23, 24, 25, 26, 27};
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mov.u64 %x10, words[3]; ld.global.u32 %r10, [%x10];", 13),
        ("ld.global.u32 %r10, words[1+1];", 12),
        ("ld.global.u32 %r10, [words[2]];", 12),
        ("mov.u64 %x10, quads[1]; ld.const.u32 %r10, [%x10+4];", 25),
        (".local .u64 own[4]; mov.u32 %r11, 7; st.local.u32 [own+16], %r11; ld.local.u32 %r10, own[2];", 7),
        (".shared .u16 pair[4]; mov.u32 %r10, pair[3]; mov.u32 %r11, pair; sub.u32 %r10, %r10, %r11;", 6),
        (".shared .b8 bytes[4]; mov.u32 %r10, bytes[3]; mov.u32 %r11, bytes; sub.u32 %r10, %r10, %r11;", 3),
    ],
)
def test_elements_of_arrays_are_named_by_index(body: str, expected: int) -> None:
    """An index counts in elements, an offset in bytes."""
    ptx = kernel(f"    {body}\n    {store('%r10')}", pointers=1, module=ELEMENTS)
    (out,) = driver.run(ptx, "k", np.zeros(1, np.uint32))
    assert out[0] == expected


def test_a_register_is_no_array() -> None:
    with pytest.raises(driver.CudaError) as refused:
        driver.run(kernel("    ld.global.u32 %r10, [%x0[2]];", pointers=1), "k", np.zeros(1, np.uint32))
    assert refused.value.status == driver.INVALID_PTX


def test_a_percent_sign_is_a_letter_of_a_registers_name() -> None:
    body = "    .reg .b32 a, %a; mov.u32 a, 1; mov.u32 %a, 20; add.u32 %r10, a, %a;"
    (out,) = driver.run(kernel(f"{body}\n    {store('%r10')}", pointers=1), "k", np.zeros(1, np.uint32))
    assert out[0] == 21


def test_a_cluster_of_one_block() -> None:
    """mapa gives the block's own shared memory, and getctarank says 0 of what lies there."""
    body = f"""
    .shared .align 4 .b8 words[128];
    mov.u32 %r10, words;
    mad.lo.u32 %r10, %r0, 4, %r10;
    st.shared.u32 [%r10], %r0;
    mapa.shared::cluster.u32 %r11, %r10, %cluster_ctarank;
    ld.shared::cluster.u32 %r12, [%r11];
    cvt.u64.u32 %x5, %r10;
    cvta.shared.u64 %x5, %x5;
    mapa.u64 %x6, %x5, 0;
    ld.u32 %r13, [%x6];
    add.u32 %r12, %r12, %r13;
    getctarank.shared::cluster.u32 %r14, %r11;
    getctarank.u64 %r15, %x6;
    add.u32 %r12, %r12, %r14;
    add.u32 %r12, %r12, %r15;
    {store("%r12")}
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(32, np.uint32), block=(32,))
    assert out.tolist() == [2 * i for i in range(32)]


def test_variables_are_aligned_as_they_say() -> None:
    """Also what is dynamic, and by generic addresses: programs look at those."""
    module = """
    .global .b8 before[3];
    .global .align 1024 .b8 variable[4];
    .extern .shared .align 1024 .b8 dynamic[];
    """
    body = """
    .shared .b8 first[3];
    .shared .align 512 .b8 second[4];
    mov.u64 %x10, first;
    mov.u64 %x10, variable;
    mov.u64 %x11, second;
    cvta.shared.u64 %x11, %x11;
    mov.u64 %x12, dynamic;
    cvta.shared.u64 %x12, %x12;
    st.u32 [%x12+60], %r0;
    and.b64 %x10, %x10, 1023;
    and.b64 %x11, %x11, 511;
    and.b64 %x12, %x12, 1023;
    st.global.u64 [%x0], %x10;
    st.global.u64 [%x0+8], %x11;
    st.global.u64 [%x0+16], %x12;
    """
    text = kernel(body, pointers=1, module=module)
    (out,) = driver.run(text, "k", np.full(3, 7, np.uint64), shared=64)
    assert out.tolist() == [0, 0, 0]
