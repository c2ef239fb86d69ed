"""The programs of tests/programs and what their header comments declare.

A header comment says in words what the program proves. After a blank line in it, `// key: value` declares

    compile:  flags added to the compiler's
    device:   `sim` if it must not run on a real GPU, and why
    suite:    `long` (slow to build or run) or `killed` (never ends by itself)
    compare:  `sorted` if the order of output lines is not promised
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from .paths import PROGRAMS

# For an interpreter: a mebibyte to the device and back. It fails on a machine without a device.
ROUND_TRIP = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address, size = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(1 << 20)
data, back = bytes(range(256)) * 4096, ctypes.create_string_buffer(1 << 20)
for status in (
    cuda.cuInit(0),
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    cuda.cuCtxSetCurrent(context),
    cuda.cuMemAlloc_v2(ctypes.byref(address), size),
    cuda.cuMemcpyHtoD_v2(address, data, size),
    cuda.cuMemcpyDtoH_v2(back, address, size),
):
    if status: sys.exit(f"error {status}")
print("same" if back.raw == data else "different")
"""

_KEYS = {"compile", "device", "suite", "compare"}
_SHARED = ("kernels.cu",)


@dataclass(frozen=True)
class Program:
    """One source file of tests/programs."""

    source: Path
    proves: str
    flags: tuple[str, ...] = ()
    only_sim: bool = False
    suite: str = "default"
    sorted_output: bool = False

    @property
    def name(self) -> str:
        return self.source.stem


def programs(suite: str = "default") -> list[Program]:
    """All programs of one suite, by name."""
    sources = [p for p in sorted(PROGRAMS.iterdir()) if p.suffix in (".c", ".cu") and p.name not in _SHARED]
    return [program for program in map(read, sources) if program.suite == suite]


def with_long_ones() -> list[Program]:
    """All programs that end by themselves."""
    return [*programs(), *programs("long")]


def program(name: str) -> Program:
    """The program of this name."""
    return read(next(p for suffix in (".c", ".cu") if (p := PROGRAMS / (name + suffix)).exists()))


def read(source: Path) -> Program:
    """What the header comment of a source file declares. Raises ValueError if a key is unknown."""
    comment = itertools.takewhile(lambda line: line.startswith("//"), source.read_text().splitlines())
    proves, _, declarations = "\n".join(line[2:].strip() for line in comment).partition("\n\n")
    declared = dict(line.split(": ", 1) for line in declarations.splitlines())
    if unknown := declared.keys() - _KEYS:
        raise ValueError(f"{source}: unknown {', '.join(sorted(unknown))}")
    return Program(
        source=source,
        proves=" ".join(proves.split()),
        flags=tuple(declared.get("compile", "").split()),
        only_sim=declared.get("device", "").startswith("sim"),
        suite=declared.get("suite", "default"),
        sorted_output=declared.get("compare") == "sorted",
    )
