"""A kernel that wants out of its local memory, or looks for what others left there (see test_escape.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpuferry.native.simdevice.ptx import compile_kernel, parse

from .escape import ILLEGAL, process
from .ptx import kernel

# The escape that was found: a kernel looked through its stack for addresses of the library, and wrote over a
# table of functions there. It begins at a local variable.
STACK = """
    .local .align 8 .b8 own[64];
    mov.u64 %x10, own;
    cvta.local.u64 %x11, %x10;
    mov.u32 %r10, 0;
    mov.u64 %x15, 0;
again:
    ld{space}.u64 %x12, [%x10];
    shr.u64 %x13, %x12, 40;
    setp.eq.u64 %p0, %x13, 0x7f;
    @%p0 mov.u64 %x15, %x12;
    add.u64 %x10, %x10, 8;
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p0, %r10, 16384;
    @%p0 bra again;
"""


@pytest.mark.parametrize("space", ["", ".local"])
def test_a_kernel_finds_no_way_out_of_its_local_memory(space: str) -> None:
    """Upwards from a local variable there is zeroed memory and then an end, and no address of the process."""
    body = STACK.replace("{space}", space)
    code = f"""
    for fibers in (False, True):
        attempt({body!r} + store("%x15", index="%r0", type_="u64"), fibers=fibers, block=(2,))
    """
    assert process(code) == [ILLEGAL, ILLEGAL]


@pytest.mark.parametrize("form", ["warp", "thread"])
def test_who_has_no_local_memory_finds_no_way_out_either(form: str, tmp_path: Path) -> None:
    """A limit of 0 bytes is one that a program may set: the room behind such an end is not all of memory."""
    code = """
    for body in ("ld.u64 %x10, [%x1];", "st.local.u64 [%x1], %x0;"):
        for fibers in (False, True):
            attempt("    " + body, at, fibers=fibers, stack=0, block=(32,))
    """
    lines = process(code, GPUFERRY_SIM_UNIT=form, GPUFERRY_SIM_CACHE=str(tmp_path))
    assert lines == [ILLEGAL] * 4


def test_below_its_local_memory_is_nothing_either() -> None:
    body = STACK.replace("{space}", "").replace("add.u64 %x10, %x10, 8", "sub.u64 %x10, %x10, 8")
    assert process(f"attempt({body!r})") == [ILLEGAL]


WORDS = 24
# Of a function that LLVM does not take into the kernel: it calls itself.
GIVEN = f"""
.func (.param .b64 r) all(.param .align 8 .b8 given[{8 * WORDS}], .param .b64 n) {{
    .reg .b64 %d<4>; .reg .pred %q; ld.param.u64 %d1, [n]; mov.u64 %d0, 0;
    {"".join(f"ld.param.u64 %d2, [given+{8 * i}]; or.b64 %d0, %d0, %d2;" for i in range(WORDS))}
    setp.eq.u64 %q, %d1, 77; @%q call (r), all, (given, n); st.param.b64 [r], %d0; ret;
}}
"""
UNWRITTEN = {
    "a variable": f".local .align 8 .b8 own[{8 * WORDS}]; mov.u64 %x10, 0;"
    + "".join(f"ld.volatile.local.u64 %x11, [own+{8 * i}]; or.b64 %x10, %x10, %x11;" for i in range(WORDS)),
    "an argument": f"{{ .param .align 8 .b8 a[{8 * WORDS}]; .param .b64 n; .param .b64 r;"
    " st.param.b64 [n], 5; call (r), all, (a, n); ld.param.b64 %x10, [r]; }",
}


@pytest.mark.parametrize("form", ["warp", "thread"])
def test_what_it_has_not_written_gives_nothing_away(form: str, tmp_path: Path) -> None:
    """On the machine's stack, where addresses of the library lay."""
    code = f"""
    for body in {list(UNWRITTEN.values())!r}:
        body = "    " + body + store("%x10", index="%r0", type_="u64")
        attempt(body, module={GIVEN!r}, block=(32,))
    """
    lines = process(code, GPUFERRY_SIM_UNIT=form, GPUFERRY_SIM_CACHE=str(tmp_path))
    assert lines == ["ran 0 0 0 0"] * len(UNWRITTEN)


NAMED = "vote.sync.any.pred %p1, %p1, -1; .local .align 16 .b8 own[16];"


@pytest.mark.some(2)
@pytest.mark.parametrize("check", ["0", "1"])
@pytest.mark.parametrize("form", ["warp", "thread"])
def test_a_local_variable_is_a_kernels_own_by_name(form: str, check: str, tmp_path: Path) -> None:
    """Whose address nobody takes: it lies on the machine's stack. At its end there is another lane's."""
    lines = process(
        f"""
        for at in (8, 4, 16):
            place = f"[own+{{at}}]"
            access = "st.local.v2.u32 " + place + ", {{%r0, %r1}};"
            access += "ld.local.v2.u32 {{%r10, %r11}}, " + place + ";"
            attempt({NAMED!r} + access + " st.global.u32 [%x0], %r10;", block=(32,))
        """,
        check,
        GPUFERRY_SIM_UNIT=form,
        GPUFERRY_SIM_CACHE=str(tmp_path),
    )
    assert [line.split()[0] for line in lines] == ["ran", "716", "700"]


@pytest.mark.parametrize("form", ["warp", "thread"])
def test_an_access_that_begins_in_a_variable_ends_in_it(form: str, tmp_path: Path) -> None:
    code = f"""
        attempt({NAMED!r} + "st.local.u64 [own+8], %x1; ld.local.v2.u64 {{%x10, %x11}}, [own];")
        attempt({NAMED.replace("own[16]", "own[12]")!r} + "st.local.u64 [own+8], %x1;", block=(32,))
    """
    lines = process(code, "0", GPUFERRY_SIM_UNIT=form, GPUFERRY_SIM_CACHE=str(tmp_path))
    assert [line.split()[0] for line in lines] == ["ran", ILLEGAL]


def test_recursion_ends_where_local_memory_does() -> None:
    function = """
    .func deep(.param .b64 n) {
        .local .align 8 .b8 own[4096]; .reg .b64 %d<4>; .param .b64 m;
        ld.param.u64 %d0, [n]; mov.u64 %d1, own; st.local.u64 [%d1], %d0; add.u64 %d0, %d0, 1;
        st.param.b64 [m], %d0; call deep, (m); ld.local.u64 %d2, [%d1]; st.global.u64 [%d0], %d2; ret;
    }
    """
    body = "    { .param .b64 m; st.param.b64 [m], %x0; call deep, (m); }\n"
    assert process(f"attempt({body!r}, module={function!r})") == ["714"]


@pytest.mark.parametrize("check", ["0", "1"])
def test_local_variables_lie_where_they_are_declared_to(check: str) -> None:
    """Also in a function whose caller has few bytes: compilers put offsets into the low bits by `or`."""
    function = """
    .func (.param .b64 r) low(.param .b64 n) {
        .local .align 64 .b8 a[16]; .local .align 8192 .b8 b[16]; .local .align 256 .b8 c[16];
        .reg .b64 %d<8>; ld.param.u64 %d0, [n];
        mov.u64 %d1, a; mov.u64 %d2, b; mov.u64 %d3, c;
        st.local.u64 [%d1+8], %d0; st.local.u64 [%d2+8], %d0; st.local.u64 [%d3+8], %d0;
        or.b64 %d1, %d1, 8; or.b64 %d2, %d2, 8; or.b64 %d3, %d3, 8;
        ld.local.u64 %d4, [%d1]; ld.local.u64 %d5, [%d2]; ld.local.u64 %d6, [%d3];
        add.u64 %d4, %d4, %d5; add.u64 %d4, %d4, %d6;
        and.b64 %d1, %d1, 63; and.b64 %d2, %d2, 8191; and.b64 %d3, %d3, 255;
        add.u64 %d1, %d1, %d2; add.u64 %d1, %d1, %d3; mul.lo.u64 %d1, %d1, 100;
        add.u64 %d4, %d4, %d1; st.param.b64 [r], %d4; ret;
    }
    """
    body = """
    .local .align 8 .b8 own[8]; .reg .b64 %d<4>; mov.u64 %d0, own; cvt.u64.u32 %d1, %r0;
    st.local.u64 [%d0], %d1;
    { .param .b64 n; .param .b64 r; st.param.b64 [n], %d1; call (r), low, (n); ld.param.b64 %d2, [r]; }
    ld.local.u64 %d3, [%d0]; add.u64 %d2, %d2, %d3;
    """
    code = f"""
    body = {body!r} + store("%d2", index="%r0", type_="u64")
    for fibers in (False, True):
        attempt(body, module={function!r}, fibers=fibers, block=(40,))
    """
    assert process(code, check) == ["ran 2400 2404 2408 2412"] * 2


@pytest.mark.parametrize("fibers", [False, True])
def test_what_is_taken_of_the_stack_is_taken_at_once(
    fibers: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LLVM aligns, and keeps in registers, only what a function takes in its first block, and the frame of
    local memory takes blocks of its own."""
    monkeypatch.setenv("GPUFERRY_SIM_DUMP", str(tmp_path))
    body = "    .local .align 8 .b8 mine[16];\n    mov.u64 %x9, mine;\n    st.local.u64 [%x9+8], %x0;\n"
    shuffle = "    shfl.sync.idx.b32 %r9, %r0, 3, 31, -1;\n" if fibers else ""
    compile_kernel(parse(kernel(body + shuffle)), "k", checked=True)
    lines = (tmp_path / "k.ll").read_text().splitlines()
    labels = [line for line in lines if re.match(r"[\w.]+:$", line) or " = alloca " in line]
    functions = "\n".join(labels).split("entry:\n")[1:]
    assert any("frame.take:" in function for function in functions)
    assert not any(re.search(r":\n(?s:.*) = alloca ", function) for function in functions)
