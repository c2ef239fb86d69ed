"""Kernels that take long to optimise run code that was made quickly first; a better one comes later.

Where both are needed, GPUFERRY_SIM_TIER=block brings the second after the first block. What happens in the
background is held at its start, by the interpreter that the second service is started with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from gpuferry.native.simdevice.ptx import compiler, parse
from gpuferry.native.simdevice.ptx.compiler import kernel_ir
from gpuferry.native.simdevice.ptx.kernel import KernelContext

from tests.helpers import paths

from .ptx import kernel, store

# Each is too large to be optimised at once: threads alone, a thread at a time on fibers, warps.
STEPS = "\n".join(
    f"    mad.lo.u32 %r10, %r10, {2 * i + 3}, %r1;\n    xor.b32 %r10, %r10, {i};" for i in range(80)
)
FORMS = {
    "loop": STEPS,
    "threads": STEPS + "    and.b32 %r11, %r1, 1;\n    setp.ne.u32 %p0, %r11, 0;\n    @%p0 bra odd;\n"
    "    bar.warp.sync 0x55555555;\n    bra met;\nodd:\n    bar.warp.sync 0xaaaaaaaa;\nmet:\n",
    "warps": STEPS + "    shfl.sync.bfly.b32 %r11, %r10, 1, 31, 0xffffffff;\n    xor.b32 %r10, %r10, %r11;\n",
}
BLOCKS = 4

PROGRAM = """
import sys, time, numpy as np
from pathlib import Path
from tests.ptx import driver
text, launches, starts = Path(sys.argv[1]).read_text(), int(sys.argv[2]), Path(sys.argv[3])
blocks, cooperative = int(sys.argv[4]), sys.argv[5] == "True"
module = driver.Module(text)
out = driver.Buffer(np.zeros(4 * 32, np.uint32))
def launch():
    module.launch("k", out, grid=(blocks,), block=(32,), cooperative=cooperative)
    print(out.read().tobytes().hex())
for i in range(launches):
    launch()
while launches == 0 and starts.read_text().count("START") < 2:
    launch()
if launches == 0:
    driver.call("cuModuleUnload", module._handle)
    (starts.parent / "go").touch()
    while not list(starts.parent.glob("cache/*.0.o")):
        time.sleep(0.02)
"""


class Program:
    """Launches the kernel of one form in a process of its own, with a cache that it keeps."""

    def __init__(self, folder: Path, body: str, directives: str = "") -> None:
        self.folder, self.cache = folder, folder / "cache"
        self.text = kernel(body + store("%r10"), pointers=1, directives=directives)
        (folder / "k.ptx").write_text(self.text)
        self.starts = folder / "starts"
        self.starts.touch()
        self.python = folder / "python"

    def write_python(self, second: str) -> None:
        """A Python for the service; its second start does something else first."""
        script = f'echo START >> {self.starts}\nif [ "$(wc -l < {self.starts})" = 2 ]; then {second}; fi\n'
        self.python.write_text(f'#!/bin/sh\n{script}exec {sys.executable} "$@"\n')
        self.python.chmod(0o755)

    def run(
        self,
        launches: int = 1,
        blocks: int = BLOCKS,
        cooperative: bool = False,
        **settings: str | Path,
    ) -> set[str]:
        """What the launches gave."""
        unset = {"GPUFERRY_SIM_TIER", "GPUFERRY_SIM_UNIT"}
        inherited = {name: value for name, value in os.environ.items() if name not in unset}
        done = subprocess.run(
            [
                *(sys.executable, "-c", PROGRAM, self.folder / "k.ptx", str(launches), self.starts),
                *(str(blocks), str(cooperative)),
            ],
            env=inherited
            | {"GPUFERRY_SIM_CACHE": str(self.cache), "GPUFERRY_SIM_THREADS": "1"}
            | {name: str(value) for name, value in settings.items()},
            cwd=paths.ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split())

    def files(self) -> set[str]:
        """The kernel's files in the cache."""
        return {path.name.partition(".")[2] for path in self.cache.glob("*.o")}


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("form", FORMS)
def test_all_code_gives_the_same(tmp_path: Path, form: str) -> None:
    program = Program(tmp_path, FORMS[form])
    (quick,) = program.run(GPUFERRY_SIM_TIER="quick")
    assert program.files() == {"0.quick.o"}
    both = program.run(launches=2, GPUFERRY_SIM_TIER="block")
    assert both == {quick}
    assert program.files() == {"0.quick.o", "0.o"}
    assert program.run(GPUFERRY_SIM_TIER="optimised") == {quick}


@pytest.mark.system
def test_what_is_in_the_cache_is_not_made_again(tmp_path: Path) -> None:
    program = Program(tmp_path, FORMS["warps"])
    program.run(GPUFERRY_SIM_TIER="quick")
    nobody = "/nonexistent/python"
    (quick,) = program.run(GPUFERRY_SIM_TIER="quick", GPUFERRY_SIM_PYTHON=nobody)
    program.run(GPUFERRY_SIM_TIER="block")
    next(program.cache.glob("*.quick.o")).unlink()
    assert program.run(GPUFERRY_SIM_PYTHON=nobody) == {quick}
    assert program.files() == {"0.o"}


def test_small_kernels_are_optimised_at_once(tmp_path: Path) -> None:
    program = Program(tmp_path, "    mov.u32 %r10, 7;\n")
    program.run()
    assert program.files() == {"0.o"}


@pytest.mark.system
def test_a_kernel_that_cannot_be_optimised_goes_on(tmp_path: Path) -> None:
    """The service of the background ends instead."""
    program = Program(tmp_path, FORMS["warps"])
    program.write_python("exit 1")
    (given,) = program.run(launches=3, GPUFERRY_SIM_TIER="block", GPUFERRY_SIM_PYTHON=program.python)
    assert program.files() == {"0.quick.o"}
    assert program.run(GPUFERRY_SIM_TIER="optimised") == {given}


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize(("blocks", "cooperative"), [(1, False), (4, True)], ids=["one block", "cooperative"])
def test_blocks_that_begin_at_once_wait_for_the_code_of_an_earlier_launch(
    tmp_path: Path, blocks: int, cooperative: bool
) -> None:
    """They would keep what they begin with. The background is slow here, so that nobody has its code who does
    not wait."""
    program = Program(tmp_path, FORMS["warps"])
    program.write_python("sleep 2")
    (given,) = program.run(
        2, blocks, cooperative, GPUFERRY_SIM_TIER="launch", GPUFERRY_SIM_PYTHON=program.python
    )
    assert program.files() == {"0.quick.o", "0.o"}
    assert program.run(1, blocks, cooperative, GPUFERRY_SIM_TIER="quick") == {given}


def test_what_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    program = Program(tmp_path, FORMS["warps"])
    program.write_python("exit 1")
    program.run(3, 1, GPUFERRY_SIM_TIER="launch", GPUFERRY_SIM_PYTHON=program.python)
    assert program.files() == {"0.quick.o"}


def test_a_module_may_be_unloaded_while_its_kernel_is_optimised(tmp_path: Path) -> None:
    """The background is held until the module is gone; what it makes is for the next process."""
    long = f"""
    mov.u32 %r9, 0;
again:
    {STEPS}
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %p0, %r9, 2000;
    @%p0 bra again;
    """
    program = Program(tmp_path, long)
    program.write_python(f"while [ ! -e {tmp_path / 'go'} ]; do sleep 0.02; done")
    (given,) = program.run(launches=0, GPUFERRY_SIM_PYTHON=program.python)
    assert program.files() == {"0.quick.o", "0.o"}
    assert program.run(GPUFERRY_SIM_PYTHON="/nonexistent/python") == {given}


@pytest.mark.system
def test_stacks_have_the_size_that_the_code_asks_for(tmp_path: Path) -> None:
    """Thousands of values of 32 lanes, all of them needed at the end: more than half a megabyte."""
    count = 2500
    read = "".join(f"    ld.volatile.shared.u64 %v{i}, [%r9];\n" for i in range(count))
    used = "".join(f"    mad.lo.u64 %x5, %x5, 5, %v{i};\n" for i in range(count))
    body = f"""
    .reg .b64 %v<{count}>;
    .shared .align 8 .b8 words[256];
    mov.u32 %r9, words;
    mad.lo.u32 %r9, %r0, 8, %r9;
    cvt.u64.u32 %x6, %r0;
    add.u64 %x6, %x6, 3;
    st.volatile.shared.u64 [%r9], %x6;
    {read}
    mov.u64 %x5, 0;
    bar.sync 0;
    {used}
    cvt.u32.u64 %r10, %x5;
    """
    (given,) = Program(tmp_path, body).run(GPUFERRY_SIM_TIER="quick")
    value = 0
    for _ in range(count):
        value = (value * 5 + 3) % (1 << 32)
    assert bytes.fromhex(given)[:4] == value.to_bytes(4, "little")


def test_quick_code_of_a_long_warp_has_short_blocks() -> None:
    """How long LLVM takes to choose instructions for vectors is the square of a block's length: a sort of
    1,800 instructions took five seconds, and takes one."""
    long = "".join(
        f"    mad.lo.u32 %r{i % 8 + 8}, %r{(i + 3) % 8 + 8}, %r{i % 8 + 8}, {i};\n" for i in range(500)
    )
    module = parse(kernel(f"    bar.sync 0;\n{long}{store('%r8')}", pointers=1))
    context = KernelContext(module, module.kernel("k"))
    context.quick = True
    made = llvm.parse_assembly(kernel_ir(context), llvm.create_context())
    compiler._simplify(made, compiler._machine(None, False))
    (warp,) = (each for each in made.functions if each.name == "sim_kernel_run_warp")
    assert sum(len(list(block.instructions)) for block in warp.blocks) > 1000
    assert max(len(list(block.instructions)) for block in warp.blocks) < 300
