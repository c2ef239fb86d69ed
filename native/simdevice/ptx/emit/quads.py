"""mma.m8n8k4 of halves: eight lanes each multiply matrices of their own (quads.c)."""

from __future__ import annotations

from collections.abc import Callable

from .function import FunctionEmitter
from .matrix import Kinds, gather, lane_of, loaded, words_of, write_fragment

_A_COLUMNS, _B_ROWS, _C_SINGLE, _D_SINGLE = 1, 2, 4, 8
_SUMS = (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))  # types of D and C

# From what is multiplied how, the words of A, B and C, and the number of words of D: these.
Compute = Callable[[FunctionEmitter, int, list[str], int], list[str]]


def multiply(e: FunctionEmitter, layouts: list[str], kinds: Kinds, compute: Compute) -> None:
    """D, A, B and C are the instruction's operands."""
    sums = kinds.d.name, kinds.c.name
    if kinds.b.name != "f16" or sums not in _SUMS:
        raise e.fail("no such matrices of .f16")
    how = _A_COLUMNS * (layouts[0] == "col") | _B_ROWS * (layouts[1] == "row")
    how |= _C_SINGLE * (sums[1] == "f32") | _D_SINGLE * (sums[0] == "f32")
    d, *given = e.operands(4)
    fragments = [words_of(e, each, 32) for each in given]
    if [len(each) for each in fragments] != [2, 2, kinds.c.bits // 4]:
        raise e.fail("a fragment has the wrong length")
    words = [word for each in fragments for word in each]
    count = kinds.d.bits // 4
    write_fragment(e, d, kinds.d, count, lambda: compute(e, how, words, count))


def compute_part(e: FunctionEmitter, how: int, words: list[str], count: int) -> list[str]:
    """This lane's words of D."""
    everyone = gather(e, words)
    result = e.alloca(f"[{count} x i32], align 8")
    arguments = (f"i32 {how}", f"i32 {lane_of(e)}", f"i32 {len(words)}", f"ptr {everyone}", f"ptr {result}")
    e.call("void", "sim_mma_quads", *arguments)
    return loaded(e, result, count)
