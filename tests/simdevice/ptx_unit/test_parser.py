"""What parse() finds in a module, without compiling."""

from __future__ import annotations

import pytest
from gpuferry.native.simdevice.ptx import PtxError, parse

from .sources import HEADER, SAXPY, kernel


def test_a_kernel_and_its_parameters() -> None:
    (info,) = parse(SAXPY).kernels
    assert info.name == "saxpy"
    assert info.params == ((0, 4, 4), (4, 4, 4), (8, 8, 8), (16, 8, 8))
    assert info.param_bytes == 24
    assert (info.ptx_version, info.binary_version) == (80, 80)
    assert info.registers > 0
    assert (info.shared_static, info.local_bytes, info.max_threads, info.required) == (0, 0, 0, (0, 0, 0))


def test_structures_and_pointer_attributes_in_parameters() -> None:
    parameters = (
        ".param .align 16 .b8 s[40], .param .u8 c, .param .u64 .ptr .global .align 4 p, .param .b16 h"
    )
    (info,) = parse(kernel("", parameters)).kernels
    assert info.params == ((0, 40, 16), (40, 1, 1), (48, 8, 8), (56, 2, 2))
    assert info.param_bytes == 58


def test_versions() -> None:
    module = parse(".version 7.5\n.target sm_90a, debug\n.address_size 64\n")
    assert (module.isa, module.target, module.target_name) == (75, 90, "sm_90a")
    assert module.kernels == ()


def test_launch_bounds() -> None:
    text = HEADER + ".entry a() .maxntid 32, 4 .minnctapersm 2 { ret; } .entry b() .reqntid 8, 8, 2 { ret; }"
    text += ".func (.param .b32 r) f() .local_maxnreg 64 { ret; }"  # __local_maxnreg__(64)
    text += ".entry c() .maxnreg 32 .minperctamemory 1024 .language 1 { ret; }"
    first, second, _ = parse(text).kernels
    assert (first.max_threads, first.required) == (128, (0, 0, 0))
    assert (second.max_threads, second.required) == (128, (8, 8, 2))


def test_clusters_that_kernels_ask_for() -> None:
    text = (
        HEADER
        + ".entry a() .reqnctapercluster 2, 4 { ret; } .entry b() .explicitcluster .maxclusterrank 3 { ret; }"
    )
    first, second = parse(text).kernels
    assert (first.cluster, first.most_cluster, first.explicit_cluster) == ((2, 4, 1), 0, False)
    assert (second.cluster, second.most_cluster, second.explicit_cluster) == ((0, 0, 0), 3, True)


def test_shared_memory_is_that_of_the_functions_reached() -> None:
    head = """
    .shared .align 8 .b8 used[24];
    .shared .align 8 .b8 unused[1000];
    .extern .shared .align 16 .b8 dynamic[];
    .func reached() { .shared .align 4 .b32 inner[3]; .reg .b32 %r<2>; ld.shared.u32 %r1, [used]; ret; }
    .func unreached() { .shared .b32 other[500]; ret; }
    """
    (info,) = parse(kernel(".shared .b8 own[3]; mov.u32 %r1, dynamic; call reached;", head=head)).kernels
    assert info.shared_static == 48  # 44, and what is dynamic begins behind it


@pytest.mark.parametrize(
    ("static", "align", "size"),
    [(0, 128, 0), (40, 4, 48), (40, 128, 128), (1000, 16, 1008), (1030, 128, 1152), (1030, 1024, 2048)],
)
def test_dynamic_shared_memory_begins_where_it_is_aligned(static: int, align: int, size: int) -> None:
    """The sizes are those that ptxas -v tells."""
    head = f".extern .shared .align {align} .b8 dynamic[];"
    own = f".shared .b8 own[{static}]; mov.u32 %r1, own;" if static else ""
    (info,) = parse(kernel(f"{own} mov.u32 %r2, dynamic;", head=head)).kernels
    assert info.shared_static == size


def test_variables() -> None:
    text = f"""{HEADER}
    .visible .global .align 4 .u32 zero;
    .const .align 4 .b8 table[8] = {{1, 2, 3, 255}};
    .global .attribute(.managed) .align 8 .f64 d = 0d3FF0000000000000;
    .global .u64 pointers[3] = {{generic(zero), table+4, 5}};
    .weak .global .align 2 .s16 matrix[2][3] = {{ {{1, -1, 2}}, {{3, 4, 5}} }};
    .extern .global .b8 elsewhere[4];
    .common .global .b32 common_one;
    .global .f32 floats[2] = {{1.5, 0fBF800000}};
    """
    zero, table, d, pointers, matrix, elsewhere, common, floats = parse(text).variables
    assert (zero.name, zero.size, zero.align, zero.initial, zero.linkage) == ("zero", 4, 4, None, "visible")
    assert table.initial == bytes([1, 2, 3, 255, 0, 0, 0, 0])
    assert table.is_const
    assert d.is_managed
    assert d.initial == bytes.fromhex("000000000000f03f")
    assert pointers.relocations == ((0, 0, 0, 0, 8), (8, 1, 4, 0, 8))
    assert pointers.initial == bytes(16) + bytes([5]) + bytes(7)
    assert matrix.initial == bytes.fromhex("0100ffff0200030004000500")
    assert (elsewhere.linkage, common.linkage) == ("extern", "common")
    assert floats.initial == bytes.fromhex("0000c03f000080bf")


def test_what_inner_braces_leave_out_is_zero() -> None:
    text = f"""{HEADER}
    .global .b8 rows[2][3] = {{{{1, 2}}, {{3}}}};
    .global .b8 open[][2] = {{{{1}}, {{2, 3}}, {{4}}}};
    .global .v2 .b8 pairs[3] = {{{{1}}, {{2, 3}}}};
    .global .b8 octal[3] = {{010, 017, 8}};
    .global .f32 floats[2] = {{.5, -(1.5)}};
    """
    rows, opened, pairs, octal, floats = (each.initial for each in parse(text).variables)
    assert rows == bytes([1, 2, 0, 3, 0, 0])
    assert opened == bytes([1, 0, 2, 3, 4, 0])
    assert pairs == bytes([1, 0, 2, 3, 0, 0])
    assert octal == bytes([8, 15, 8])
    assert floats == bytes.fromhex("0000003f0000c0bf")


@pytest.mark.parametrize(
    "declaration",
    [
        ".b8 a[2] = {1, 2, 3}",
        ".b8 a[2][2] = {{1, 2, 3}, {4}}",
        ".u32 a = {1, 2}",
        ".b8 a[][9999999999] = {{1}}",
    ],
)
def test_more_initial_values_than_there_is_room_for(declaration: str) -> None:
    with pytest.raises(PtxError, match="more initial values"):
        _ = parse(f"{HEADER}.global {declaration};").variables


def test_a_pragma_between_a_kernel_s_name_and_its_body() -> None:
    text = '.entry a .pragma "nounroll"; { ret; } .entry b() .maxntid 32 .pragma "x", "y;{"; { ret; }'
    first, second = parse(HEADER + '.pragma "nounroll";' + text).kernels
    assert (first.name, second.name, second.max_threads) == ("a", "b", 32)


def test_an_address_given_byte_by_byte() -> None:
    masks = ", ".join(f"{255 << 8 * byte:#x}(generic(target))" for byte in range(8))
    text = f"{HEADER}.global .b32 target;\n.global .align 8 .b8 p[16] = {{7, 0, 0, 0, 0, 0, 0, 0, {masks}}};"
    assert parse(text).variables[1].relocations == ((8, 0, 0, 0, 8),)


def test_functions_have_addresses_that_hold_for_every_kernel() -> None:
    text = f"{HEADER}.func f() {{ ret; }}\n.func g() {{ ret; }}\n.global .u64 table[2] = {{f, generic(g)}};"
    (table,) = parse(text).variables
    assert table.initial is not None
    first, second = (int.from_bytes(table.initial[at : at + 8], "little") for at in (0, 8))
    assert 0 < first < second
    assert table.relocations == ()


def test_braces_in_comments_and_strings() -> None:
    text = (
        HEADER
        + '.file 1 "a}{.cu"\n// } {\n.entry k() { /* } */ .pragma "no}unroll"; ret; }\n'
        + ".section .debug { {x} }\n"
    )
    assert [each.name for each in parse(text).kernels] == ["k"]


def test_a_definition_replaces_its_declaration() -> None:
    text = HEADER + ".entry k(.param .u32 n);\n.func f();\n.entry k(.param .u32 n) { call f; ret; }"
    (info,) = parse(text + "\n.func f() { ret; }").kernels
    assert info.param_bytes == 4


def test_unused_functions_are_not_parsed() -> None:
    module = parse(kernel("", head=".func broken() { this is not PTX; }"))
    assert len(module.kernels) == 1


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "there is no .version"),
        (".version 8.0\n", 1, "there is no .target"),
        (HEADER + ".address_size 32\n.global .u8 x;", 4, "64-bit"),
        (HEADER + "\n.entry k() {\n{ ret;\n}", 5, "not closed"),
        (HEADER + "garbage here;", 4, "not a module directive"),
        (HEADER + ".global .u31 x;", 4, "not a type"),
        (HEADER + ".global .align 3 .u32 x;", 4, "power of two"),
        (HEADER + ".global .u32 x;\n.global .u32 x;", 5, "defined twice"),
        (HEADER + ".global .u32 x = ", 4, "does not end"),
        (HEADER + ".entry k() .maxfoo 3 { ret; }", 4, "not a directive of a function"),
        ("\x7fELF\x02\x01", 1, "PTX token"),
    ],
)
def test_errors_name_the_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(PtxError, match=reason) as error:
        parse(text)
    assert error.value.line == line


def test_an_initialiser_that_names_nothing() -> None:
    with pytest.raises(PtxError, match="names nothing"):
        _ = parse(f"{HEADER}.global .u64 p = nobody;").variables
