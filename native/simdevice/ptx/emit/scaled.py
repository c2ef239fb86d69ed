"""mma of floats of eight bits and fewer whose rows and columns have scales, one for each block along K.

A block is a product of its own, which its scales multiply. In double precision they do not go beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import isa
from ..model import Operand
from ..types import F32
from . import numbers
from .encode import power_of
from .function import FunctionEmitter
from .matrix import Compute, Kinds, Product, constants_of, items_of, lane_of, words_of, write_fragment
from .modifiers import Modifiers

# By kind, the numbers of blocks and what their scales may be; where there is one, it need not be named.
_BLOCKS: dict[str, dict[int, tuple[str, ...]]] = {
    "kind::mxf8f6f4": {1: ("ue8m0",)},
    "kind::mxf4": {2: ("ue8m0",)},
    "kind::mxf4nvf4": {2: ("ue8m0",), 4: ("ue8m0", "ue4m3")},
}
_REBIASED = "0x4770000000000000"  # 2 ** 120: from an exponent of e4m3 to one of a float
_WORDS, _RESULTS = (4, 2), 4  # of a lane, in A and B, and in C and D


@dataclass(frozen=True)
class Lanes:
    """The number of a lane, and the word that the lane of a number has."""

    number: Callable[[FunctionEmitter], str]
    word_of: Callable[[FunctionEmitter, str, str], str]


def _word_of(e: FunctionEmitter, word: str, lane: str) -> str:
    unused = e.entry_value("shfl.p", "alloca i32")
    words = [f"i32 {each}" for each in (word, lane, 31)]
    return e.call("i32", "sim_rt_shfl", "ptr %thread", "i32 -1", "i32 3", *words, f"ptr {unused}")


OF_THREADS = Lanes(lane_of, _word_of)


def multiply(
    e: FunctionEmitter,
    m: Modifiers,
    shape: tuple[int, int, int],
    kinds: Kinds,
    compute: Compute,
    lanes: Lanes,
) -> None:
    """D, A, B, C, and for A and B a word of scales and where in whose word they are: the operands."""
    kind = m.need(*_BLOCKS)
    named = m.choice("scale_vec::1X", "scale_vec::2X", "scale_vec::4X")
    scale = m.need("ue8m0", "ue4m3")
    blocks = int(named[-2]) if named else next(iter(_BLOCKS[kind]))
    packed = kind != "kind::mxf8f6f4"
    small = {kinds.a.name, kinds.b.name} <= ({"e2m1"} if packed else isa.FACTORS["e4m3"])
    fits = shape == (16, 8, 64 if packed else 32) and kinds.c is F32 and kinds.d is F32
    clear = named is not None or len(_BLOCKS[kind]) == 1
    if not (small and fits and clear and scale in _BLOCKS[kind].get(blocks, ())):
        raise e.fail("no such matrices with scales")
    d, a, b, c, *scales = e.operands(8)
    words = [words_of(e, each, 32) for each in (a, b, c)]
    if [len(each) for each in words] != [*_WORDS, _RESULTS]:
        raise e.fail("a fragment has the wrong length")
    constants = constants_of((16, 8, 32), kinds, 0)
    lane = lanes.number(e)
    # Two lanes of each four have the scales of a row and of that eight below, and one those of a column.
    quad = e.op(f"and i32 {lane}, 28")
    columns = e.op(f"shl i32 {e.op(f'and i32 {lane}, 3')}, 3")
    of_rows = _scales(e, scales[:2], blocks, scale, lanes, [(quad, 2, 0), (quad, 2, 1)])
    of_columns = _scales(e, scales[2:], blocks, scale, lanes, [(columns, 1, 0), (columns, 1, 4)])

    def sums() -> list[str]:
        totals = [e.op(f"fpext float {numbers.from_bits(e, F32, word)} to double") for word in words[2]]
        for block in range(blocks):
            parts = _block(e, words[0], words[1], lane, block, blocks) if packed else (words[0], words[1])
            product = Product(constants, *parts, ["0"] * _RESULTS, [], _RESULTS)
            for index, word in enumerate(compute(e, product)):
                value = e.op(f"fpext float {numbers.from_bits(e, F32, word)} to double")
                for by in (of_rows[index // 2][block], of_columns[index % 2][block]):
                    value = e.op(f"fmul double {value}, {by}")
                totals[index] = e.op(f"fadd double {totals[index]}, {value}")
        singles = [e.op(f"fptrunc double {each} to float") for each in totals]
        return [numbers.bits_of(e, F32, numbers.canonical(e, F32, each)) for each in singles]

    write_fragment(e, d, kinds.d, _RESULTS, sums)


def _scales(
    e: FunctionEmitter,
    operands: list[Operand],
    blocks: int,
    kind: str,
    lanes: Lanes,
    sources: list[tuple[str, int, int]],
) -> list[list[str]]:
    """The scales of each block, of two rows or columns: `sources` say of each in which lane its word is, for
    the first of the lanes that could have it, how far the next is from there, and what is added."""
    word, place = operands
    selectors = items_of(place)
    if len(selectors) != 2:
        raise e.fail("a scale is in a byte of a thread")
    byte, thread = (e.op(f"zext i16 {e.read_bits(each, 16)} to i32") for each in selectors)
    given = e.read_bits(word, 32)
    found = []
    for first, step, further in sources:
        lane = e.op(f"add i32 {first}, {e.op(f'mul i32 {thread}, {step}')}")
        theirs = lanes.word_of(e, given, e.op(f"add i32 {lane}, {further}"))
        bytes_ = [e.op(f"shl i32 {e.op(f'add i32 {byte}, {block}')}, 3") for block in range(blocks)]
        found.append([_scale(e, theirs, shift, kind) for shift in bytes_])
    return found


def _scale(e: FunctionEmitter, word: str, shift: str, kind: str) -> str:
    within = e.op(f"and i32 {shift}, 31")
    code = e.op(f"and i32 {e.op(f'lshr i32 {word}, {within}')}, 255")
    if kind == "ue4m3":
        code = e.op(f"and i32 {code}, 127")
        small = numbers.from_bits(e, F32, e.op(f"shl i32 {code}, 20"))
        bits = numbers.bits_of(e, F32, e.op(f"fmul float {small}, {_REBIASED}"))
        none = e.op(f"icmp eq i32 {code}, 127")
        single = numbers.from_bits(e, F32, e.op(f"select i1 {none}, i32 {0x7FFFFFFF}, i32 {bits}"))
    else:
        single = power_of(e, code)
    return e.op(f"fpext float {single} to double")


def _block(
    e: FunctionEmitter, a: list[str], b: list[str], lane: str, block: int, blocks: int
) -> tuple[list[str], list[str]]:
    """Of elements of four bits those of one block, in the middles of bytes. Their order is another one, but
    the same in A and B."""
    half = block * 2 // blocks
    rows, column = a[2 * half : 2 * half + 2], b[half]
    if blocks == 4:  # whose elements two lanes of each four have
        holds = e.op(f"and i32 {e.op(f'lshr i32 {lane}, 1')}, 1")
        there = e.op(f"icmp eq i32 {holds}, {block % 2}")
        rows = [e.op(f"select i1 {there}, i32 {word}, i32 0") for word in rows]
    return [_bytes(e, word, part) for part in (0, 16) for word in rows], [
        _bytes(e, column, part) for part in (0, 16)
    ]


def _bytes(e: FunctionEmitter, word: str, shift: int) -> str:
    """Four elements of four bits as bytes."""
    found = e.op(f"and i32 {e.op(f'lshr i32 {word}, {shift}')}, 65535")
    for distance, mask in (8, 0x00FF00FF), (4, 0x0F0F0F0F):
        moved = e.op(f"shl i32 {found}, {distance}")
        found = e.op(f"and i32 {e.op(f'or i32 {found}, {moved}')}, {mask}")
    return e.op(f"shl i32 {found}, 2")
