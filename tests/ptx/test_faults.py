"""What ends a grid with an error, which error, and that the process and later grids live on."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.helpers import paths

from . import driver
from .ptx import HEADER, RECURSION, entry, kernel, store

CONSTANT = "    .const .align 4 .b32 c[1024];\n    mov.u64 %x10, c;\n    cvta.const.u64 %x10, %x10;\n"
FAULTS = {
    "null": ("    mov.u64 %x10, 0;\n    st.global.u32 [%x10], %r0;", driver.ILLEGAL_ADDRESS),
    "wild": (
        "    mov.u64 %x10, 0x456789012000;\n    ld.global.u32 %r10, [%x10];\n" + store("%r10"),
        driver.ILLEGAL_ADDRESS,
    ),
    "non-canonical": ("    mov.u64 %x10, 0x7fff000000000000;\n    st.u32 [%x10], 1;", driver.ILLEGAL_ADDRESS),
    "shared out of range": (
        "    mov.u32 %r10, 0x40000000;\n    st.shared.u32 [%r10], 1;",
        driver.ILLEGAL_ADDRESS,
    ),
    "before shared memory": (
        "    .shared .align 4 .b8 words[1024];\n"
        "    mad.lo.u32 %r10, %r0, 4, -4;\n    st.shared.u32 [%r10], 1;",
        driver.ILLEGAL_ADDRESS,
    ),
    "misaligned": (
        "    add.u64 %x10, %x0, 2;\n    ld.global.u32 %r10, [%x10];\n" + store("%r10"),
        driver.MISALIGNED_ADDRESS,
    ),
    "misaligned vector": (
        "    add.u64 %x10, %x0, 8;\n    ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%x10];\n" + store("%r10"),
        driver.MISALIGNED_ADDRESS,
    ),
    "misaligned atomic": (
        "    add.u64 %x10, %x0, 4;\n    atom.global.add.u64 %x11, [%x10], 1;",
        driver.MISALIGNED_ADDRESS,
    ),
    "a function that is none": (
        "    mov.u64 %x10, 12345;\n    { .param .b32 a; st.param.b32 [a], 1;\n"
        "    kind: .callprototype _ (.param .b32 _);\n    call %x10, (a), kind; }",
        driver.ILLEGAL_ADDRESS,
    ),
    "a store to a constant": (CONSTANT + "    st.u32 [%x10+4], %r0;", driver.ILLEGAL_ADDRESS),
    "lanes' stores to constants": (
        CONSTANT + "    mad.wide.u32 %x10, %r0, 4, %x10;\n    st.u32 [%x10], %r0;",
        driver.ILLEGAL_ADDRESS,
    ),
    "an atomic on a constant": (CONSTANT + "    atom.add.u32 %r10, [%x10], 1;", driver.ILLEGAL_ADDRESS),
    "a branch beyond its table": (
        "    add.u32 %r10, %r0, 1;\n    brx.idx %r10, ways;\nways: .branchtargets here, here;\nhere:",
        driver.LAUNCH_FAILED,
    ),
    "trap": ("    setp.eq.u32 %p0, %r1, 300;\n    @%p0 trap;", driver.LAUNCH_FAILED),
}


@pytest.mark.parametrize("fibers", [False, True], ids=["loop", "fibers"])
@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, fibers: bool) -> None:
    body, status = FAULTS[name]
    text = (
        HEADER
        + entry(("    bar.sync 0;\n" if fibers else "") + body, "bad", 1)
        + entry(store("%r1"), "good", 1)
    )
    with driver.own_context():
        module, out = driver.Module(text), driver.Buffer(np.zeros(1024, np.uint32))
        with pytest.raises(driver.CudaError) as caught:
            module.launch("bad", out, grid=(8,), block=(128,))
        assert caught.value.status == status
    out = driver.Buffer(np.zeros(1024, np.uint32))
    driver.Module(text).launch("good", out, grid=(8,), block=(128,))
    assert (out.read() == np.arange(1024)).all()


def test_constants_are_written_by_the_address_that_the_host_was_told() -> None:
    text = kernel(
        "    st.global.u32 [%x1], 7;\n    bar.sync 0;\n    mov.u64 %x2, c;\n    cvta.const.u64 %x2, %x2;\n"
        "    ld.u32 %r3, [%x2];\n    st.u32 [%x0], %r3;",
        module=".const .align 4 .b32 c;\n",
    )
    module, out = driver.Module(text), driver.Buffer(np.zeros(1, np.uint32))
    module.launch("k", out, module.variable("c")[0])
    assert out.read()[0] == 7


def test_one_fault_ends_a_large_grid() -> None:
    """Most of its blocks never start."""
    body = "    atom.global.add.u32 %r10, [%x0], 1;\n    setp.eq.u32 %p0, %r1, 5;\n    @%p0 trap;"
    with driver.own_context():
        module = driver.Module(kernel(body, pointers=1))
        with pytest.raises(driver.CudaError):
            module.launch("k", driver.Buffer(np.zeros(1, np.uint32)), grid=(1 << 30,), block=(32,))


def test_stack_overflow(capfd: pytest.CaptureFixture[str]) -> None:
    with driver.own_context(), pytest.raises(driver.CudaError) as caught:
        driver.Module(RECURSION).launch("k", driver.Buffer(np.zeros(1, np.uint32)))
    assert caught.value.status == driver.STACK_ERROR
    assert "kernel k: stack overflow: CU_LIMIT_STACK_SIZE is 1024 bytes" in capfd.readouterr().err


def test_a_heap_that_is_full_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """As on a GPU malloc returns NULL, and what is written there is the error."""
    module = ".extern .func (.param .b64 to) malloc(.param .b64 size);\n"
    body = """
    mov.u64 %x10, 1073741824;
    {
        .param .b64 size; .param .b64 to;
        st.param.b64 [size], %x10;
        call.uni (to), malloc, (size);
        ld.param.b64 %x11, [to];
    }
    st.global.u32 [%x11], %r0;
"""
    with driver.own_context(), pytest.raises(driver.CudaError) as caught:
        driver.run(kernel(body, pointers=1, module=module), "k", np.zeros(1, np.uint32))
    assert caught.value.status == driver.ILLEGAL_ADDRESS
    assert "CU_LIMIT_MALLOC_HEAP_SIZE" in capfd.readouterr().err


PRINTING = """
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.extern .func __assertfail
    (.param .b64 message, .param .b64 file, .param .b32 line, .param .b64 name, .param .b64 size) .noreturn;
.global .align 1 .b8 format[] = {FORMAT};
.global .align 1 .b8 word[6] = {104, 101, 108, 108, 111, 0};
"""


def text_bytes(text: str) -> str:
    return "{" + ", ".join(str(byte) for byte in text.encode() + b"\0") + "}"


def module_with(format_: str) -> str:
    data = text_bytes(format_)
    return PRINTING.replace("format[] = {FORMAT}", f"format[{data.count(',') + 1}] = {data}")


CALL_VPRINTF = """
    .local .align 8 .b8 values[48];
    mov.u64 %x10, values;
    st.local.u32 [%x10], %r0;
    mov.u64 %x11, -5000000000;
    st.local.u64 [%x10+8], %x11;
    mov.f64 %g0, 0d4002000000000000;
    st.local.f64 [%x10+16], %g0;
    mov.u64 %x12, word;
    cvta.global.u64 %x12, %x12;
    st.local.u64 [%x10+24], %x12;
    mov.u32 %r10, 7;
    st.local.u32 [%x10+32], %r10;
    mov.u32 %r10, 65;
    st.local.u32 [%x10+36], %r10;
    cvta.local.u64 %x13, %x10;
    mov.u64 %x14, format;
    cvta.global.u64 %x14, %x14;
    {
        .param .b64 f; .param .b64 a; .param .b32 r;
        st.param.b64 [f], %x14;
        st.param.b64 [a], %x13;
        call.uni (r), vprintf, (f, a);
        ld.param.b32 %r11, [r];
    }
"""


def test_printf(capfd: pytest.CaptureFixture[str]) -> None:
    format_ = "t=%u l=%lld d=%5.2f s=%-7s| *=%*c %%\n"
    body = CALL_VPRINTF + store("%r11")
    (out,) = driver.run(
        kernel(body, pointers=1, module=module_with(format_)), "k", np.zeros(3, np.uint32), block=(3,)
    )
    expected = [f"t={i} l=-5000000000 d= 2.25 s=hello  | *=      A %" for i in range(3)]
    assert sorted(capfd.readouterr().out.splitlines()) == expected
    assert list(out) == [6, 6, 6]


def test_printf_declared_without_a_result(capfd: pytest.CaptureFixture[str]) -> None:
    """As Taichi's compiler does it."""
    body = (
        CALL_VPRINTF.replace(" .param .b32 r;", "")
        .replace("(r), ", "")
        .replace("ld.param.b32 %r11, [r];", "")
    )
    module = module_with("%u %lld").replace("(.param .b32 result) ", "")
    driver.run(kernel(body, pointers=1, module=module), "k", np.zeros(1, np.uint32), block=(1,))
    assert capfd.readouterr().out == "0 -5000000000"


def test_printf_reads_no_more_of_a_text_than_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """Of one whose precision is zero nothing, wherever it is said to be. A precision below zero is none."""
    body = CALL_VPRINTF.replace("mov.u32 %r10, 7;", "mov.u32 %r10, -7;")
    module = module_with("%.*s|%.1f|%.4s|%.*d")
    driver.run(kernel(body, pointers=1, module=module), "k", np.zeros(1, np.uint32))
    assert capfd.readouterr().out == "|2.2|hell|65"


def test_printf_of_a_percent_sign_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    """It stands for no argument, and there is none."""
    body = CALL_VPRINTF.replace("cvta.local.u64 %x13, %x10;", "mov.u64 %x13, 0;") + store("%r11")
    module = module_with("100%")
    (out,) = driver.run(kernel(body, pointers=1, module=module), "k", np.ones(1, np.uint32))
    assert capfd.readouterr().out == "100%"
    assert out.tolist() == [0]


ASSERTION = """
    mov.u64 %x10, format;
    cvta.global.u64 %x10, %x10;
    mov.u64 %x11, word;
    cvta.global.u64 %x11, %x11;
    mov.u32 %r10, 42;
    setp.ne.u32 %p0, %r0, 1;
    @%p0 bra end;
    {
        .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
        st.param.b64 [m], %x10;
        st.param.b64 [f], %x11;
        st.param.b32 [l], %r10;
        st.param.b64 [n], %x11;
        st.param.b64 [s], 1;
        call.uni __assertfail, (m, f, l, n, s);
    }
end:
    """


def test_assertion(capfd: pytest.CaptureFixture[str]) -> None:
    with driver.own_context(), pytest.raises(driver.CudaError) as caught:
        driver.Module(kernel(ASSERTION, pointers=1, module=module_with("x > 0"))).launch("k", 0, block=(3,))
    assert caught.value.status == driver.ASSERT
    assert (
        "hello:42: hello: block: [0,0,0], thread: [1,0,0] Assertion `x > 0' failed." in capfd.readouterr().err
    )


def test_device_heap() -> None:
    body = f"""
    mov.u64 %x10, 64;
    {{
        .param .b64 size; .param .b64 place;
        st.param.b64 [size], %x10;
        call.uni (place), malloc, (size);
        ld.param.b64 %x11, [place];
    }}
    st.u32 [%x11], %r0;
    ld.u32 %r10, [%x11];
    {{ .param .b64 place; st.param.b64 [place], %x11; call.uni free, (place); }}
    mov.u64 %x10, 0x100000000;
    {{
        .param .b64 size; .param .b64 place;
        st.param.b64 [size], %x10;
        call.uni (place), malloc, (size);
        ld.param.b64 %x11, [place];
    }}
    setp.eq.u64 %p0, %x11, 0;
    @!%p0 trap;
{store("%r10")}
    """
    declarations = (
        ".extern .func (.param .b64 r) malloc(.param .b64 s);\n.extern .func free(.param .b64 p);\n"
    )
    (out,) = driver.run(
        kernel(body, pointers=1, module=declarations), "k", np.zeros(64, np.uint32), block=(64,)
    )
    assert (out == np.arange(64)).all()


def test_what_a_kernel_says_moves_no_cursor() -> None:
    """On the standard error of whoever runs it; what it prints with printf is the program's own."""
    text = "x\x1b[2J\n\x07y\u009b"
    result = python(
        f"""
        from tests.ptx.test_faults import ASSERTION, module_with
        with driver.own_context():
            try:
                text = kernel(ASSERTION, pointers=1, module=module_with({text!r}))
                driver.Module(text).launch("k", 0, block=(3,))
            except driver.CudaError:
                pass
        """
    )
    assert "`x?[2J??y" in result.stderr
    assert all(letter.isprintable() or letter in "\n\ufffd" for letter in result.stderr)


def test_errors_come_at_a_bounded_rate() -> None:
    result = python(
        """
        for i in range(300):
            try:
                driver.Module(f"no module {i}")
            except driver.CudaError:
                pass
        """
    )
    assert 50 <= result.stderr.count("cannot load a module") <= 290


HEAP = ".extern .func (.param .b64 r) malloc(.param .b64 s);\n.extern .func free(.param .b64 p);\n"
TAKE = """    {{
        .param .b64 size; .param .b64 place;
        st.param.b64 [size], {size};
        call.uni (place), malloc, (size);
        ld.param.b64 {to}, [place];
    }}
"""
GIVE = "    {{ .param .b64 place; st.param.b64 [place], {what}; call.uni free, (place); }}\n"


@pytest.mark.parametrize(
    "what",
    [
        "    add.u64 %x10, %x10, 16;\n",
        "    mov.u64 %x10, 64;\n",
        "    mov.u64 %x10, %x0;\n",
        GIVE.format(what="%x10"),
    ],
)
def test_memory_that_the_heap_did_not_give_is_not_taken_back(what: str) -> None:
    body = TAKE.format(size=64, to="%x10") + what + GIVE.format(what="%x10")
    with driver.own_context(), pytest.raises(driver.CudaError) as caught:
        driver.Module(kernel(body, pointers=1, module=HEAP)).launch("k", driver.Buffer(np.zeros(1)))
    assert caught.value.status == driver.ILLEGAL_ADDRESS


def test_heap_of_many_sizes() -> None:
    """What is taken at the same time does not lie on each other, and what was given back is given again."""
    body = (
        """
    mov.u32 %r10, 0;
again:
    shl.b32 %r11, %r0, 2;
    add.u32 %r11, %r11, 8;
    cvt.u64.u32 %x12, %r11;
"""
        + TAKE.format(size="%x12", to="%x10")
        + """
    st.u32 [%x10], %r0;
    add.u64 %x11, %x10, %x12;
    st.u32 [%x11+-4], %r0;
    bar.sync 0;
    ld.u32 %r12, [%x10];
    ld.u32 %r13, [%x11+-4];
    add.u32 %r12, %r12, %r13;
    bar.sync 0;
"""
        + GIVE.format(what="%x10")
        + """
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p0, %r10, 20;
    @%p0 bra again;
"""
        + store("%r12")
    )
    (out,) = driver.run(kernel(body, pointers=1, module=HEAP), "k", np.zeros(1024, np.uint32), block=(1024,))
    assert (out == 2 * np.arange(1024)).all()


def test_heap_of_many_alignments() -> None:
    """`new` of a type that is aligned above 16 asks so; of more than 64 KiB there is none."""
    aligned = ".extern .func (.param .b64 r) __cuda_syscall_aligned_malloc(.param .b64 s, .param .b64 a);\n"
    body = f"""
    and.b32 %r10, %r0, 15;
    mov.u64 %x10, 16;
    shl.b64 %x10, %x10, %r10;
    {{
        .param .b64 size; .param .b64 alignment; .param .b64 place;
        st.param.b64 [size], 24;
        st.param.b64 [alignment], %x10;
        call.uni (place), __cuda_syscall_aligned_malloc, (size, alignment);
        ld.param.b64 %x11, [place];
    }}
    setp.ne.u64 %p0, %x11, 0;
    mov.u32 %r11, 1000;
    @%p0 st.u32 [%x11+20], %r0;
    bar.sync 0;
    @%p0 ld.u32 %r11, [%x11+20];
    sub.u64 %x12, %x10, 1;
    and.b64 %x12, %x12, %x11;
    cvt.u32.u64 %r12, %x12;
    add.u32 %r11, %r11, %r12;
{GIVE.format(what="%x11")}{store("%r11")}"""
    made = kernel(body, pointers=1, module=HEAP + aligned)
    (out,) = driver.run(made, "k", np.zeros(64, np.uint32), block=(64,))
    assert list(out) == [i if i % 16 <= 12 else 1000 for i in range(64)]


def test_a_limit_is_its_context_s() -> None:
    body = (
        TAKE.format(size=1 << 20, to="%x10")
        + "    setp.ne.u64 %p0, %x10, 0;\n    selp.u32 %r10, 1, 0, %p0;\n"
        + store("%r10")
    )
    text = kernel(body, pointers=1, module=HEAP)
    with driver.own_context():
        driver.call("cuCtxSetLimit", 2, 64 << 10)
        assert list(driver.run(text, "k", np.zeros(1, np.uint32))[0]) == [0]
        with driver.own_context():
            assert list(driver.run(text, "k", np.zeros(1, np.uint32))[0]) == [1]


def python(code: str) -> subprocess.CompletedProcess[str]:
    prelude = "import sys\nfrom tests.ptx import driver\nfrom tests.ptx.ptx import *\nimport numpy as np\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=paths.ROOT,
        timeout=120,
    )


def test_the_programs_own_fault_handler_still_runs() -> None:
    result = python(
        """
        import faulthandler
        faulthandler.enable()
        (out,) = driver.run(kernel(store("%r1"), pointers=1), "k", np.zeros(4, np.uint32), block=(4,))
        import ctypes
        ctypes.string_at(16)
        """
    )
    assert result.returncode == -11
    assert "Fatal Python error: Segmentation fault" in result.stderr


def test_fork_in_a_program_that_has_run_grids() -> None:
    """The child has none of the pool's threads and must not wait for them."""
    result = python(
        """
        import os
        text = kernel(store("%r1"), pointers=1)
        def check():
            (out,) = driver.run(text, "k", np.zeros(1 << 16, np.uint32), grid=(512,), block=(128,))
            assert (out == np.arange(1 << 16)).all()
        check()
        child = os.fork()
        if child == 0:
            from tests.ptx.driver import _library
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        check()
        print("well")
        """
    )
    assert result.stdout == "well\n", result.stderr
