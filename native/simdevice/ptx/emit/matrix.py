"""Tensor core instructions: a lane gathers its warp's fragments and computes its own part of the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..model import Address, Instruction, Operand, Register, Vector
from ..types import B32, TYPES, Type
from . import reach
from .function import FunctionEmitter
from .memory import SHARED, check_shared, check_shared_span, pointer, shared_pointer, take_space
from .modifiers import Modifiers
from .registry import opcode

# As matrix.c numbers them.
_ELEMENTS = ("f16", "bf16", "e4m3", "e5m2", "tf32", "f32", "f64", "s8", "u8", "s4", "u4", "b1", "s32")
_WMMA, _SATURATE, _XOR, _AND = 1, 2, 4, 8
_FLOATS = _ELEMENTS[: _ELEMENTS.index("f64") + 1]
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)\Z")
_WARP = 32
MOST = 4096  # elements of a matrix, as matrix.c has room for


def _shape(m: Modifiers) -> tuple[int, int, int]:
    for flag in m.flags:
        found = _SHAPE.match(flag)
        if found is not None:
            m.flags.remove(flag)
            return int(found[1]), int(found[2]), int(found[3])
    raise m.fail("a shape is missing")


def _lane(e: FunctionEmitter) -> str:
    return e.op(f"and i32 {e.thread_field('linear')}, 31")


def _items(e: FunctionEmitter, operand: Operand) -> list[Operand]:
    return operand.items if isinstance(operand, Vector) else [operand]


def _words(e: FunctionEmitter, operand: Operand, bits: int) -> list[str]:
    """A fragment as 32-bit words."""
    words = []
    for item in _items(e, operand):
        if bits == 64:
            value = e.read_bits(item, 64)
            words.append(e.op(f"trunc i64 {value} to i32"))
            words.append(e.op(f"trunc i64 {e.op(f'lshr i64 {value}, 32')} to i32"))
        else:
            words.append(e.read_bits(item, 32))
    return words


def _stored(e: FunctionEmitter, words: list[str]) -> str:
    array = e.alloca(f"[{max(len(words), 1)} x i32], align 8")
    for index, word in enumerate(words):
        e.emit(f"store i32 {word}, ptr {_at(e, array, index)}, align 4")
    return array


def _at(e: FunctionEmitter, array: str, index: int | str) -> str:
    return e.op(f"getelementptr i32, ptr {array}, i64 {index}") if index else array


def _gather(e: FunctionEmitter, words: list[str]) -> str:
    """The words of all lanes."""
    everyone = e.alloca(f"[{_WARP * len(words)} x i32], align 8")
    arguments = ("i32 -1", f"ptr {_stored(e, words)}", f"i32 {len(words)}", f"ptr {everyone}")
    e.call("void", "sim_rt_warp_gather", "ptr %thread", *arguments)
    return everyone


@dataclass
class Product:
    """D = A * B + C as the services compute it: three numbers that say which, and the fragments' words."""

    constants: tuple[int, int, int]
    a: list[str]
    b: list[str]
    c: list[str]
    results: int  # words of D


Compute = Callable[[FunctionEmitter, Product], list[str]]


def compute_part(e: FunctionEmitter, product: Product) -> list[str]:
    """This lane's words of D."""
    everyone = _gather(e, product.a + product.b)
    result = e.alloca(f"[{product.results} x i32], align 8")
    arguments = [f"i32 {each}" for each in product.constants]
    arguments += [f"i32 {_lane(e)}", f"i32 {len(product.a) + len(product.b)}", f"i32 {len(product.a)}"]
    e.call("void", "sim_mma", *arguments, f"ptr {everyone}", f"ptr {_stored(e, product.c)}", f"ptr {result}")
    return [e.op(f"load i32, ptr {_at(e, result, index)}, align 4") for index in range(product.results)]


def _multiply(
    e: FunctionEmitter,
    shape: tuple[int, int, int],
    types: tuple[Type, Type, Type, Type],
    flags: int,
    compute: Compute,
) -> None:
    """D, A, B and C are the instruction's operands. A wmma fragment may have registers to spare."""
    d_type, a_type, b_type, c_type = types
    _require_shape(e, shape, types, flags)
    d, a, b, c = e.operands(4)
    rows, columns, depth = shape
    a_count = max(1, rows * depth * a_type.bits // (32 * _WARP))
    b_count = max(1, columns * depth * b_type.bits // (32 * _WARP))
    a_words, b_words = _words(e, a, a_type.bits)[:a_count], _words(e, b, b_type.bits)[:b_count]
    c_words = _words(e, c, c_type.bits)
    c_fits = len(c_words) * 32 * _WARP == rows * columns * c_type.bits
    if (len(a_words), len(b_words)) != (a_count, b_count) or not c_fits:
        raise e.fail("a fragment has the wrong length")
    result_words = rows * columns * d_type.bits // (32 * _WARP)
    numbers = [_ELEMENTS.index(each.name) for each in (a_type, b_type, c_type, d_type)]
    packed = sum(number << 8 * index for index, number in enumerate(numbers))
    constants = (rows | columns << 8 | depth // 4 << 16, packed, flags)
    targets = _items(e, d)
    each = d_type.bits // 32 or 1
    if len(targets) * each != result_words:
        raise e.fail("a fragment has the wrong length")
    words = compute(e, Product(constants, a_words, b_words, c_words, result_words))
    for index, target in enumerate(targets):
        if each == 1:
            e.write_bits(target, 32, words[index])
            continue
        low, high = (e.op(f"zext i32 {word} to i64") for word in words[2 * index : 2 * index + 2])
        e.write_bits(target, 64, e.op(f"or i64 {low}, {e.op(f'shl i64 {high}, 32')}"))


def _require_shape(
    e: FunctionEmitter, shape: tuple[int, int, int], types: tuple[Type, Type, Type, Type], flags: int
) -> None:
    d_type, a_type, b_type, c_type = types
    for kind in types:
        if kind.name not in _ELEMENTS:
            raise e.fail(f"no matrices of .{kind.name}")
    results = ("f16", "f32", "f64") if a_type.name in _FLOATS else ("s32",)
    if d_type.name not in results or c_type.name not in results:
        raise e.fail(f"no such matrices of .{d_type.name} and .{c_type.name}")
    rows, columns, depth = shape
    if depth % 4 or max(rows, columns) > 255 or depth // 4 > 255 or rows * columns % _WARP:
        raise e.fail("no such shape")
    # Every element of a fragment lies within it: matrix.c relies on that.
    for extent, kind in ((rows, a_type), (columns, b_type)):
        if flags & _WMMA:
            part = extent * depth * kind.bits // _WARP
            fits = extent * depth % _WARP == 0 and (part <= 32 or part % 32 == 0)
        else:
            fits = extent % 8 == 0 and depth % (4 * max(1, 32 // kind.bits)) == 0
        if not fits:
            raise e.fail("no such shape")
    if (
        rows * columns * d_type.bits % (32 * _WARP)
        or rows * columns > MOST
        or max(rows, columns) * depth > MOST
    ):
        raise e.fail("no such shape")


def _bit_flags(m: Modifiers) -> int:
    flags = _SATURATE if m.flag("satfinite") else 0
    operation = m.choice("xor", "and")
    if operation:
        m.need("popc")
        flags |= _XOR if operation == "xor" else _AND
    return flags


@opcode("mma")
def mma(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    multiply(e, m, compute_part)


def multiply(e: FunctionEmitter, m: Modifiers, compute: Compute) -> None:
    """An `mma`, whose result `compute` yields."""
    m.need("sync")
    m.need("aligned")
    shape = _shape(m)
    m.need("row")
    m.need("col")
    flags = _bit_flags(m)
    m.choice("rn")
    m.drop(("kind::f8f6f4",))
    d_type, a_type, b_type, c_type = m.type(), m.type(), m.type(), m.type()
    if shape[1] != 8 or shape[0] not in (8, 16) or (shape == (8, 8, 4) and a_type.name != "f64"):
        raise e.fail("this shape is not supported")
    _multiply(e, shape, (d_type, a_type, b_type, c_type), flags, compute)


@opcode("wmma")
def wmma(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    action = m.need("load", "store", "mma")
    if action == "mma":
        multiply_wmma(e, m, compute_part)
        return
    matrix = m.need("a", "b", "c", "d")
    m.need("sync")
    m.need("aligned")
    layout = m.need("row", "col")
    rows, columns, depth = _shape(m)
    space = take_space(m)
    kind = m.type()
    # B is kept transposed, as matrix.c wants it.
    extents = {"a": (rows, depth), "b": (columns, depth)}.get(matrix, (rows, columns))
    along_rows = (layout == "row") != (matrix == "b")
    _transfer(e, action == "load", extents, along_rows, space, kind)


def multiply_wmma(e: FunctionEmitter, m: Modifiers, compute: Compute) -> None:
    """A `wmma.mma`, whose result `compute` yields."""
    flags = _bit_flags(m) | _WMMA
    m.need("sync")
    m.need("aligned")
    shape = _shape(m)
    # How A and B lay in memory matters to the loads only.
    m.flags = [flag for flag in m.flags if flag not in ("row", "col")]
    m.choice("rn", "rz", "rm", "rp")
    d_type = m.type()
    if len(m.types) == 1:
        a_type = b_type = TYPES["f16"]
    else:
        a_type, b_type = m.type(), m.type()
    _multiply(e, shape, (d_type, a_type, b_type, m.type()), flags, compute)


def _transfer(
    e: FunctionEmitter, load: bool, extents: tuple[int, int], along_rows: bool, space: str, kind: Type
) -> None:
    """Loads or stores this lane's part of a matrix."""
    operands = e.operands(2, 3)
    address, fragment = (operands[1], operands[0]) if load else (operands[0], operands[1])
    rows, columns = extents
    if kind.bits < 8 or rows * columns % _WARP:
        raise e.fail(f"no matrices of .{kind.name} of this shape")
    count = rows * columns // _WARP
    base = pointer(e, address, space, kind.bytes)
    pitch = e.read(operands[2], B32) if len(operands) == 3 else str(columns if along_rows else rows)
    stride = e.op(f"zext i32 {pitch} to i64")
    first = e.op(f"mul i32 {_lane(e)}, {count}")
    places = []
    for index in range(count):
        element = e.op(f"add i32 {first}, {index}")
        row = e.op(f"zext i32 {e.op(f'udiv i32 {element}, {columns}')} to i64")
        column = e.op(f"zext i32 {e.op(f'urem i32 {element}, {columns}')} to i64")
        line, step = (row, column) if along_rows else (column, row)
        offset = e.op(f"add i64 {e.op(f'mul i64 {line}, {stride}')}, {step}")
        place = e.op(f"getelementptr {kind.integer}, ptr {base.value}, i64 {offset}")
        if base.space in SHARED:
            check_shared_span(e, place, str(kind.bytes), base.space)
        elif base.space == "generic" and e.kernel.checked:
            at = e.op(f"ptrtoint ptr {place} to i64")
            reach.check(e, at, at, 0, base.space, kind.bytes, not load)
        places.append(place)
    (_load if load else _store)(e, fragment, places, kind)


def _load(e: FunctionEmitter, fragment: Operand, places: list[str], kind: Type) -> None:
    values = [e.op(f"load {kind.integer}, ptr {place}, align {kind.bytes}") for place in places]
    width = max(32, kind.bits)
    each = width // kind.bits
    registers = []
    for start in range(0, len(values), each):
        word = "0"
        for index, value in enumerate(values[start : start + each]):
            wide = e.resize(value, kind.bits, width, False)
            moved = e.op(f"shl i{width} {wide}, {kind.bits * index}") if index else wide
            word = e.op(f"or i{width} {word}, {moved}")
        registers.append(word)
    for index, target in enumerate(_items(e, fragment)):
        # Fragments of half floats have twice the registers they need.
        e.write_bits(target, width, registers[index % len(registers)])


def _store(e: FunctionEmitter, fragment: Operand, places: list[str], kind: Type) -> None:
    width = max(32, kind.bits)
    each = width // kind.bits
    items = _items(e, fragment)
    if len(items) * each != len(places):
        raise e.fail("a fragment has the wrong length")
    for index, place in enumerate(places):
        word = e.read_bits(items[index // each], width)
        shift = kind.bits * (index % each)
        value = e.op(f"lshr i{width} {word}, {shift}") if shift else word
        narrow = e.resize(value, width, kind.bits, False)
        e.emit(f"store {kind.integer} {narrow}, ptr {place}, align {kind.bytes}")


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


def take_matrices(m: Modifiers) -> tuple[int, bool, str]:
    """(number of matrices, whether they are transposed, state space) of ldmatrix and stmatrix."""
    m.need("sync")
    m.need("aligned")
    m.need("m8n8")
    count = int(m.need("x1", "x2", "x4")[1:])
    transposed = m.flag("trans")
    space = take_space(m)
    if m.type().name != "b16":
        raise m.fail("elements are .b16")
    return count, transposed, space


def fragment_items(e: FunctionEmitter, fragment: Operand, count: int) -> list[Operand]:
    """The registers of a fragment, one for each matrix."""
    items = _items(e, fragment)
    if len(items) != count:
        raise e.fail("a fragment has the wrong length")
    return items


@opcode("ldmatrix", "stmatrix")
def ldmatrix(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    count, transposed, space = take_matrices(m)
    first, second = e.operands(2)
    load = i.opcode == "ldmatrix"
    fragment, address = (first, second) if load else (second, first)
    items = fragment_items(e, fragment, count)
    offsets = _gather(e, [row_offset(e, address, space)])  # all lanes'
    lane = _lane(e)
    group, part = e.op(f"lshr i32 {lane}, 2"), e.op(f"and i32 {lane}, 3")
    for index, item in enumerate(items):
        places = [_element(e, offsets, group, part, 8 * index, half, transposed) for half in (0, 1)]
        if load:
            halves = [e.op(f"zext i16 {e.op(f'load i16, ptr {place}, align 2')} to i32") for place in places]
            e.write_bits(item, 32, e.op(f"or i32 {halves[0]}, {e.op(f'shl i32 {halves[1]}, 16')}"))
            continue
        word = e.read_bits(item, 32)
        for half, place in enumerate(places):
            value = e.op(f"lshr i32 {word}, 16") if half else word
            e.emit(f"store i16 {e.op(f'trunc i32 {value} to i16')}, ptr {place}, align 2")
    if not load:
        e.call("void", "sim_rt_warp_sync", "ptr %thread", "i32 -1")


def _element(
    e: FunctionEmitter, offsets: str, group: str, part: str, first: int, half: int, transposed: bool
) -> str:
    """Where the lane's half `half` of a matrix lies; its rows are those of the lanes from `first` on."""
    pair = e.op(f"or i32 {e.op(f'shl i32 {part}, 1')}, {half}")
    row, column = (pair, group) if transposed else (group, pair)
    base = _row_pointer(e, offsets, e.op(f"add i32 {row}, {first}"))
    return e.op(f"getelementptr i16, ptr {base}, i64 {e.op(f'zext i32 {column} to i64')}")


@opcode("movmatrix")
def movmatrix(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    for flag in ("sync", "aligned", "m8n8", "trans"):
        m.need(flag)
    m.type()
    d, a = e.operands(2)
    everyone = _gather(e, [e.read(a, B32)])
    lane = _lane(e)
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
