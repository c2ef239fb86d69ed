"""A process may have only so many mappings of memory: that bounds no grid, and where it does, it is named.

In a process of its own, which takes all mappings but a few first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths, programs, toolchain
from tests.helpers.running import native_environment

from .ptx import RECURSION, kernel, store

# Lanes that wait in different places: a fiber, and a stack, for each thread.
THREADS = """
    and.b32 %r11, %r1, 1;
    setp.ne.u32 %p0, %r11, 0;
    @%p0 bra odd;
    bar.warp.sync 0x55555555;
    bra met;
odd:
    bar.warp.sync 0xaaaaaaaa;
met:
    bar.sync 0;
"""
BLOCKS, BLOCK = 24, 1024
MOST = int(Path("/proc/sys/vm/max_map_count").read_text())

PROGRAM = f"""
import ctypes, sys
from pathlib import Path
import numpy as np
from tests.ptx import driver
text, left, blocks, block = Path(sys.argv[1]).read_text(), *map(int, sys.argv[2:])
def mappings():
    with open("/proc/self/maps", "rb") as file:
        return file.read().count(b"\\n")
out = driver.Buffer(np.zeros(blocks * block, np.uint32))
module = driver.Module(text)
function = module.function("k")
parameter = driver._parameter(out)
pointers = (ctypes.c_void_p * 1)(ctypes.addressof(parameter))
def launch(blocks, block):
    shape = (blocks, 1, 1, block, 1, 1)
    driver.call("cuLaunchCooperativeKernel", function, *shape, 0, None, pointers)
    driver.call("cuStreamSynchronize", None)
if "deep" not in text:
    launch(1, 32)  # the code is there
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
many = libc.mmap(None, ctypes.c_size_t({MOST} * 4096), 0, 0x4022, -1, 0)
taken = 0
while mappings() < {MOST} - left:
    for _ in range(max(({MOST} - left - mappings()) // 2, 1)):
        taken += 2
        if libc.mprotect(ctypes.c_void_p(many + taken * 4096), ctypes.c_size_t(4096), 1) != 0:
            break
try:
    launch(blocks, block)
    print("right" if (out.read() == np.arange(blocks * block)).all() else "wrong")
except driver.CudaError as error:
    print("error", error.status)
"""


def run(folder: Path, text: str, left: int, blocks: int, block: int, **settings: str) -> tuple[str, str]:
    """What it printed, and said, with so many mappings left to it."""
    (folder / "k.ptx").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "k.ptx"), *map(str, (left, blocks, block))],
        env=os.environ | {"GPUFERRY_SIM_THREADS": "1"} | settings,
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.skipif(MOST > 1 << 18, reason="needs a limit of mappings that is soon reached")
@pytest.mark.parametrize("left", [MOST // 2, 3000, 400])
def test_a_grid_needs_fewer_mappings_than_threads(left: int, tmp_path: Path) -> None:
    """All of its blocks are resident, each thread with a stack."""
    text = kernel(THREADS + store("%r1"), pointers=1)
    assert run(tmp_path, text, left, BLOCKS, BLOCK)[0] == "right"


@pytest.mark.skipif(MOST > 1 << 18, reason="needs a limit of mappings that is soon reached")
def test_where_there_are_none_the_limit_is_named(tmp_path: Path) -> None:
    text = kernel(THREADS + store("%r1"), pointers=1)
    printed, said = run(tmp_path, text, 0, BLOCKS, BLOCK)
    assert printed == "error 2"
    assert f"of which the system allows {MOST}: raise vm.max_map_count" in said


@pytest.mark.skipif(MOST > 1 << 18, reason="needs a limit of mappings that is soon reached")
@pytest.mark.parametrize("left", [MOST // 2, 200])
def test_stacks_without_guards_overflow_all_the_same(left: int, tmp_path: Path) -> None:
    printed, said = run(tmp_path, RECURSION, left, 1, 64, GPUFERRY_SIM_UNIT="thread")
    assert printed == "error 714"
    assert "stack overflow" in said


@pytest.mark.skipif(MOST > 1 << 18, reason="needs a limit of mappings that is soon reached")
@pytest.mark.parametrize(("recurses", "printed"), [(True, "error 2"), (False, "right")])
def test_who_is_not_trusted_overruns_no_stack_without_a_guard(
    recurses: bool, printed: str, tmp_path: Path
) -> None:
    """Below it lies another thread's local memory, and what is there is written by that: return addresses. A
    kernel that calls nothing again takes no more than its stack has.
    """
    text = RECURSION if recurses else kernel(THREADS + store("%r1"), pointers=1)
    settings = {"GPUFERRY_SIM_UNIT": "thread", "GPUFERRY_SIM_CHECK": "1"}
    assert run(tmp_path, text, 100, 1, 64, **settings)[0] == printed


# Blocks that spin for long, though none of them waits for another: each 0.25 ms one more joins them.
SPINNING = """
    bar.sync 0;
    mov.u32 %r10, 0;
spin:
    ld.volatile.global.u32 %r11, [%x0];
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p0, %r10, 30000;
    setp.ne.and.u32 %p0, %r11, 77, %p0;
    @%p0 bra spin;
"""

LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from tests.ptx import driver
text, blocks, more = Path(sys.argv[1]).read_text(), *map(int, sys.argv[2:])
out = driver.Buffer(np.zeros(blocks * 1024, np.uint32))
module = driver.Module(text)
module.launch("k", out, grid=(1,), block=(32,))  # the code is there
taken = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (taken + (more << 20),) * 2)
try:
    module.launch("k", out, grid=(blocks,), block=(1024,))
    print("right" if (out.read() == np.arange(blocks * 1024)).all() else "wrong")
except driver.CudaError as error:
    print("error", error.status)
"""


@pytest.mark.some(1)
@pytest.mark.parametrize(("local", "unit", "printed"), [(4, "warp", "right"), (1 << 18, "thread", "error 2")])
def test_private_memory_bounds_how_many_blocks_run_at_once(
    local: int, unit: str, printed: str, tmp_path: Path
) -> None:
    """As it is limited in a jail. One block must fit; the others take their turns."""
    own = f"    .local .align 4 .b8 own[{local}];\n    mov.u64 %x9, own;\n    st.local.u32 [%x9], %r0;\n"
    (tmp_path / "k.ptx").write_text(kernel(own + SPINNING + store("%r1"), pointers=1))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "k.ptx"), "100", "200"],
        env=os.environ
        | {"GPUFERRY_SIM_THREADS": "1", "GPUFERRY_SIM_UNIT": unit, "GPUFERRY_SIM_CACHE": str(tmp_path)},
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip() == printed, done.stderr
    assert printed == "right" or "MiB of private memory: raise its limit (ulimit -d" in done.stderr


@pytest.mark.slow
def test_a_full_cooperative_launch_where_kernels_are_held_to_their_memory() -> None:
    """With as much private memory as a jail has: local memory, too, is taken by what a kernel needs."""
    program = programs.program("cooperative_full")
    done = subprocess.run(
        ["sh", "-c", 'ulimit -d 4194304 && exec "$0"', toolchain.program(program.source, program.flags)],
        env=native_environment() | {"GPUFERRY_SIM_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
