"""Matrices of a warp: whole fragments, not each lane's part."""

from __future__ import annotations

from functools import partial

from ..emit import ldmatrix as rows_of
from ..emit import matrix, scaled
from ..emit import mma as products
from ..emit.function import FunctionEmitter
from ..emit.modifiers import Modifiers
from ..model import Instruction, Operand
from ..types import B32, TYPES
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


def _loaded(e: WarpEmitter, array: str, count: int) -> list[str]:
    """The words of all lanes, that many."""
    places = [e.raw_op(f"getelementptr i32, ptr {array}, i64 {index * WARP}") for index in range(count)]
    return [e.raw_op(f"load {_WORDS}, ptr {place}, align 64", "i32") for place in places]


def _compute(e: FunctionEmitter, product: matrix.Product) -> list[str]:
    assert isinstance(e, WarpEmitter)
    result = e.alloca(f"[{product.results * WARP} x i32], align 64")
    fragments = [product.a, product.b, product.c]
    if product.metadata:
        fragments.append(product.metadata)
    arguments = [f"i32 {each}" for each in product.constants]
    arguments += [f"ptr {_stored(e, words)}" for words in fragments]
    name = "sim_mma_sparse_warp" if product.metadata else "sim_mma_warp"
    e.call("void", name, *arguments, f"ptr {result}")
    return _loaded(e, result, product.results)


def _compute_quads(e: FunctionEmitter, how: int, words: list[str], count: int) -> list[str]:
    assert isinstance(e, WarpEmitter)
    result = e.alloca(f"[{count * WARP} x i32], align 64")
    e.call("void", "sim_mma_quads_warp", f"i32 {how}", f"ptr {_stored(e, words)}", f"ptr {result}")
    return _loaded(e, result, count)


def _number(e: FunctionEmitter) -> str:
    assert isinstance(e, WarpEmitter)
    return lanes(e)


def _word_of(e: FunctionEmitter, word: str, lane: str) -> str:
    assert isinstance(e, WarpEmitter)
    return permute(e, word, lane)


@warp_opcode("mma")
def mma(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    products.multiply(e, m, _compute, _compute_quads, scaled.Lanes(_number, _word_of))


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
    rows = rows_of.row_offset(e, operand, space)
    crooked = e.op(f"icmp ne i32 {e.op(f'and i32 {rows}, 15')}, 0")
    givers = e.op(f"icmp ult i32 {lanes(e)}, {count}")
    wrong = e.op(f"and i1 {crooked}, {givers}")
    e.stop_if(wrong, "sim_rt_misaligned", f"i64 {e.op(f'zext i32 {rows} to i64')}")
    return e.spread("i32", rows)


def _load(e: WarpEmitter, row: str, column: str, size: int) -> str:
    return load_each(e, e.op(f"add i32 {row}, {column}"), "shared", TYPES[f"b{8 * size}"])[0]


@warp_opcode("ldmatrix", "stmatrix")
def ldmatrix(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    load = i.opcode == "ldmatrix"
    matrices = rows_of.take_matrices(m, load)
    first, second = e.operands(2)
    fragment, address = (first, second) if load else (second, first)
    items = rows_of.fragment_items(e, fragment, matrices)
    rows = _rows(e, address, matrices.space, matrices.rows)
    lane = lanes(e)
    group, part = e.op(f"lshr i32 {lane}, 2"), e.op(f"and i32 {lane}, 3")
    for item, pieces in zip(items, matrices.registers, strict=True):
        word = "0" if load else e.read_bits(item, 32)
        for piece in pieces:
            row = permute(e, rows, rows_of.place_of(e, group, part, piece.row))
            column = rows_of.place_of(e, group, part, piece.column)
            if load:
                value = rows_of.loaded(e, piece, column, partial(_load, e, row))
                word = rows_of.with_piece(e, word, piece, value)
            else:
                at, kind = e.op(f"add i32 {row}, {column}"), TYPES[f"b{8 * piece.bytes}"]
                store_each(e, at, "shared", kind, [rows_of.piece_of(e, word, piece)])
        if load:
            e.write_bits(item, 32, word)


@warp_opcode("movmatrix")
def movmatrix(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    rows_of.take_movmatrix(m)
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
