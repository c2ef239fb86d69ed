"""Matrices of a warp: whole fragments, not each lane's part."""

from __future__ import annotations

from ..emit import matrix
from ..emit.function import FunctionEmitter
from ..emit.modifiers import Modifiers
from ..model import Instruction, Operand
from ..types import B16, B32
from .exchange import lanes, permute
from .function import WarpEmitter
from .memory import load_each, store_each
from .registry import warp_opcode
from .widen import WARP, vector

_WORDS = vector("i32")


def _stored(e: WarpEmitter, words: list[str]) -> str:
    """Words of all lanes, one word behind the other."""
    array = e.alloca(f"[{max(len(words), 1) * WARP} x i32], align 64")
    for index, word in enumerate(words):
        where = e.raw_op(f"getelementptr i32, ptr {array}, i64 {index * WARP}")
        e.raw(f"store {_WORDS} {e.spread('i32', word)}, ptr {where}, align 64")
    return array


def _compute(e: FunctionEmitter, product: matrix.Product) -> list[str]:
    assert isinstance(e, WarpEmitter)
    result = e.alloca(f"[{product.results * WARP} x i32], align 64")
    arguments = [f"i32 {each}" for each in product.constants]
    arguments += [f"ptr {_stored(e, words)}" for words in (product.a, product.b, product.c)]
    e.call("void", "sim_mma_warp", *arguments, f"ptr {result}")
    found = []
    for index in range(product.results):
        where = e.raw_op(f"getelementptr i32, ptr {result}, i64 {index * WARP}")
        found.append(e.raw_op(f"load {_WORDS}, ptr {where}, align 64", "i32"))
    return found


@warp_opcode("mma")
def mma(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    matrix.multiply(e, m, _compute)


@warp_opcode("wmma")
def wmma(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    if m.flag("mma"):
        matrix.multiply_wmma(e, m, _compute)
        return
    m.flags.clear()
    m.types.clear()
    e.emit_as_thread(i)


def _rows(e: WarpEmitter, operand: Operand, space: str, count: int) -> str:
    """The offsets in shared memory of the rows, one of each of the first `count` lanes."""
    rows = matrix.row_offset(e, operand, space)
    crooked = e.op(f"icmp ne i32 {e.op(f'and i32 {rows}, 15')}, 0")
    givers = e.op(f"icmp ult i32 {lanes(e)}, {count}")
    wrong = e.op(f"and i1 {crooked}, {givers}")
    e.stop_if(wrong, "sim_rt_misaligned", f"i64 {e.op(f'zext i32 {rows} to i64')}")
    return e.spread("i32", rows)


@warp_opcode("ldmatrix", "stmatrix")
def ldmatrix(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    count, transposed, space = matrix.take_matrices(m)
    first, second = e.operands(2)
    load = i.opcode == "ldmatrix"
    fragment, address = (first, second) if load else (second, first)
    items = matrix.fragment_items(e, fragment, count)
    rows = _rows(e, address, space, 8 * count)
    lane = lanes(e)
    group, part = e.op(f"lshr i32 {lane}, 2"), e.op(f"and i32 {lane}, 3")
    for index, item in enumerate(items):
        if not transposed:
            row = permute(e, rows, e.op(f"add i32 {group}, {8 * index}"))
            at = e.op(f"add i32 {row}, {e.op(f'shl i32 {part}, 2')}")
            if load:
                e.write_bits(item, 32, load_each(e, at, "shared", B32)[0])
            else:
                store_each(e, at, "shared", B32, [e.read_bits(item, 32)])
            continue
        word = "0" if load else e.read_bits(item, 32)
        for half in (0, 1):
            pair = e.op(f"add i32 {e.op(f'shl i32 {part}, 1')}, {8 * index + half}")
            at = e.op(f"add i32 {permute(e, rows, pair)}, {e.op(f'shl i32 {group}, 1')}")
            if load:
                value = e.op(f"zext i16 {load_each(e, at, 'shared', B16)[0]} to i32")
                word = e.op(f"or i32 {word}, {e.op(f'shl i32 {value}, {16 * half}')}")
            else:
                value = e.op(f"trunc i32 {e.op(f'lshr i32 {word}, {16 * half}')} to i16")
                store_each(e, at, "shared", B16, [value])
        if load:
            e.write_bits(item, 32, word)


@warp_opcode("movmatrix")
def movmatrix(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    for flag in ("sync", "aligned", "m8n8", "trans"):
        m.need(flag)
    m.type()
    d, a = e.operands(2)
    value = e.spread("i32", e.read(a, B32))
    lane = lanes(e)
    group, part = e.op(f"lshr i32 {lane}, 2"), e.op(f"and i32 {lane}, 3")
    shift = e.op(f"shl i32 {e.op(f'and i32 {group}, 1')}, 4")
    column = e.op(f"lshr i32 {group}, 1")
    result = "0"
    for half in (0, 1):
        row = e.op(f"or i32 {e.op(f'shl i32 {part}, 1')}, {half}")
        word = permute(e, value, e.op(f"add i32 {e.op(f'shl i32 {row}, 2')}, {column}"))
        low = e.op(f"and i32 {e.op(f'lshr i32 {word}, {shift}')}, 65535")
        result = e.op(f"or i32 {result}, {e.op(f'shl i32 {low}, {16 * half}')}")
    e.write(d, B32, result)
