"""Tensor cores: a lane gathers its warp's fragments and computes its own part of the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .. import isa
from ..model import Immediate, Instruction, Operand, Vector
from ..types import B32, TYPES, Type
from . import numbers, reach
from .function import FunctionEmitter
from .memory import check_shared_span, pointer
from .modifiers import Modifiers
from .registry import opcode
from .spaces import SHARED, take_space

# As fragments.h numbers them.
_ELEMENTS = (
    *("f16", "bf16", "e4m3", "e5m2", "tf32", "e2m1", "e2m3", "e3m2", "f32", "f64"),
    *("s8", "u8", "s4", "u4", "b1", "s32"),
)
_WMMA, _SATURATE, _XOR, _AND = 1, 2, 4, 8
_MODE, _SELECTOR = 4, 6  # shifts
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)\Z")
_WARP = 32
_GATHERED = 24  # words of a lane, SIM_MOST_GATHERED of kernel_abi.h
MOST = 4096  # elements of a matrix, as matrix.c has room for
_LONGEST = 32  # extent of one in memory: rows that lie 2^32 elements apart stay within reach.MARGIN


def take_shape(m: Modifiers) -> tuple[int, int, int]:
    for flag in m.flags:
        found = _SHAPE.match(flag)
        if found is not None:
            m.flags.remove(flag)
            return int(found[1]), int(found[2]), int(found[3])
    raise m.fail("a shape is missing")


def lane_of(e: FunctionEmitter) -> str:
    return e.op(f"and i32 {e.thread_field('linear')}, 31")


def items_of(operand: Operand) -> list[Operand]:
    return operand.items if isinstance(operand, Vector) else [operand]


def words_of(e: FunctionEmitter, operand: Operand, bits: int) -> list[str]:
    """A fragment as 32-bit words."""
    words = []
    for item in items_of(operand):
        if bits == 64:
            value = e.read_bits(item, 64)
            words.append(e.op(f"trunc i64 {value} to i32"))
            words.append(e.op(f"trunc i64 {e.op(f'lshr i64 {value}, 32')} to i32"))
        else:
            words.append(e.read_bits(item, 32))
    return words


def stored(e: FunctionEmitter, words: list[str]) -> str:
    array = e.alloca(f"[{max(len(words), 1)} x i32], align 8")
    for index, word in enumerate(words):
        e.emit(f"store i32 {word}, ptr {_at(e, array, index)}, align 4")
    return array


def _at(e: FunctionEmitter, array: str, index: int | str) -> str:
    return e.op(f"getelementptr i32, ptr {array}, i64 {index}") if index else array


def gather(e: FunctionEmitter, words: list[str]) -> str:
    """The words of all lanes."""
    if len(words) > _GATHERED:
        raise e.fail("no such shape")
    everyone = e.alloca(f"[{_WARP * len(words)} x i32], align 8")
    arguments = ("i32 -1", f"ptr {stored(e, words)}", f"i32 {len(words)}", f"ptr {everyone}")
    e.call("void", "sim_rt_warp_gather", "ptr %thread", *arguments)
    return everyone


@dataclass
class Product:
    """D = A * B + C as the services compute it: three numbers that say which, and the fragments' words."""

    constants: tuple[int, int, int]
    a: list[str]
    b: list[str]
    c: list[str]
    metadata: list[str]  # of a sparse A, which is half as large; empty: it is dense
    results: int  # words of D


Compute = Callable[[FunctionEmitter, Product], list[str]]


def compute_part(e: FunctionEmitter, product: Product) -> list[str]:
    """This lane's words of D."""
    given = product.a + product.b + product.metadata
    everyone = gather(e, given)
    result = e.alloca(f"[{product.results} x i32], align 8")
    arguments = [f"i32 {each}" for each in product.constants]
    arguments += [f"i32 {lane_of(e)}", f"i32 {len(given)}", f"i32 {len(product.a)}"]
    arguments += [f"ptr {everyone}", f"ptr {stored(e, product.c)}", f"ptr {result}"]
    e.call("void", "sim_mma_sparse" if product.metadata else "sim_mma", *arguments)
    return loaded(e, result, product.results)


def loaded(e: FunctionEmitter, array: str, count: int) -> list[str]:
    """The words of an array."""
    return [e.op(f"load i32, ptr {_at(e, array, index)}, align 4") for index in range(count)]


@dataclass(frozen=True)
class Kinds:
    """What the elements of the four matrices are."""

    d: Type
    a: Type
    b: Type
    c: Type


def write_product(
    e: FunctionEmitter,
    shape: tuple[int, int, int],
    kinds: Kinds,
    flags: int,
    compute: Compute,
    sparse: bool = False,
) -> None:
    """D, A, B and C are the instruction's operands, of a sparse A also its metadata and who has them. A wmma
    fragment may have registers to spare."""
    _require_shape(e, shape, kinds, flags, sparse)
    d, a, b, c, *rest = e.operands(6 if sparse else 4)
    rows, columns, depth = shape
    a_count = max(1, rows * depth * kinds.a.bits // (32 * _WARP)) // (2 if sparse else 1)
    b_count = max(1, columns * depth * kinds.b.bits // (32 * _WARP))
    a_words, b_words = words_of(e, a, kinds.a.bits), words_of(e, b, kinds.b.bits)
    if flags & _WMMA:
        a_words, b_words = a_words[:a_count], b_words[:b_count]
    c_words = words_of(e, c, kinds.c.bits)
    c_fits = len(c_words) * 32 * _WARP == rows * columns * kinds.c.bits
    if (len(a_words), len(b_words)) != (a_count, b_count) or not c_fits:
        raise e.fail("a fragment has the wrong length")
    metadata = []
    if sparse:
        metadata = [e.read_bits(rest[0], 32)]
        flags |= _selector(e, rest[1], depth, kinds.a.bits) << _SELECTOR
    result_words = rows * columns * kinds.d.bits // (32 * _WARP)
    constants = constants_of(shape, kinds, flags)
    product = Product(constants, a_words, b_words, c_words, metadata, result_words)
    write_fragment(e, d, kinds.d, result_words, lambda: compute(e, product))


def constants_of(shape: tuple[int, int, int], kinds: Kinds, flags: int) -> tuple[int, int, int]:
    """What a service is told of a product."""
    rows, columns, depth = shape
    codes = [_ELEMENTS.index(each.name) for each in (kinds.a, kinds.b, kinds.c, kinds.d)]
    packed = sum(number << 8 * index for index, number in enumerate(codes))
    return rows | columns << 8 | depth // 4 << 16, packed, flags


def write_fragment(
    e: FunctionEmitter, fragment: Operand, kind: Type, count: int, compute: Callable[[], list[str]]
) -> None:
    """Stores the words that are computed in the registers of a fragment."""
    targets = items_of(fragment)
    each = kind.bits // 32 or 1
    if len(targets) * each != count:
        raise e.fail("a fragment has the wrong length")
    words = compute()
    for index, target in enumerate(targets):
        if each == 1:
            e.write_bits(target, 32, words[index])
            continue
        low, high = (e.op(f"zext i32 {word} to i64") for word in words[2 * index : 2 * index + 2])
        e.write_bits(target, 64, e.op(f"or i64 {low}, {e.op(f'shl i64 {high}, 32')}"))


def _selector(e: FunctionEmitter, operand: Operand, depth: int, bits: int) -> int:
    """Which lanes of each four have the metadata: the number of a lane, of a pair, or 0 for all."""
    row = depth // (2 if bits == 32 else 8 if bits == 4 else 4) * 4  # bits of metadata
    lanes = row // 16 if bits >= 16 else row // 32 * 2
    if not isinstance(operand, Immediate) or not isinstance(operand.value, int):
        raise e.fail("a sparsity selector is a constant")
    if not 0 <= operand.value < 4 // lanes:
        raise e.fail(f"there is no sparsity selector {operand.value}")
    return operand.value


def _require_shape(
    e: FunctionEmitter, shape: tuple[int, int, int], kinds: Kinds, flags: int, sparse: bool
) -> None:
    a, b, sums = kinds.a.name, kinds.b.name, {kinds.d.name, kinds.c.name}
    if b not in isa.FACTORS.get(a, ()) or not sums <= isa.SUMS[a]:
        raise e.fail(f"no product of .{a} and .{b} is a matrix of .{kinds.d.name} and .{kinds.c.name}")
    rows, columns, depth = shape
    if depth % 4 or max(rows, columns) > 255 or depth // 4 > 255 or rows * columns % _WARP:
        raise e.fail("no such shape")
    # Every element of a fragment lies within it: matrix.c relies on that.
    for extent, held, kind in ((rows, depth // 2 if sparse else depth, kinds.a), (columns, depth, kinds.b)):
        if flags & _WMMA:
            part = extent * held * kind.bits // _WARP
            fits = extent * held % _WARP == 0 and (part <= 32 or part % 32 == 0)
        else:
            fits = extent % 8 == 0 and held % (4 * max(1, 32 // kind.bits)) == 0
        if not fits:
            raise e.fail("no such shape")
    if (
        rows * columns * kinds.d.bits % (32 * _WARP)
        or rows * columns > MOST
        or max(rows, columns) * depth > MOST
    ):
        raise e.fail("no such shape")


def take_flags(m: Modifiers, kinds: Kinds) -> int:
    """How elements are multiplied and added, each word with the types that it is for."""
    if kinds.a.name == "b1":
        m.need("popc")
        return _XOR if m.need("xor", "and") == "xor" else _AND
    if kinds.a.name == "f64":
        return numbers.MODES[m.choice(*numbers.MODES) or "rn"] << _MODE
    return _SATURATE if kinds.d.name == "s32" and m.flag("satfinite") else 0


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
    rows, columns, depth = take_shape(m)
    space = take_space(m)
    kind = m.type()
    # B is kept transposed, as matrix.c wants it.
    extents = {"a": (rows, depth), "b": (columns, depth)}.get(matrix, (rows, columns))
    along_rows = (layout == "row") != (matrix == "b")
    _transfer(e, action == "load", extents, along_rows, space, kind)


def multiply_wmma(e: FunctionEmitter, m: Modifiers, compute: Compute) -> None:
    """A `wmma.mma`, whose result `compute` yields."""
    m.need("sync")
    m.need("aligned")
    shape = take_shape(m)
    layouts = [m.need("row", "col") for _ in "ab"]
    d_type = m.type()
    factors = (TYPES["f16"], TYPES["f16"]) if len(m.types) == 1 else (m.type(), m.type())
    kinds = Kinds(d_type, *factors, m.type())
    # How A and B lay in memory matters to the loads only.
    if kinds.a.bits < 8 and layouts != ["row", "col"]:
        raise e.fail(f"matrices of .{kinds.a.name} are .row and .col")
    write_product(e, shape, kinds, take_flags(m, kinds) | _WMMA, compute)


def _transfer(
    e: FunctionEmitter, load: bool, extents: tuple[int, int], along_rows: bool, space: str, kind: Type
) -> None:
    """Loads or stores this lane's part of a matrix."""
    operands = e.operands(2, 3)
    address, fragment = (operands[1], operands[0]) if load else (operands[0], operands[1])
    rows, columns = extents
    pitch = e.read(operands[2], B32) if len(operands) == 3 else str(columns if along_rows else rows)
    if kind.name in ("s4", "u4", "b1") and load and along_rows:
        # Words of several elements; a row begins with a word.
        each = 32 // kind.bits
        pitch, columns, kind = e.op(f"udiv i32 {pitch}, {each}"), columns // each, B32
    if kind.bits < 8 or rows * columns % _WARP or max(rows, columns) > _LONGEST:
        raise e.fail(f"no matrices of .{kind.name} of this shape")
    count = rows * columns // _WARP
    base = pointer(e, address, space, kind.bytes)
    if base.space not in ("global", "generic", *SHARED):
        raise e.fail("matrices lie in global or in shared memory")
    stride = e.op(f"zext i32 {pitch} to i64")
    first = e.op(f"mul i32 {lane_of(e)}, {count}")
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
    for index, target in enumerate(items_of(fragment)):
        # Fragments of half floats have twice the registers they need.
        e.write_bits(target, width, registers[index % len(registers)])


def _store(e: FunctionEmitter, fragment: Operand, places: list[str], kind: Type) -> None:
    width = max(32, kind.bits)
    each = width // kind.bits
    items = items_of(fragment)
    if len(items) * each != len(places):
        raise e.fail("a fragment has the wrong length")
    for index, place in enumerate(places):
        word = e.read_bits(items[index // each], width)
        shift = kind.bits * (index % each)
        value = e.op(f"lshr i{width} {word}, {shift}") if shift else word
        narrow = e.resize(value, width, kind.bits, False)
        e.emit(f"store {kind.integer} {narrow}, ptr {place}, align {kind.bytes}")
