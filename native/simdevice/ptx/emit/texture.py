"""Textures and surfaces: the engine (kernel_abi.h) is given coordinates, and knows what a handle means."""

from __future__ import annotations

from ..model import Bracket, Immediate, Instruction, Operand, Pair, Register, Vector
from ..types import B32, F32, OPAQUE, S32, TYPES, Type
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode

_SHAPES = ("1d", "2d", "3d", "a1d", "a2d", "cube", "acube")
_DIMENSIONS = (1, 2, 3, 1, 2, 3, 3)  # words of coordinates behind the layer
_LAYERED = ("a1d", "a2d", "acube")
_INTEGER, _LEVEL, _GRADIENT, _HALF, _COMPONENT = 8, 16, 32, 64, 8  # as in kernel_abi.h
_OFFSET, _WORDS = 10, 13
_TEXTURE_QUERIES = {
    "width": 0,
    "height": 1,
    "depth": 2,
    "channel_data_type": 3,
    "channel_order": 4,
    "normalized_coords": 5,
    "array_size": 6,
    "num_mipmap_levels": 7,
    "num_samples": 8,
    "memory_layout": 9,
}
_OF_SURFACE = 16
_CLAMPS = ("trap", "clamp", "zero")
_OPERATIONS = ("add", "min", "max", "and", "or")


def handle(e: FunctionEmitter, operand: Operand) -> str:
    """What names a texture or surface: a number, or the address of a reference, of which the launch knows
    what was bound to it."""
    if isinstance(operand, Register) and e.register(operand.name) is None:
        place = e.place(operand.name)
        if place is not None and place.space == "kernel_param":
            return e.op(f"load i64, ptr {place.pointer}, align 8")
        if place is not None and place.space == "global":
            return e.op(f"ptrtoint ptr {place.pointer} to i64")
    return e.read_bits(operand, 64)


def _items(operand: Operand) -> list[Operand]:
    return operand.items if isinstance(operand, Vector) else [operand]


def _bracket(e: FunctionEmitter, operand: Operand) -> tuple[str, list[Operand]]:
    """The handle and the coordinates of `[handle, {…}]`. A sampler of its own is not supported."""
    if not isinstance(operand, Bracket) or len(operand.items) != 2:
        raise e.fail("[texture, coordinates] is expected; separate samplers are not supported")
    return handle(e, operand.items[0]), _items(operand.items[1])


class _Words:
    """What a service is told: words in memory, zero where nothing is said."""

    def __init__(self, e: FunctionEmitter, count: int) -> None:
        self.e = e
        self.array = e.alloca(f"[{count} x i32], align 8")
        self.count = count
        for index in range(count):
            self.put(index, "0")

    def at(self, index: int) -> str:
        return self.e.op(f"getelementptr i32, ptr {self.array}, i64 {index}")

    def put(self, index: int, value: str) -> None:
        self.e.emit(f"store i32 {value}, ptr {self.at(index)}, align 4")

    def get(self, index: int) -> str:
        return self.e.op(f"load i32, ptr {self.at(index)}, align 4")


def _bits(e: FunctionEmitter, operand: Operand, kind: Type) -> str:
    if kind.is_float and isinstance(operand, Immediate):
        return e.op(f"bitcast float {e.read(operand, F32)} to i32")
    return e.read_bits(operand, 32, kind.signed)


def _place(e: FunctionEmitter, words: _Words, shape: str, given: list[Operand], kind: Type) -> None:
    """Layer and coordinates."""
    given = list(given)
    if shape in _LAYERED:
        if not given:
            raise e.fail("a layer is missing")
        words.put(0, e.read_bits(given.pop(0), 32))
    count = _DIMENSIONS[_SHAPES.index(shape)]
    if len(given) < count:
        raise e.fail(f"{count} coordinates are needed")
    for index, each in enumerate(given[:count]):
        words.put(1 + index, _bits(e, each, kind))


def _offsets(e: FunctionEmitter, words: _Words, shape: str, more: list[Operand]) -> None:
    """Offsets in texels, if there are any. A number by itself is what depths are compared with, but nothing
    in CUDA makes such textures, or says how they compare."""
    if more and (isinstance(more[0], Vector) or _is_offset(e, shape, more[0])):
        if shape in ("cube", "acube"):
            raise e.fail("there are no offsets on a cube")
        count = _DIMENSIONS[_SHAPES.index(shape)]
        for index, each in enumerate(_items(more.pop(0))[:count]):
            words.put(_OFFSET + index, e.read_bits(each, 32))
    if more:
        raise e.fail("depth comparison is not supported")


def _is_offset(e: FunctionEmitter, shape: str, operand: Operand) -> bool:
    """Whether a number by itself is one: of one dimension it may be, and is no float."""
    if isinstance(operand, Immediate):
        return shape in ("1d", "a1d") and isinstance(operand.value, int)
    slot = e.register(operand.name) if isinstance(operand, Register) else None
    return shape in ("1d", "a1d") and slot is not None and not slot.type.is_float


def _results(e: FunctionEmitter, d: Operand, kind: Type, packed: bool, words: _Words) -> None:
    if isinstance(d, Pair):
        # All that there is is resident.
        e.write_bits(d.second, 1, "true")
        d = d.first
    items = _items(d)
    if packed:
        if len(items) != 2:
            raise e.fail("needs a vector of 2")
        for index, each in enumerate(items):
            high = e.op(f"shl i32 {words.get(2 * index + 1)}, 16")
            e.write_bits(each, 32, e.op(f"or i32 {words.get(2 * index)}, {high}"))
        return
    if len(items) != 4:
        raise e.fail("needs a vector of 4")
    for index, each in enumerate(items):
        e.write_bits(each, kind.bits, e.resize(words.get(index), 32, kind.bits, False))


def _result_type(e: FunctionEmitter, m: Modifiers) -> tuple[Type, bool]:
    vector = m.need("v4", "v2")
    kind = m.type()
    packed = kind.name == "f16x2"
    if packed != (vector == "v2") or kind.name not in ("u32", "s32", "b32", "f16", "f32", "f16x2"):
        raise e.fail(f"no texels of .{vector}.{kind.name}")
    return kind, packed


@opcode("tex")
def tex(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    mode = m.choice("base", "level", "grad")
    shape = m.need(*_SHAPES)
    kind, packed = _result_type(e, m)
    coordinate = m.type()
    if coordinate not in (S32, F32):
        raise e.fail(f"no coordinates of .{coordinate.name}")
    d, source, *more = e.operands(2, 6)
    how = _SHAPES.index(shape)
    how |= _INTEGER if coordinate is S32 else 0
    how |= _HALF if kind.name in ("f16", "f16x2") else 0
    number, given = _bracket(e, source)
    words = _Words(e, _WORDS)
    _place(e, words, shape, given, coordinate)
    if mode == "level":
        how |= _LEVEL
        if not more:
            raise e.fail("a level of detail is missing")
        level = more.pop(0)
        if coordinate is S32:
            value = e.op(f"sitofp i32 {e.read_bits(level, 32)} to float")
            words.put(4, e.op(f"bitcast float {value} to i32"))
        else:
            words.put(4, _bits(e, level, F32))
    elif mode == "grad":
        how |= _GRADIENT
        if len(more) < 2:
            raise e.fail("gradients are missing")
        for first in (4, 7):
            gradient = _items(more.pop(0))[: _DIMENSIONS[_SHAPES.index(shape)]]
            for index, each in enumerate(gradient):
                words.put(first + index, _bits(e, each, F32))
    _offsets(e, words, shape, more)
    result = _Words(e, 4)
    arguments = (f"i64 {number}", f"i32 {how}", f"ptr {words.array}", f"ptr {result.array}")
    e.call("void", "sim_rt_tex", "ptr %thread", *arguments)
    _results(e, d, kind, packed, result)


@opcode("tld4")
def tld4(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    component = "rgba".index(m.need("r", "g", "b", "a"))
    shape = m.need("2d", "a2d", "cube", "acube")
    kind, packed = _result_type(e, m)
    if m.type() is not F32:
        raise e.fail("coordinates must be .f32")
    d, source, *more = e.operands(2, 4)
    number, given = _bracket(e, source)
    words = _Words(e, _WORDS)
    _place(e, words, shape, given, F32)
    _offsets(e, words, shape, more)
    how = _SHAPES.index(shape) | component << _COMPONENT
    how |= _HALF if kind.name in ("f16", "f16x2") else 0
    result = _Words(e, 4)
    arguments = (f"i64 {number}", f"i32 {how}", f"ptr {words.array}", f"ptr {result.array}")
    e.call("void", "sim_rt_tld4", "ptr %thread", *arguments)
    _results(e, d, kind, packed, result)


@opcode("txq", "suq")
def query(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    levelled = m.flag("level")
    what = _TEXTURE_QUERIES[m.need(*_TEXTURE_QUERIES)] + (_OF_SURFACE if i.opcode == "suq" else 0)
    if m.type() is not B32:
        raise e.fail("the result must be .b32")
    d, source, *more = e.operands(3 if levelled else 2)
    name = getattr(source, "base", None)
    if name is None:
        raise e.fail("[texture] is expected")
    number = handle(e, Register(name))
    level = e.read_bits(more[0], 32) if more else "0"
    value = e.call("i32", "sim_rt_image_query", "ptr %thread", f"i64 {number}", f"i32 {what}", f"i32 {level}")
    e.write_bits(d, 32, value)


@opcode("istypep")
def istypep(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """Whether an address is that of a variable of an opaque type, whatever is bound to it."""
    kind = m.type().name
    if kind not in OPAQUE:
        raise e.fail(f"not for .{kind}")
    d, source = e.operands(2)
    address = handle(e, source)
    found = "false"
    for variable in e.kernel.module.globals:
        if variable.reference == kind:
            place = e.op(f"ptrtoint ptr {e.global_pointer(variable.index)} to i64")
            found = e.op(f"or i1 {found}, {e.op(f'icmp eq i64 {address}, {place}')}")
    e.write_bits(d, 1, found)


def _surface(e: FunctionEmitter, m: Modifiers) -> tuple[str, int]:
    """Shape and vector length of an instruction on bytes."""
    shape = m.need(*_SHAPES[:5])
    m.choice("ca", "cg", "cs", "cv", "wb", "wt")
    vector = m.choice("v2", "v4")
    return shape, int(vector[1:]) if vector else 1


def _beyond(m: Modifiers) -> int:
    found = m.choice(*_CLAMPS)
    return _CLAMPS.index(found) if found else 0


@opcode("suld")
def suld(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.need("b")
    shape, count = _surface(e, m)
    kind = m.type()
    mode = _beyond(m)
    d, source = e.operands(2)
    number, given = _bracket(e, source)
    place = _Words(e, 4)
    _place(e, place, shape, given, S32)
    value = e.alloca("[16 x i8], align 16")
    size = count * kind.bytes
    if size > 16 or kind.kind != "b":
        raise e.fail("no such access to a surface")
    arguments = (f"i64 {number}", f"i32 {mode}", f"ptr {place.array}", f"i32 {size}", f"ptr {value}")
    e.call("void", "sim_rt_suld", "ptr %thread", *arguments)
    for index, each in enumerate(_elements(e, d, count)):
        where = e.op(f"getelementptr i8, ptr {value}, i64 {index * kind.bytes}")
        e.write_bits(each, kind.bits, e.op(f"load {kind.integer}, ptr {where}, align {kind.bytes}"))


def _elements(e: FunctionEmitter, operand: Operand, count: int) -> list[Operand]:
    items = _items(operand)
    if len(items) != count:
        raise e.fail(f"needs a vector of {count}")
    return items


@opcode("sust")
def sust(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    formatted = m.need("b", "p") == "p"
    shape, count = _surface(e, m)
    kind = m.type()
    mode = _beyond(m)
    target, source = e.operands(2)
    number, given = _bracket(e, target)
    place = _Words(e, 4)
    _place(e, place, shape, given, S32)
    size = count * kind.bytes
    if size > 16 or (formatted and kind.bits != 32):
        raise e.fail("no such access to a surface")
    value = e.alloca("[16 x i8], align 16")
    e.emit(f"store i128 0, ptr {value}, align 16")
    for index, each in enumerate(_elements(e, source, count)):
        where = e.op(f"getelementptr i8, ptr {value}, i64 {index * kind.bytes}")
        e.emit(f"store {kind.integer} {e.read_bits(each, kind.bits)}, ptr {where}, align {kind.bytes}")
    start = (f"i64 {number}", f"i32 {mode}", f"ptr {place.array}")
    if formatted:
        e.call("void", "sim_rt_sust_p", "ptr %thread", *start, f"ptr {value}")
    else:
        e.call("void", "sim_rt_sust", "ptr %thread", *start, f"i32 {size}", f"ptr {value}")


@opcode("sured")
def sured(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    by_texels = m.need("b", "p") == "p"
    operation = _OPERATIONS.index(m.need(*_OPERATIONS))
    shape, count = _surface(e, m)
    kind = m.type()
    mode = _beyond(m)
    if count != 1:
        raise e.fail("one number at a time")
    if kind not in (TYPES["u32"], S32, B32, TYPES["u64"], TYPES["s64"], TYPES["b64"]):
        raise e.fail(f"no .{kind.name} in a surface")
    target, source = e.operands(2)
    number, given = _bracket(e, target)
    place = _Words(e, 4)
    _place(e, place, shape, given, S32)
    value = e.resize(e.read_bits(source, kind.bits), kind.bits, 64, kind.signed)
    start = (f"i64 {number}", f"i32 {mode}", f"ptr {place.array}", f"i32 {operation}")
    by = (f"i32 {kind.bytes}", f"i64 {value}")
    if by_texels:
        e.call("void", "sim_rt_sured_p", "ptr %thread", *start, *by)
    else:
        e.call("void", "sim_rt_sured", "ptr %thread", *start, f"i32 {int(kind.signed)}", *by)
