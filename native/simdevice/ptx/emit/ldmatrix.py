"""ldmatrix, stmatrix and movmatrix: fragments from rows in shared memory, to them, and from other lanes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..model import Address, Instruction, Operand, Register
from ..types import B32
from .function import FunctionEmitter
from .matrix import gather, items_of, lane_of
from .memory import check_shared, shared_pointer
from .modifiers import Modifiers
from .registry import opcode
from .spaces import take_space


def _row_pointer(e: FunctionEmitter, offsets: str, lane: str) -> str:
    """The shared memory row whose offset a lane gave."""
    where = e.op(f"getelementptr i32, ptr {offsets}, i64 {e.op(f'zext i32 {lane} to i64')}")
    offset = e.op(f"zext i32 {e.op(f'load i32, ptr {where}, align 4')} to i64")
    low = e.op(f"and i64 {offset}, 15")
    e.stop_if(e.op(f"icmp ne i64 {low}, 0"), "sim_rt_misaligned", f"i64 {offset}")
    check_shared(e, offset, 16)
    return shared_pointer(e, offset)


def row_offset(e: FunctionEmitter, operand: Operand, space: str) -> str:
    """The offset in shared memory, an i32, of the row whose address a lane gives."""
    if not isinstance(operand, Address) or operand.base is None:
        raise e.fail("an address in a register is expected")
    named = e.register(operand.base) is None
    if named and ((place := e.place(operand.base)) is None or place.space != "shared"):
        raise e.fail(f"{operand.base} is not in shared memory")
    address = e.read_bits(operand if named else Register(operand.base), 64)
    if not named:
        address = e.op(f"add i64 {address}, {operand.offset}")
    if space == "generic" and not named:
        base = e.op(f"ptrtoint ptr {e.block_field('shared')} to i64")
        address = e.op(f"sub i64 {address}, {base}")
    return e.op(f"trunc i64 {address} to i32")


@dataclass(frozen=True)
class Piece:
    """Part of a lane's register that lies together in a row. Which row, counted by the lanes that give their
    addresses, and at which byte: so many times the lane's group, its place in the group, and a number. Where
    a row has elements of fewer bits side by side it is the element's number, and each becomes a byte."""

    shift: int  # of bits, in the register
    bytes: int
    row: tuple[int, int, int]
    column: tuple[int, int, int]
    packed: int = 0  # bits of such an element


@dataclass(frozen=True)
class Matrices:
    """What one instruction moves: of each register the pieces."""

    registers: list[list[Piece]]
    rows: int
    space: str


def take_matrices(m: Modifiers, load: bool) -> Matrices:
    """Of ldmatrix and stmatrix. Of bytes there are 16x16 matrices to load and 16x8 to store, both of which
    lie in memory column by column. Elements of four and six bits are loaded into bytes, of 8x16 too."""
    m.need("sync")
    m.need("aligned")
    shape = m.need("m8n8", *(("m8n16", "m16n16") if load else ("m16n8",)))
    count = int(m.need("x1", "x2", "x4")[1:])
    transposed = m.flag("trans")
    space = take_space(m)
    packed = int(m.need("b4x16_p64", "b6x16_p32")[1]) if load and shape != "m8n8" and m.flag("b8x16") else 0
    if shape == "m8n16" and (transposed or not packed):
        raise m.fail("8x16 matrices are of .b8x16, and not .trans")
    if not packed and m.type().name != ("b16" if shape == "m8n8" else "b8"):
        raise m.fail("8x8 matrices are of .b16, others of .b8")
    if shape == "m8n8":
        return Matrices([_of_halves(8 * index, transposed) for index in range(count)], 8 * count, space)
    if shape == "m8n16":
        neighbours = [[Piece(0, 4, (1, 0, 8 * index), (0, 4, 0), packed)] for index in range(count)]
        return Matrices(neighbours, 8 * count, space)
    if not transposed:
        raise m.fail("matrices of bytes need .trans")
    if not load:
        return Matrices([_stored_bytes(8 * index) for index in range(count)], 8 * count, space)
    if count == 4:
        raise m.fail("there is no .x4 of these")
    loaded = [_loaded_bytes(16 * index, 8 * half, packed) for index in range(count) for half in (0, 1)]
    return Matrices(loaded, 16 * count, space)


def _of_halves(first: int, transposed: bool) -> list[Piece]:
    """Two neighbours in a row, or in a column."""
    if not transposed:
        return [Piece(0, 4, (1, 0, first), (0, 4, 0))]
    return [Piece(16 * half, 2, (0, 2, first + half), (2, 0, 0)) for half in (0, 1)]


def _loaded_bytes(first: int, column: int, packed: int) -> list[Piece]:
    """Four of a matrix's row, each in another row of memory."""
    return [Piece(8 * byte, 1, (0, 4, first + byte), (1, 0, column), packed) for byte in range(4)]


def _stored_bytes(first: int) -> list[Piece]:
    """As the sums of a product are held: two of a matrix's row, and two of the row eight below."""
    return [Piece(8 * byte, 1, (0, 2, first + byte % 2), (1, 0, byte // 2 * 8)) for byte in range(4)]


def place_of(e: FunctionEmitter, group: str, part: str, factors: tuple[int, int, int]) -> str:
    """The number of a row, or of a byte in it."""
    terms = [e.op(f"mul i32 {each}, {by}") for each, by in zip((group, part), factors, strict=False) if by]
    total = str(factors[2])
    for term in terms:
        total = e.op(f"add i32 {total}, {term}")
    return total


def fragment_items(e: FunctionEmitter, fragment: Operand, matrices: Matrices) -> list[Operand]:
    """The registers of a fragment."""
    items = items_of(fragment)
    if len(items) != len(matrices.registers):
        raise e.fail("a fragment has the wrong length")
    return items


@opcode("ldmatrix", "stmatrix")
def ldmatrix(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    load = i.opcode == "ldmatrix"
    matrices = take_matrices(m, load)
    first, second = e.operands(2)
    fragment, address = (first, second) if load else (second, first)
    items = fragment_items(e, fragment, matrices)
    offsets = gather(e, [row_offset(e, address, matrices.space)])  # all lanes'
    lane = lane_of(e)
    group, part = e.op(f"lshr i32 {lane}, 2"), e.op(f"and i32 {lane}, 3")
    for item, pieces in zip(items, matrices.registers, strict=True):
        word = "0" if load else e.read_bits(item, 32)
        for piece in pieces:
            base = _row_pointer(e, offsets, place_of(e, group, part, piece.row))
            column = place_of(e, group, part, piece.column)
            if load:
                word = with_piece(e, word, piece, loaded(e, piece, column, partial(_load, e, base)))
            else:
                place = _place(e, base, column)
                kind = f"i{8 * piece.bytes}"
                e.emit(f"store {kind} {piece_of(e, word, piece)}, ptr {place}, align {piece.bytes}")
        if load:
            e.write_bits(item, 32, word)
    if not load:
        e.call("void", "sim_rt_warp_sync", "ptr %thread", "i32 -1")


def _place(e: FunctionEmitter, base: str, column: str) -> str:
    return e.op(f"getelementptr i8, ptr {base}, i64 {e.op(f'zext i32 {column} to i64')}")


def _load(e: FunctionEmitter, base: str, column: str, size: int) -> str:
    return e.op(f"load i{8 * size}, ptr {_place(e, base, column)}, align {size}")


def loaded(e: FunctionEmitter, piece: Piece, column: str, load: Callable[[str, int], str]) -> str:
    """A piece as the register has it; `load` gives so many bytes of its row from a byte on."""
    if not piece.packed:
        return load(column, piece.bytes)
    bits = piece.bytes * piece.packed
    most = bits + 8 - math.gcd(bits, 8)  # from the beginning of a byte on
    begin = e.op(f"mul i32 {column}, {piece.packed}")
    first = e.op(f"lshr i32 {begin}, 3")
    row = "0"
    for byte in range((most + 7) // 8):
        value = e.resize(load(e.op(f"add i32 {first}, {byte}"), 1), 8, 32, False)
        row = e.op(f"or i32 {row}, {e.op(f'shl i32 {value}, {8 * byte}')}")
    row = e.op(f"lshr i32 {row}, {e.op(f'and i32 {begin}, 7')}")
    word = "0"
    for index in range(piece.bytes):
        element = e.op(
            f"and i32 {e.op(f'lshr i32 {row}, {index * piece.packed}')}, {(1 << piece.packed) - 1}"
        )
        word = e.op(f"or i32 {word}, {e.op(f'shl i32 {element}, {8 * index}')}")
    return e.resize(word, 32, 8 * piece.bytes, False)


def with_piece(e: FunctionEmitter, word: str, piece: Piece, value: str) -> str:
    """The register with a piece that was loaded."""
    wide = e.resize(value, 8 * piece.bytes, 32, False)
    moved = e.op(f"shl i32 {wide}, {piece.shift}") if piece.shift else wide
    return e.op(f"or i32 {word}, {moved}")


def piece_of(e: FunctionEmitter, word: str, piece: Piece) -> str:
    """A piece of the register, which is to be stored."""
    moved = e.op(f"lshr i32 {word}, {piece.shift}") if piece.shift else word
    return e.resize(moved, 32, 8 * piece.bytes, False)


def take_movmatrix(m: Modifiers) -> None:
    for flag in ("sync", "aligned", "m8n8", "trans"):
        m.need(flag)
    if m.type().name != "b16":
        raise m.fail("elements are .b16")


@opcode("movmatrix")
def movmatrix(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    take_movmatrix(m)
    d, a = e.operands(2)
    everyone = gather(e, [e.read(a, B32)])
    lane = lane_of(e)
    group, part = e.op(f"lshr i32 {lane}, 2"), e.op(f"and i32 {lane}, 3")
    result = "0"
    for half in (0, 1):
        row = e.op(f"or i32 {e.op(f'shl i32 {part}, 1')}, {half}")
        source = e.op(f"add i32 {e.op(f'shl i32 {row}, 2')}, {e.op(f'lshr i32 {group}, 1')}")
        where = e.op(f"getelementptr i32, ptr {everyone}, i64 {e.op(f'zext i32 {source} to i64')}")
        shift = e.op(f"shl i32 {e.op(f'and i32 {group}, 1')}, 4")
        value = e.op(f"lshr i32 {e.op(f'load i32, ptr {where}, align 4')}, {shift}")
        low = e.op(f"and i32 {value}, 65535")
        result = e.op(f"or i32 {result}, {e.op(f'shl i32 {low}, {16 * half}')}")
    e.write(d, B32, result)
