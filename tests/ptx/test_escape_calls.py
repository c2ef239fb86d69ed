"""A kernel that wants out by what it calls, or takes the process's memory so (see test_escape.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuferry.native.simdevice.ptx import PtxError, compile_kernel, parse

from .escape import ILLEGAL, process
from .ptx import kernel

PRINT = (
    ".extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);\n"
    ".global .align 1 .b8 format[4] = {37, 115, 10, 0};\n"
)
FILLING = "[1002] = {" + "65, " * 1000 + "10, 0}"  # a line of a thousand letters
CALL = """
    { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], FORMAT; st.param.b64 [a], VALUES;
      call.uni (r), vprintf, (f, a); ld.param.b32 %r10, [r]; }
"""


def test_printing_reads_nothing_of_the_process() -> None:
    """Neither as a format, nor as its values, nor as a text that is one of them."""
    text = "    .local .align 8 .b8 v[8];\n    mov.u64 %x9, v;\n    st.local.u64 [%x9], %x1;\n"
    text += "    mov.u64 %x8, format;\n"
    tries = [("%x1", "%x9"), ("%x8", "%x1"), ("%x8", "%x9")]
    bodies = [text + CALL.replace("FORMAT", f).replace("VALUES", v) for f, v in tries]
    code = f"for body in {bodies!r}:\n    attempt(body, at, module={PRINT!r})"
    assert process(code) == [ILLEGAL] * 3


def test_a_function_is_called_by_its_number_alone() -> None:
    body = """
        { .reg .b64 %fp; prototype: .callprototype _ (.param .b64 _);
          .param .b64 a; st.param.b64 [a], %x0; call %x1, (a), prototype; }
    """
    function = ".func other(.param .b64 x) { ret; }\n.global .u64 table[1] = {other};\n"
    assert process(f"attempt({body!r}, libc, module={function!r})") == [ILLEGAL]


# What is passed lies on the machine's stack: whoever is called may not take it for more than it is.
LIES = {
    "targets that take more": (
        ".func small(.param .b8 x) { ret; }\n.func large(.param .b8 x[64]) { ret; }\n",
        "{ .reg .b64 %fp; list: .calltargets small, large; .param .b8 a; mov.b64 %fp, large;"
        " call %fp, (a), list; }",
    ),
    "malloc that gives less": (
        ".extern .func (.param .b8 r) malloc(.param .b64 s);\n",
        "{ .param .b8 r; .param .b64 s; st.param.b64 [s], 8; call (r), malloc, (s); }",
    ),
    "printf of a byte": (
        ".extern .func (.param .b8 r) vprintf(.param .b8 f, .param .b8 a);\n",
        "{ .param .b8 r; .param .b8 f; .param .b8 a; call (r), vprintf, (f, a); }",
    ),
    "a register of no bytes": (
        ".func (.reg .b64 r[0]) none() { ret; }\n",
        "{ .param .b8 r; call (r), none, (); }",
    ),
    "a matrix of other results": (
        "",
        "wmma.mma.sync.aligned.row.row.m16n16k16.s8.s8.s8.s8"
        " {%r10,%r11}, {%r10,%r11}, {%r10,%r11}, {%r10,%r11};",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_what_is_passed_is_what_is_taken(name: str) -> None:
    module, body = LIES[name]
    with pytest.raises(PtxError):
        compile_kernel(parse(kernel(body, module=module)), "k")


def test_printing_fills_no_memory(tmp_path: Path) -> None:
    """What nobody takes out of the file is bounded; when it was taken, there is room again."""
    mib, out = 1 << 20, tmp_path / "out"
    code = f"""
    import os
    saved, printed = os.dup(1), os.open({str(out)!r}, os.O_CREAT | os.O_RDWR | os.O_APPEND)
    os.dup2(printed, 1)
    body = "    mov.u64 %x8, format;\\n" + {CALL.replace("FORMAT", "%x8").replace("VALUES", "0")!r}
    sizes = []
    for taken in (False, False, True):
        if taken:
            os.ftruncate(printed, 0)
        with driver.own_context():
            text = kernel(body, pointers=3, module={PRINT.replace("[4] = {37, 115, 10, 0}", FILLING)!r})
            driver.Module(text).launch("k", *[driver.Buffer(np.zeros(64, np.uint64))] * 3, grid=(5000,))
        sizes.append(os.fstat(printed).st_size)
    os.dup2(saved, 1)
    print(*sizes)
    """
    (sizes,) = process(code, GPUFERRY_SIM_OUTPUT=str(mib))
    first, second, third = map(int, sizes.split())
    assert mib < first < 3 * mib
    assert second == first
    assert mib < third < 3 * mib


# Prepares launches, frees the room that each has for parameters, and makes none.
PREPARING = """
.extern .func (.param .b64 r) __gpuferry_launch_room(.param .b64 kernel, .param .b32 x, .param .b32 y,
    .param .b32 z, .param .b32 tx, .param .b32 ty, .param .b32 tz, .param .b32 shared);
.extern .func free(.param .b64 p);
.visible .entry child() { ret; }
"""


def test_launches_that_are_prepared_and_not_made_are_bounded() -> None:
    """Each takes memory of the process that counts as nobody's."""
    body = """
    mov.u32 %r2, 0;
    again:
    mov.u64 %x2, child;
    { .param .b64 r; .param .b64 kernel; .param .b32 one; .param .b32 none; st.param.b64 [kernel], %x2;
      st.param.b32 [one], 1; st.param.b32 [none], 0;
      call (r), __gpuferry_launch_room, (kernel, one, one, one, one, one, one, none); ld.param.b64 %x3, [r]; }
    { .param .b64 p; st.param.b64 [p], %x3; call free, (p); }
    add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, 200000; @%p0 bra again;
    """
    code = f"""attempt({body!r} + store("%x3", index="%r0", type_="u64"), module={PREPARING!r}, block=(1,))"""
    assert process(code) == ["ran 0 0 0 0"]
