"""atom and red: many threads of many blocks on few places, every operation and type."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest

from . import driver
from .ptx import entry, kernel, store

BLOCKS, THREADS = 8, 96
COUNT = BLOCKS * THREADS

# What remains at the place after every thread's operation, whatever the order; values are 1 to COUNT.
Folding = Callable[[list[int], int], int]


def fold(operation: Callable[[int, int], int]) -> Folding:
    return lambda values, start: reduce(operation, values, start)


OPERATIONS: dict[str, tuple[list[str], int, Folding]] = {
    "add": (["u32", "s32", "u64"], 5, fold(lambda x, y: x + y)),
    "min": (["u32", "s32", "u64", "s64"], 300, fold(min)),
    "max": (["u32", "s32", "u64", "s64"], 300, fold(max)),
    "and": (["b32", "b64"], 0xFFFF, fold(lambda x, y: x & (y | 0x8000))),
    "or": (["b32", "b64"], 1 << 12, fold(lambda x, y: x | y)),
    "xor": (["b32", "b64"], 7, fold(lambda x, y: x ^ y)),
    "inc": (["u32"], 0, lambda values, start: len(values) % 101),
    "dec": (["u32"], 0, lambda values, start: (-len(values)) % 101),
}


def rows() -> list[tuple[str, str, str, str]]:
    found = []
    for name, (types, _, _) in OPERATIONS.items():
        for type_ in types:
            for form in ("atom", "red"):
                for space in ("global", "shared", "generic"):
                    found.append((form, name, type_, space))
    return found


def source(form: str, name: str, type_: str, space: str) -> str:
    """Every thread applies its 1-based index. Shared: one block, on a tile copied in and out by thread 0."""
    wide = type_.endswith("64")
    value = "%x10" if wide else "%r10"
    index = "add.u32 %r10, %r1, 1;"
    if name == "and":
        index += " or.b32 %r10, %r10, 0x8000;"
    if name in ("inc", "dec"):
        index = "mov.u32 %r10, 100;"
    if wide:
        index += " cvt.u64.u32 %x10, %r10;"
    bits = "64" if wide else "32"
    register = "%x11" if wide else "%r11"
    memory = f"b{bits}"
    where = {"global": ".global", "shared": ".shared", "generic": ""}[space]
    place = "[%r12]" if space == "shared" else "[%x0]"
    result = f"{register}, " if form == "atom" else ""
    operation = f"    {form}{where}.{name}.{type_} {result}{place}, {value};"
    if space != "shared":
        return entry(f"    {index}\n{operation}", f"{form}_{name}_{type_}_{space}", pointers=1)
    body = f"""
    .shared .align 8 .b8 tile[8];
    {index}
    mov.u32 %r12, tile;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra begin;
    ld.global.{memory} {register}, [%x0];
    st.shared.{memory} [%r12], {register};
begin:
    bar.sync 0;
{operation}
    bar.sync 0;
    @%p0 bra end;
    ld.shared.{memory} {register}, [%r12];
    st.global.{memory} [%x0], {register};
end:
    """
    return entry(body, f"{form}_{name}_{type_}_{space}", pointers=1)


@pytest.fixture(scope="module")
def integer_module() -> driver.Module:
    return driver.Module(kernel("", "unused", 1) + "".join(source(*row) for row in rows()))


@pytest.mark.some(60)
@pytest.mark.parametrize(("form", "name", "type_", "space"), rows())
def test_integers(integer_module: driver.Module, form: str, name: str, type_: str, space: str) -> None:
    _, start, folding = OPERATIONS[name]
    place = driver.Buffer(np.array([start], dtype=f"u{int(type_[1:]) // 8}"))
    blocks = 1 if space == "shared" else BLOCKS
    integer_module.launch(f"{form}_{name}_{type_}_{space}", place, grid=(blocks,), block=(THREADS,))
    values = list(range(1, blocks * THREADS + 1))
    assert int(place.read()[0]) == folding(values, start) % (1 << int(type_[1:]))


FLOATS = ["f32", "f64"]


@pytest.mark.parametrize("form", ["atom", "red"])
@pytest.mark.parametrize("type_", FLOATS)
def test_float_add(form: str, type_: str) -> None:
    """Small whole numbers, so that the order does not matter."""
    value, result = ("%f0", "%f1, ") if type_ == "f32" else ("%g0", "%g1, ")
    body = f"""
    add.u32 %r10, %r1, 1;
    cvt.rn.{type_}.u32 {value}, %r10;
    {form}.global.add.{type_} {result if form == "atom" else ""}[%x0], {value};
    """
    (out,) = driver.run(
        kernel(body, pointers=1),
        "k",
        np.array([0.5], f"f{int(type_[1:]) // 8}"),
        grid=(BLOCKS,),
        block=(THREADS,),
    )
    assert out[0] == 0.5 + COUNT * (COUNT + 1) / 2


def test_subnormals_are_kept_in_shared_memory_alone() -> None:
    """PTX: "atom.add.f32 on global memory flushes subnormal inputs and results to sign-preserving zero;
    whereas, atom.add.f32 on shared memory supports subnormal inputs and results", also by generic addresses.
    """
    body = """
    .shared .align 4 .b8 tile[8];
    mov.b32 %f0, 0x80000003;
    mov.u32 %r10, tile;
    mov.u64 %x10, tile;
    cvta.shared.u64 %x10, %x10;
    st.shared.v2.b32 [%r10], {%f0, %f0};
    atom.global.add.f32 %f1, [%x0], %f0;
    atom.add.f32 %f1, [%x0+4], %f0;
    red.global.add.noftz.f32 [%x0+8], %f0;
    atom.shared.add.f32 %f1, [%r10], %f0;
    red.add.f32 [%x10+4], %f0;
    ld.shared.v2.b32 {%f2, %f3}, [%r10];
    st.global.b32 [%x0+12], %f2;
    st.global.b32 [%x0+16], %f3;
    """
    (out,) = driver.run(kernel(body, pointers=1), "k", np.full(5, 0x80000002, np.uint32))
    assert out.tolist() == [0x80000000, 0x80000000, 0x80000005, 0x80000006, 0x80000006]


@pytest.mark.parametrize("type_", ["f16", "f16x2", "bf16x2"])
def test_half_add(type_: str) -> None:
    ones = {"f16": "0x3C00", "f16x2": "0x3C003C00", "bf16x2": "0x3F803F80"}[type_]
    bits, register = ("16", "%h0") if type_ == "f16" else ("32", "%r10")
    suffix = ".noftz." + type_
    body = f"    mov.b{bits} {register}, {ones};\n    red.global.add{suffix} [%x0], {register};"
    (out,) = driver.run(kernel(body, pointers=1), "k", np.zeros(1, np.uint32), grid=(2,), block=(64,))
    # 128: 0x5800 in f16, 0x4300 in bf16
    assert out[0] == {"f16": 0x5800, "f16x2": 0x58005800, "bf16x2": 0x43004300}[type_]


@pytest.mark.parametrize("bits", [32, 64])
def test_exchange_hands_every_value_on(bits: int) -> None:
    register, result = ("%r10", "%r11") if bits == 32 else ("%x10", "%x11")
    widen = "" if bits == 32 else "    cvt.u64.u32 %x10, %r10;\n"
    body = f"""
    add.u32 %r10, %r1, 1;
{widen}
    atom.global.exch.b{bits} {result}, [%x1], {register};
{store(result, type_=f"u{bits}")}
    """
    seen, place = driver.run(
        kernel(body),
        "k",
        np.zeros(COUNT, f"u{bits // 8}"),
        np.zeros(1, f"u{bits // 8}"),
        grid=(BLOCKS,),
        block=(THREADS,),
    )
    assert sorted([*seen, *place]) == list(range(COUNT + 1))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_compare_and_swap_as_a_counter(bits: int) -> None:
    old, new, seen = {16: ("%h0", "%h1", "%h2"), 32: ("%r10", "%r11", "%r12"), 64: ("%x10", "%x11", "%x12")}[
        bits
    ]
    body = f"""
    ld.volatile.global.b{bits} {old}, [%x0];
again:
    add.u{bits} {new}, {old}, 1;
    atom.global.cas.b{bits} {seen}, [%x0], {old}, {new};
    setp.ne.s{bits} %p0, {seen}, {old};
    mov.b{bits} {old}, {seen};
    @%p0 bra again;
    """
    (out,) = driver.run(
        kernel(body, pointers=1), "k", np.zeros(4, f"u{bits // 8}"), grid=(BLOCKS,), block=(THREADS,)
    )
    assert out[0] == COUNT


def test_atomics_return_what_was_there() -> None:
    body = f"    atom.global.add.u32 %r10, [%x1], 1;\n{store('%r10')}"
    seen, _ = driver.run(
        kernel(body),
        "k",
        np.zeros(COUNT, np.uint32),
        np.zeros(1, np.uint32),
        grid=(BLOCKS,),
        block=(THREADS,),
    )
    assert sorted(seen) == list(range(COUNT))


def test_spin_lock_between_blocks() -> None:
    """A critical section with plain accesses: lost updates would show."""
    body = """
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra end;
again:
    atom.acquire.gpu.global.cas.b32 %r10, [%x1], 0, 1;
    setp.ne.u32 %p0, %r10, 0;
    @%p0 bra again;
    ld.volatile.global.u32 %r11, [%x0];
    add.u32 %r11, %r11, 1;
    st.volatile.global.u32 [%x0], %r11;
    membar.gl;
    atom.release.gpu.global.exch.b32 %r10, [%x1], 0;
end:
    """
    out, _ = driver.run(
        kernel(body), "k", np.zeros(1, np.uint32), np.zeros(1, np.uint32), grid=(200,), block=(32,)
    )
    assert out[0] == 200


@pytest.mark.parametrize(
    "operation", ["atom.relaxed.gpu.global.add.u32", "atom.acq_rel.sys.add.u32", "atom.global.cta.add.u32"]
)
def test_scopes_and_orders(operation: str) -> None:
    (out,) = driver.run(
        kernel(f"    {operation} %r10, [%x0], 2;", pointers=1),
        "k",
        np.zeros(1, np.uint32),
        grid=(BLOCKS,),
        block=(THREADS,),
    )
    assert out[0] == 2 * COUNT
