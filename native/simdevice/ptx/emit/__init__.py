"""LLVM IR for one class of instructions per file. A handler registers itself for its opcode."""

from . import (
    atomics,
    bits,
    calls,
    compare,
    control,
    convert,
    floats,
    halves,
    integer,
    memory,
    moves,
    special,
    warp,
)

__all__ = [
    "atomics",
    "bits",
    "calls",
    "compare",
    "control",
    "convert",
    "floats",
    "halves",
    "integer",
    "memory",
    "moves",
    "special",
    "warp",
]
