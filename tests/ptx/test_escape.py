"""A kernel that wants out: where it is held to its own memory it reaches nothing else of the process.

Each of these kernels does what it is not allowed to, and says by its result, or by what the process still
holds, whether it could.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths

from .escape import ILLEGAL, process

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
