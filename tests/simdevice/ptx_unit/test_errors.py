"""Refusals: PtxError with the kernel, the line and the reason, and never anything else."""

from __future__ import annotations

import contextlib
import random
import re

import pytest
from gpuferry.native.simdevice.ptx import (
    DefinedTwice,
    PtxError,
    check_calls,
    check_instructions,
    compile_kernel,
    link,
    parse,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from .sources import HEADER, SAXPY, kernel


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("frobnicate.u32 %r1, %r2;", "unknown instruction"),
        ("add.wibble.u32 %r1, %r2, %r3;", r"unknown modifier \.wibble"),
        ("add.u32.u32 %r1, %r2, %r3;", r"unknown modifier \.u32"),
        ("add.u32 %r1, %r2;", "2 operands"),
        ("add.u32 %r1, %r2, %nothing;", "%nothing is not declared"),
        ("add.u32 %r99, %r2, %r3;", "%r99 is not a register"),
        ("add.u32 %r1, %r2, 1.5;", "a float where an integer"),
        ("add.u32 %r1, %p1, %r2;", "a predicate where a number"),
        ("add.u32 7, %r2, %r3;", "a destination must be a register"),
        ("bra NOWHERE;", "no label NOWHERE"),
        ("L: bra L; L:", "defined twice"),
        ("ld.global.u32 %r1, [nobody];", "nobody is not declared"),
        ("ld.global.v4.u32 {%r1, %r2}, [%d1];", "a vector of 4"),
        ("lop3.b32 %r1, %r2, %r3, %r4, %r5;", "a constant"),
        ("call nobody;", "prototype or targets"),
        ("setp.lo.s32 %p1, %r1, %r2;", r"no \.lo"),
        ("cvt.s32.f32 %r1, %f1;", r"needs one of \.rni"),
        ("mul.wide.u64 %d1, %d2, %d3;", r"\.wide"),
        ("atom.global.frob.u32 %r1, [%d1], 1;", "needs one of"),
        ("}", "not a module directive"),
    ],
)
def test_reasons(body: str, reason: str) -> None:
    with pytest.raises(PtxError, match=reason):
        compile_kernel(parse(kernel(body)), "k")


def test_an_error_says_where() -> None:
    text = HEADER + ".entry first() { ret; }\n.entry second()\n{\n  frob.x.u32 1;\n  ret;\n}\n"
    module = parse(text)
    compile_kernel(module, "first")
    with pytest.raises(PtxError) as error:
        compile_kernel(module, "second")
    assert (error.value.kernel, error.value.line, error.value.text) == ("second", 7, "frob.x.u32")
    assert str(error.value) == "second: line 7: unknown instruction: frob.x.u32"


def test_no_such_kernel() -> None:
    with pytest.raises(PtxError, match="no such kernel"):
        compile_kernel(parse(SAXPY), "nobody")


def test_a_function_without_a_body() -> None:
    with pytest.raises(PtxError, match="not defined"):
        compile_kernel(parse(kernel("call f;", head=".extern .func f();")), "k")


def test_linking_two_definitions() -> None:
    text = f"{HEADER}.visible .func f() {{ ret; }}"
    with pytest.raises(DefinedTwice, match="'f' in 'two', first defined in 'one'"):
        link([parse(text, "one"), parse(text, "two")])


def attempt(text: str) -> None:
    """Whatever the text is, nothing but PtxError comes out."""
    with contextlib.suppress(PtxError):
        module = parse(text)
        _ = module.variables
        for info in module.kernels:
            compile_kernel(module, info.name)


@given(st.text())
def test_any_text(text: str) -> None:
    attempt(text)
    attempt(HEADER + text)


@settings(deadline=None, max_examples=150)
@given(st.text(alphabet='{}[]()<>;:,.=+-!@%|_ \n"/*0123456789abcdefxrpuU'))
def test_any_body(text: str) -> None:
    attempt(kernel(text))


_MIXED = kernel(
    """
    setp.lt.and.u32 %p1|%p2, %r1, %r2, !%p3;
    @!%p1 ld.global.v2.f32 {%f1, _}, [%d1+-8];
    { .param .b64 a; .param .b32 b; st.param.b64 [a+0], %d3; call (b), f, (a); ld.param.b32 %r5, [b+0]; }
    mov.b64 %d4, {%r1, %r2};
    mov.u64 %d5, table+4;
    mad.wide.s32 %d6, %r1, (3 + 1) << 2, %d5;
    T: .branchtargets A, B;
    brx.idx %r3, T;
    A: cvt.rn.f32.s32 %f2, %r1;
    B: atom.shared.add.f32 %f3, [buffer+4], 0f3F800000;
    """,
    head="""
    .const .align 8 .b8 table[16] = {1, 2, 0xFF(f), 4};
    .shared .align 4 .b8 buffer[64];
    .func (.param .b32 r) f (.param .b64 p) { .reg .b32 x; mov.u32 x, 5; st.param.b32 [r], x; ret; }
    """,
)
_PIECES = re.compile(r"[\w.%$]+|[^\w\s]")


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32))
def test_mutations(seed: int) -> None:
    """Pieces of PTX dropped, doubled, exchanged or replaced by others."""
    choose = random.Random(seed)
    text = choose.choice([_MIXED, SAXPY])
    others = _PIECES.findall(_MIXED + SAXPY)
    for _ in range(choose.choice([1, 1, 2, 4])):
        places = [match.span() for match in _PIECES.finditer(text)]
        start, end = choose.choice(places)
        replacement = choose.choice(
            ["", text[start:end] * 2, choose.choice(others), f" {choose.choice(others)} "]
        )
        text = text[:start] + replacement + text[end:]
    attempt(text)


def test_deep_nesting() -> None:
    attempt(kernel("{" * 3000 + "}" * 3000))
    attempt(kernel("add.u32 %r1, %r2, " + "(" * 3000 + "1" + ")" * 3000 + ";"))
    attempt(kernel("mov.b64 %d1, " + "{" * 3000 + "%r1" + "}" * 3000 + ";"))
    attempt(HEADER + ".global .u32 x = " + "-" * 5000 + "1;")


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned"),
        (
            "@%p1 wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %d1, %d2, 1, 1, 1, 0, 0;",
            "wgmma.mma_async",
        ),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;", "tcgen05.alloc.cta_group::1"),
        ("multimem.red.relaxed.sys.global.add.u32 [%d1], %r1;", "multimem.red.relaxed"),
        (
            "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%d1, {%r1, %r1, %r1}], {%h1};",
            "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d1, {%r1, %r1}], [%r2];",
            "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4",
        ),
        (
            "tensormap.replace.tile.global_address.global.b1024.b64 [%d1], %d2;",
            "tensormap.replace",
        ),
        (
            "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
            " {%f1}, {%r1};",
            "mma.sp::ordered_metadata.sync",
        ),
    ],
)
def test_instructions_that_do_not_exist_here_are_found_in_the_text(instruction: str, name: str) -> None:
    module = parse(kernel(f"mov.u32 %r1, 1;\n{instruction}").replace(".visible", "// wgmma.x\n.visible"))
    with pytest.raises(PtxError, match=re.escape(f"'{name}")) as error:
        check_instructions(module)
    assert (error.value.kernel, error.value.line) == ("k", 10)


def test_a_kernel_whose_launch_would_count_clusters() -> None:
    asked = kernel("").replace("{", ".reqntid 32 .reqnctapercluster 2 .blocksareclusters\n{", 1)
    with pytest.raises(PtxError, match="counts blocks here") as error:
        check_instructions(parse(asked))
    assert error.value.kernel == "k"


def test_their_names_elsewhere_are_no_instructions() -> None:
    head = ".global .u32 wgmma; .extern .func tcgen05(); /* multimem.red */ .global .u32 _Z7wgmma;"
    body = "mov.u64 %d1, wgmma; cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 16;"
    body += "ld.global.u32 %r1, [wgmma+4];"
    check_instructions(parse(kernel(body, head=head)))


def test_functions_that_nobody_defines() -> None:
    declared = ".extern .func unused(); .extern .func (.param .b32 _) vprintf(.param .b64 a, .param .b64 b);"
    check_calls(parse(kernel("", head=declared)))
    with pytest.raises(PtxError, match="Unresolved extern function 'f'"):
        check_calls(parse(kernel("call f;", head=declared + ".extern .func f();")))
    head = ".extern .func (.param .b64 b) cudaGetParameterBufferV2();"
    with pytest.raises(PtxError, match=r"'cudaGetParameterBufferV2' \(kernels that launch kernels"):
        check_calls(parse(kernel(".param .b64 b; call (b), cudaGetParameterBufferV2, ();", head=head)))
