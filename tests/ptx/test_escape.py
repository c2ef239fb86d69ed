"""A kernel that wants out: where it is held to its own memory it reaches nothing else of the process.

Each of these kernels does what it is not allowed to in a process that was started with GPUFERRY_SIM_CHECK=1,
and says by its result, or by what the process still holds, whether it could.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from gpuferry.native.simdevice.ptx import PtxError, compile_kernel, parse

from tests.helpers import paths

from .ptx import kernel

PRELUDE = """
import ctypes, sys
import numpy as np
from tests.ptx import driver
from tests.ptx.ptx import HEADER, entry, kernel, store, REGISTERS

host = ctypes.create_string_buffer(b"untouched" * 1000)  # of the process, beside which everything else lies
at = ctypes.addressof(host) & ~63
libc = ctypes.cast(ctypes.CDLL(None).system, ctypes.c_void_p).value


def attempt(body, *values, module="", fibers=False, stack=1024, **shape):
    body = ("    bar.sync 0;\\n" if fibers else "") + body
    with driver.own_context():
        driver.call("cuCtxSetLimit", 0, ctypes.c_size_t(stack))  # CU_LIMIT_STACK_SIZE
        try:
            text = body if body.startswith(".version") else kernel(body, pointers=3, module=module)
            out = driver.Buffer(np.zeros(64, np.uint64))
            driver.Module(text).launch("k", out, *[*values, 0, 0][:2], **shape)
        except driver.CudaError as error:
            print(error.status)
        else:
            print("ran", *out.read()[:4])
    assert bytes(host[:9]) == b"untouched"
"""


def process(code: str, check: str = "1", folder: Path | None = None, **settings: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=paths.ROOT,
        env=os.environ | {"GPUFERRY_SIM_CHECK": check} | settings,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


ILLEGAL = "700"
# What a kernel may try with the address of memory of the process in %x1.
TRIES = {
    "load": "ld.global.u64 %x10, [%x1];",
    "generic load": "ld.u64 %x10, [%x1];",
    "volatile load": "ld.volatile.u32 %r10, [%x1];",
    "load as constant": "ld.const.u64 %x10, [%x1];",
    "load as local memory": "ld.local.u64 %x10, [%x1];",
    "load as argument": "ld.param.u64 %x10, [%x1];",
    "load without coherence": "ld.global.nc.v4.u32 {%r10, %r11, %r12, %r13}, [%x1];",
    "load far behind its own": "sub.u64 %x12, %x1, %x0; add.u64 %x12, %x0, %x12; ld.global.u64 %x10, [%x12];",
    "store": "st.global.u64 [%x1], %x0;",
    "generic store": "st.u64 [%x1], %x0;",
    "vector store": "st.v4.u32 [%x1], {%r0, %r0, %r0, %r0};",
    "store as local memory": "st.local.u64 [%x1], %x0;",
    "atomic": "atom.add.u32 %r10, [%x1], 1;",
    "atomic of floats": "atom.global.add.f32 %f0, [%x1], 0f3F800000;",
    "exchange": "atom.cas.b64 %x10, [%x1], 1, 2;",
    "reduction": "red.global.add.u32 [%x1], 1;",
    "copy from": "mov.u32 %r10, tile; cp.async.ca.shared.global [%r10], [%x1], 16;",
    "copy of a part": "mov.u32 %r10, tile; mov.u32 %r11, 8;"
    " cp.async.ca.shared.global [%r10], [%x1], 16, %r11;",
    "copy to": "mov.u32 %r10, tile; cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r10], 16;",
    "reducing copy": "mov.u32 %r10, tile;"
    " cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%x1], [%r10], 16;",
    "matrix": "wmma.load.a.sync.aligned.row.m16n16k16.f16"
    " {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%x1], 16;",
    "barrier": "mbarrier.init.b64 [%x1], 1;",
    "map of a tensor": "mov.u32 %r10, tile;"
    " cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%x1, {%r0}], [%r10];",
}


def test_host_memory_is_out_of_reach() -> None:
    """In one process, one try after the other, with and without fibers."""
    code = f"""
    for body in {list(TRIES.values())!r}:
        for fibers in (False, True):
            attempt("    .shared .align 16 .b8 tile[64];\\n" + body, at, libc, fibers=fibers, block=(32,))
    """
    said = process(code)
    names = [name for name in TRIES for _ in range(2)]
    assert {name for name, line in zip(names, said, strict=True) if line != ILLEGAL} == set()


def test_the_same_look_sees_host_memory_where_nobody_checks() -> None:
    said = process(
        'attempt("    ld.u64 %x10, [%x1];\\n" + store("%x10", index="%r0", type_="u64"), at)', check="0"
    )
    assert said[0].startswith("ran ")


def test_tensors_of_host_memory_are_out_of_reach() -> None:
    """Maps that say so: one is at the beginning, and one has a stride that leads there. Nor are numbers that
    lie crooked added to, for which the processor would stop all others.
    """
    code = """
    from tests.ptx.test_tensor import U64, Box
    memory = driver.Buffer(np.zeros(256, np.uint64))
    own = memory.address.value
    there, near, crooked = (Box(U64, (64, 64), (2, 2), (0, 0)).encoded(each) for each in (at, own, own))
    crooked[0] += 1
    near[16:24] = np.frombuffer(np.uint64(at - own).tobytes(), np.uint8)
    tile = "    .shared .align 128 .b8 tile[64]; mov.u32 %r10, tile; mov.u32 %r11, 1; mov.u32 %r12, 0;\\n"
    there, near, crooked = map(driver.Buffer, (there, near, crooked))
    for map_ in (there, near):
        for copy in (
            "global.shared::cta.tile.bulk_group [%x1, {%r12, %r11}], [%r10];",
            "shared::cta.global.tile.mbarrier::complete_tx::bytes [%r10], [%x1, {%r12, %r11}], [%r10];",
        ):
            attempt(tile + "cp.async.bulk.tensor.2d." + copy, map_.address.value)
    add = "global.shared::cta.add.tile.bulk_group [%x1, {%r12, %r12}], [%r10];"
    attempt(tile + "cp.reduce.async.bulk.tensor.2d." + add, crooked.address.value)
    """
    assert process(code) == [ILLEGAL] * 5


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


def test_the_block_and_its_arguments_give_nothing_away() -> None:
    """Behind the arguments, where the library keeps more; and they are not written to."""
    code = """
    attempt("    ld.param.u64 %x10, [p0+4096];\\n" + store("%x10", index="%r0", type_="u64"))
    attempt("    mov.b64 %x10, p0;\\n    ld.param.u64 %x11, [%x10+64];\\n")
    attempt("    mov.b64 %x10, p0;\\n    st.u64 [%x10], %x0;\\n")
    out = store("%x11", index="%r0", type_="u64")
    attempt("    mov.b64 %x10, p1;\\n    ld.u64 %x11, [%x10];\\n" + out, 77)
    """
    assert process(code) == [ILLEGAL, ILLEGAL, ILLEGAL, "ran 77 0 0 0"]


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


# In either mode: these left shared memory, or a lane's part of a matrix, and wrote into the engine's own.
ANYWAY = {
    "a copy larger than shared memory": "mov.u32 %r10, tile; mov.u32 %r11, 65536;"
    " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%x0], %r11, [%r10+16];",
    "a copy trimmed by more than there is": "mov.u32 %r10, tile; mov.u32 %r11, 65536;"
    " cp.async.bulk.global.shared::cta.bulk_group [%x0], [%r10], %r11;",
    "zeros beyond shared memory": "mov.u32 %r10, tile; mov.u64 %x10, 65536;"
    " st.bulk.weak.shared::cta [%r10], %x10, 0;",
    "zeros elsewhere": "mov.u64 %x10, 64; st.bulk [%x0], %x10, 0;",
    "a reducing copy larger than shared memory": "mov.u32 %r10, tile; mov.u32 %r11, 65536;"
    " cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%x0], [%r10], %r11;",
    "a matrix with a wide stride": "mov.u32 %r10, tile; mov.u32 %r11, 100000;"
    " wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"
    " {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%r10], %r11;",
}


@pytest.mark.parametrize("check", ["0", "1"])
def test_shared_memory_has_an_end(check: str) -> None:
    code = f"""
    for body in {list(ANYWAY.values())!r}:
        attempt("    .shared .align 16 .b8 tile[64];\\n" + body, block=(32,))
    """
    assert process(code, check) == [ILLEGAL] * len(ANYWAY)


# What was looked at were the first bytes of a variable, or of device memory. The instruction went on from
# there, or to a place as far behind the begin of shared memory.
FARTHER = {
    "a matrix in local memory": ".local .align 16 .b8 own[64]; mov.u64 %x10, own; mov.u32 %r9, 1000000;"
    " wmma.load.a.sync.aligned.row.m16n16k16.local.f16"
    " {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%x10], %r9;",
    "a matrix in a local variable": ".local .align 16 .b8 own[64]; mov.u32 %r9, 100000;"
    " wmma.store.d.sync.aligned.row.m16n16k16.f32 [own], {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, %r9;",
    # Whose last row is in the host's memory, 31 * 128 rows behind its first, which is in the device's.
    "a matrix of thousands of rows": "sub.u64 %x2, %x1, %x0; rem.u64 %x3, %x2, 31744; add.u64 %x4, %x0, %x3;"
    " sub.u64 %x2, %x2, %x3; div.u64 %x2, %x2, 31744; cvt.u32.u64 %r9, %x2; setp.eq.u32 %p1, %r0, 31;"
    " @%p1 wmma.load.c.sync.aligned.row.m4096n1k16.global.f64 {%g0}, [%x4], %r9;"
    " @%p1 st.global.f64 [%x0], %g0;",
    "a matrix in arguments": "mov.u32 %r9, 16;"
    " wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [p0], %r9;",
    "a copy to a local variable": ".local .align 16 .b8 own[64]; mov.u32 %r10, tile;"
    " cp.async.bulk.global.shared::cta.bulk_group [own], [%r10], 4096;",
    "a copy from a local variable": ".local .align 16 .b8 own[64]; mov.u32 %r10, tile;"
    " cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [own], 2048, [tile];",
    "a copy from arguments": "mov.u32 %r10, tile;"
    " cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [p0], 2048, [tile];",
    "a copy of what is not global": "mov.u32 %r10, tile;"
    " cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [tile], 65536, [tile];",
    "a copy to each block's global memory": "mov.u32 %r10, tile; mov.u16 %h0, 1;"
    " cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster"
    " [%x0], [%r10], 16, [%x0], %h0;",
    "crooked numbers that are added to": "mov.u32 %r10, tile; mov.u32 %r11, 1; mov.u32 %r12, 0;"
    " cp.reduce.async.bulk.global.shared::cta.bulk_group.ignore_oob.add.u64"
    " [%x0], [%r10], 16, %r11, %r12;",
    "an answer in global memory": "clusterlaunchcontrol.try_cancel.async.global.mbarrier::complete_tx::bytes"
    ".multicast::cluster::all.b128 [%x0], [%x0];",
    "an answer anywhere": "clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes"
    ".multicast::cluster::all.b128 [%x0], [%x0];",
}


def test_no_instruction_goes_on_from_what_was_looked_at() -> None:
    code = f"""
    for body in {list(FARTHER.values())!r}:
        for fibers in (False, True):
            attempt("    .shared .align 128 .b8 tile[4096];\\n" + body, at, libc, fibers=fibers, block=(32,))
    """
    said = [line.split()[0] for line in process(code)]
    names = [name for name in FARTHER for _ in range(2)]
    invalid = "218"  # PTX: its space is not the instruction's
    assert {name for name, line in zip(names, said, strict=True) if line not in (invalid, ILLEGAL)} == set()


def test_an_ordinary_kernel_does_the_same() -> None:
    """Local variables with and without addresses, arguments by reference, generic pointers of every space."""
    function = """
    .func (.param .b64 r) sum(.param .b64 where, .param .align 8 .b8 pair[16]) {
        .reg .b64 %d<8>; .local .align 8 .b8 own[32];
        mov.b64 %d6, pair;
        ld.param.u64 %d1, [where]; ld.u64 %d2, [%d1]; ld.param.u64 %d3, [pair+8];
        mov.u64 %d4, own; st.local.u64 [%d4+24], %d2; ld.local.u64 %d2, [%d4+24];
        ld.u64 %d7, [%d6];
        add.u64 %d2, %d2, %d3; add.u64 %d2, %d2, %d7; st.param.b64 [r], %d2; ret;
    }
    .const .align 8 .u64 thousand = 1000;
    """
    call = """
    { .param .b64 w; .param .align 8 .b8 p[16]; .param .b64 r;
      st.param.b64 [w], WHERE; st.param.b64 [p], 5; st.param.b64 [p+8], 20;
      call (r), sum, (w, p); ld.param.b64 %x12, [r]; }
    add.u64 %x11, %x11, %x12;
    """
    body = (
        "    .local .align 8 .b8 mine[16]; .shared .align 8 .b8 tile[16];\n    mov.u64 %x11, 0;\n"
        "    mov.u64 %x9, mine;\n    mov.u64 %x10, 1;\n    st.local.u64 [%x9+8], %x10;\n"
        "    add.u64 %x9, %x9, 8;\n"
        + call.replace("WHERE", "%x9")
        + "    mov.u64 %x9, tile;\n    cvta.shared.u64 %x9, %x9;\n    mov.u64 %x10, 10;\n"
        + "    st.u64 [%x9], %x10;\n"
        + call.replace("WHERE", "%x9")
        + "    mov.u64 %x9, thousand;\n    cvta.const.u64 %x9, %x9;\n"
        + call.replace("WHERE", "%x9")
    )
    code = f"""
    for fibers in (False, True):
        attempt({body!r} + store("%x11", index="%r0", type_="u64"), module={function!r}, fibers=fibers)
    """
    for check in ("0", "1"):
        assert process(code, check) == ["ran 1086 0 0 0"] * 2


def test_each_lane_reads_an_argument_of_its_own() -> None:
    """By an address in a register, which `.param` does not let out of the arguments."""
    body = """
    and.b32 %r3, %r0, 1;
    mul.wide.u32 %x10, %r3, 8;
    mov.b64 %x9, p1;
    add.u64 %x9, %x9, %x10;
    ld.param.u64 %x11, [%x9];
    """
    code = f"""
    body = {body!r} + store("%x11", index="%r0", type_="u64")
    for fibers in (False, True):
        attempt(body, 5, 7, fibers=fibers, block=(32,))
        attempt(body.replace("p1", "p2"), 5, 7, fibers=fibers, block=(32,))
    """
    for check in ("0", "1"):
        told = process(code, check)
        assert told[::2] == ["ran 5 7 5 7"] * 2
        assert check == "0" or told[1::2] == [ILLEGAL] * 2


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


def test_a_process_whose_libraries_lie_among_device_memory_is_refused() -> None:
    """The system puts them there if the stack has no limit: a check would let kernels reach them."""
    command = [sys.executable, "-c", "from tests.ptx import driver\ndriver.use_device()"]
    result = subprocess.run(
        ["sh", "-c", 'ulimit -s unlimited && exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        cwd=paths.ROOT,
        env=os.environ | {"GPUFERRY_SIM_CHECK": "1"},
        timeout=120,
    )
    assert "CUDA error 304" in result.stderr, result.stderr
    assert "ulimit -s" in result.stderr


def test_nothing_of_the_process_is_writable_and_executable() -> None:
    """Compiled kernels are mapped with the right to write, then with that to execute, never with both."""
    code = """
    attempt(store("%x1", index="%r0", type_="u64"), 3)
    print(sum(line.split()[1].startswith("rwx") for line in open("/proc/self/maps")))
    """
    assert process(code) == ["ran 3 0 0 0", "0"]


@pytest.mark.parametrize("library", [paths.SIM_LIBRARY, paths.GUEST_LIBRARY], ids=["simulated", "guest"])
def test_tables_of_functions_are_read_only(library: Path) -> None:
    """What the loader fills in with addresses of functions lies where it is read-only afterwards."""
    said = subprocess.run(["readelf", "-lWd", library], capture_output=True, text=True, check=True).stdout
    relro = re.search(r"GNU_RELRO\s+\S+\s+(\S+)\s+\S+\s+\S+\s+(\S+)", said)
    assert relro
    assert "BIND_NOW" in said or re.search(r"FLAGS_1.*NOW", said)
    begin = int(relro[1], 16)
    end = begin + int(relro[2], 16)
    filled = subprocess.run(["readelf", "-rW", library], capture_output=True, text=True, check=True).stdout
    places = [
        int(line.split()[0], 16)
        for line in filled.splitlines()
        if "R_X86_64_JUMP_SLO" in line or "R_X86_64_GLOB_DAT" in line
    ]
    assert places
    assert all(begin <= place < end for place in places)


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
