"""Loads and stores of a warp.

Lanes that touch neighbours are the rule: where the addresses follow each other it is one load of a vector.
Else a function of the kernel's own (`_elsewhere`) checks every lane and gathers. Parameters of functions
lie word by word: a word of all lanes, then the next, so that LLVM sees through calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..emit import reach
from ..emit.function import Place
from ..emit.memory import (
    Access,
    bits_to_store,
    elements,
    is_sink,
    require_space,
    take_load,
    take_store,
)
from ..emit.modifiers import Modifiers
from ..emit.spaces import keep_constants, read_address
from ..model import Address, Instruction, Operand
from ..types import Type
from .function import Unsuitable, WarpEmitter
from .helpers import OWN, helper
from .neighbours import Numbers, Row
from .registry import warp_opcode
from .widen import WARP, vector

_MASK = vector("i1")
_HALF = WARP // 2
_LINE = 64  # of the cache
_ROUNDS_AHEAD = 16


# Parameters


def load_parameter(e: WarpEmitter, place: Place, offset: int, bits: int) -> str:
    """`bits` of every lane's parameter at an offset that is a multiple of their size."""
    if bits > 32:
        words = [load_parameter(e, place, offset + 4 * index, 32) for index in range(bits // 32)]
        value = e.op(f"zext i32 {words[0]} to i{bits}")
        for index, word in enumerate(words[1:], 1):
            high = e.op(f"shl i{bits} {e.op(f'zext i32 {word} to i{bits}')}, {32 * index}")
            value = e.op(f"or i{bits} {value}, {high}")
        return value
    where = e.raw_op(f"getelementptr i32, ptr {place.pointer}, i64 {offset // 4 * WARP}")
    word = e.raw_op(f"load {vector('i32')}, ptr {where}, align 64", "i32")
    if offset % 4:
        word = e.op(f"lshr i32 {word}, {offset % 4 * 8}")
    return e.resize(word, 32, bits, False)


def store_parameter(e: WarpEmitter, place: Place, offset: int, bits: int, value: str) -> None:
    if bits > 32:
        for index in range(bits // 32):
            part = e.op(f"lshr i{bits} {value}, {32 * index}") if index else value
            store_parameter(e, place, offset + 4 * index, 32, e.op(f"trunc i{bits} {part} to i32"))
        return
    where = e.raw_op(f"getelementptr i32, ptr {place.pointer}, i64 {offset // 4 * WARP}")
    old = e.raw_op(f"load {vector('i32')}, ptr {where}, align 64", "i32")
    word = e.resize(value, bits, 32, False)
    if bits < 32:
        shift = offset % 4 * 8
        kept = e.op(f"and i32 {old}, {~(((1 << bits) - 1) << shift) & 0xFFFFFFFF}")
        word = e.op(f"or i32 {kept}, {e.op(f'shl i32 {word}, {shift}')}")
    both = f"{vector('i32')} {e.spread('i32', word)}, {vector('i32')} {old}"
    chosen = e.raw_op(f"select {_MASK} {e.mask}, {both}")
    e.raw(f"store {vector('i32')} {chosen}, ptr {where}, align 64")


def _parameter(e: WarpEmitter, operand: Operand, size: int) -> tuple[Place, int] | None:
    """The function's parameter that an access names, and where in it."""
    if not isinstance(operand, Address) or operand.base is None:
        return None
    place = e.lookup(operand.base)
    if not isinstance(place, Place) or place.space != "param":
        return None
    offset = place.offset(operand)
    if not 0 <= offset <= place.size - size:
        raise Unsuitable("beyond a parameter")
    return place, offset


# Addresses


def _address(e: WarpEmitter, operand: Operand, space: str, size: int) -> tuple[str, str] | None:
    """The lanes' addresses, of 32 bits in shared memory, else of 64, and their state space; None: all lanes
    have one. A local variable that is named is OWN, wherever it lies."""
    if not isinstance(operand, Address) or operand.base is None:
        return None
    bits = 32 if space == "shared" else 64
    if e.register(operand.base) is None:
        place = e.place(operand.base)
        if place is None or not e.varies(place.pointer):
            return None
        require_space(e, operand.base, place, space)
        offset = place.offset(operand)
        if not 0 <= offset <= place.size - size:
            raise Unsuitable("beyond a variable")
        where = e.op(f"getelementptr i8, ptr {place.pointer}, i64 {offset}")
        return e.op(f"ptrtoint ptr {where} to i64"), OWN if e.kernel.checked else space
    if operand.index:
        raise e.fail(f"{operand.base} is no array")
    address = read_address(e, operand.base, space)
    if not e.varies(address):
        return None
    if space == "cluster":
        address = e.resize(address, 32, 64, False)
    if e.kernel.checked:
        address = e.op(f"freeze i{bits} {address}")
    return e.op(f"add i{bits} {address}, {operand.offset}") if operand.offset else address, space


def _neighbours(e: WarpEmitter, address: str, space: str, size: int, row: Row | None) -> tuple[str, str]:
    """(whether the lanes' addresses follow each other and are in order, the address of lane 0)."""
    bits = 32 if space == "shared" else 64
    lanes = e.bits(e.mask)
    for name in ("cttz", "ctlz"):
        e.kernel.declare(f"llvm.{name}.i32", f"i32 @llvm.{name}.i32(i32, i1)")
    if row is None:
        first, lowest, zero, good = _compared(e, address, space, size, lanes)
    else:
        zero, good = row.first, row.good
        first = e.raw_op(f"call i32 @llvm.cttz.i32(i32 {lanes}, i1 false)")
        before = e.resize(e.raw_op(f"mul i32 {first}, {size}"), 32, bits, False)
        lowest = e.raw_op(f"add i{bits} {zero}, {before}")
    if size > 1:
        low = e.raw_op(f"and i{bits} {zero if row else lowest}, {size - 1}")
        aligned = e.raw_op(f"icmp eq i{bits} {low}, 0")
        good = e.raw_op(f"and i1 {good}, {aligned}")
    if space == "shared":
        last = e.raw_op(f"sub i32 31, {e.raw_op(f'call i32 @llvm.ctlz.i32(i32 {lanes}, i1 false)')}")
        begin = e.raw_op(f"zext i32 {lowest} to i64")
        span = e.raw_op(f"mul i32 {e.raw_op(f'sub i32 {last}, {first}')}, {size}")
        end = e.raw_op(f"add i64 {begin}, {e.raw_op(f'zext i32 {span} to i64')}")
        inside = e.raw_op(f"icmp ule i64 {e.raw_op(f'add i64 {end}, {size}')}, {e.shared_limit()}")
        good = e.raw_op(f"and i1 {good}, {inside}")
        # Lanes that a mask leaves out may lie before shared memory begins.
        return good, e.raw_op(f"sext i32 {zero} to i64")
    if e.kernel.checked and space != OWN:
        inside = reach.in_device(e, lowest)
        good = e.raw_op(f"and i1 {good}, {inside}")
        if space == "local":
            good = "false"
    return good, zero


def _compared(e: WarpEmitter, address: str, space: str, size: int, lanes: str) -> tuple[str, str, str, str]:
    """(the first lane that is there, its address, that of lane 0, whether all lanes' follow it)."""
    bits = 32 if space == "shared" else 64
    first, lowest = (_first_of if space == "shared" else _first_foreseen)(e, address, lanes)
    first_bytes = e.raw_op(f"mul i32 {first}, {size}")
    if bits == 64:
        first_bytes = e.raw_op(f"zext i32 {first_bytes} to i64")
    zero = e.raw_op(f"sub i{bits} {lowest}, {first_bytes}")
    steps = "<" + ", ".join(f"i{bits} {lane * size}" for lane in range(WARP)) + ">"
    expected = e.raw_op(f"add {vector(f'i{bits}')} {e.spread(f'i{bits}', zero)}, {steps}")
    same = e.raw_op(f"icmp eq {vector(f'i{bits}')} {address}, {expected}")
    idle = e.raw_op(f"xor {_MASK} {e.mask}, splat (i1 true)")
    follows = e.raw_op(f"icmp eq i32 {e.bits(e.raw_op(f'or {_MASK} {same}, {idle}'))}, -1")
    return first, lowest, zero, follows


def _row(e: WarpEmitter, operand: Operand, address: str, space: str, kind: Type, count: int) -> Row | None:
    """What is known of the lanes' addresses, if they may follow each other."""
    numbers = e.numbers
    if space in (OWN, "local", "cluster") or not isinstance(operand, Address):
        return None
    if not isinstance(numbers, Numbers):
        return None
    return numbers.row(operand, 32 if space == "shared" else 64, kind.bytes * count)


def _first_of(e: WarpEmitter, address: str, lanes: str) -> tuple[str, str]:
    """(the first lane that is there, its address)."""
    first = e.raw_op(f"and i32 {e.raw_op(f'call i32 @llvm.cttz.i32(i32 {lanes}, i1 false)')}, 31")
    return first, e.element(address, first)


def _first_foreseen(e: WarpEmitter, address: str, lanes: str) -> tuple[str, str]:
    """The same, where it is mostly lane 0 by a branch: an element that is chosen by number takes a way
    through memory. The branch takes time to compile, so it is for memory that is far away."""
    slots = e.alloca("i32"), e.alloca("i64")
    zero, other, done = e.label(), e.label(), e.label()

    def keep(first: str, lowest: str) -> None:
        e.raw(f"store i32 {first}, ptr {slots[0]}")
        e.raw(f"store i64 {lowest}, ptr {slots[1]}")

    e.branch_if(e.raw_op(f"trunc i32 {lanes} to i1"), zero, other)
    e.open(zero)
    keep("0", e.element(address, "0"))
    e.branch(done)
    e.open(other)
    keep(*_first_of(e, address, lanes))
    e.open(done)
    return e.raw_op(f"load i32, ptr {slots[0]}"), e.raw_op(f"load i64, ptr {slots[1]}")


def _pointer(e: WarpEmitter, address: str, space: str) -> str:
    """A host pointer from an address of 64 bits."""
    if space == "shared":
        return e.raw_op(f"getelementptr i8, ptr {e.block_field('shared')}, i64 {address}")
    return e.raw_op(f"inttoptr i64 {address} to ptr")


def _masked(e: WarpEmitter, kind: str, load: bool) -> str:
    name = f"llvm.masked.{'load' if load else 'store'}.v{WARP}{kind}.p0"
    if load:
        text = f"{vector(kind)} @{name}(ptr, i32 immarg, {_MASK}, {vector(kind)})"
    else:
        text = f"void @{name}({vector(kind)}, ptr, i32 immarg, {_MASK})"
    e.kernel.declare(name, text)
    return name


def load_each(
    e: WarpEmitter, address: str, space: str, kind: Type, count: int = 1, row: Row | None = None
) -> list[str]:
    """`count` values, one behind the other, from every lane's address. `row`: what is known of those."""
    t, size = kind.integer, kind.bytes
    if kind.bits > 64 or not e.is_small:
        return _elsewhere_load(e, address, space, kind, count)
    good, zero = _neighbours(e, address, space, size * count, row)
    slots = [e.alloca(vector(t)) for _ in range(count)]
    near, far, done = e.label(), e.label(), e.label()
    e.branch_if(_whole(e, good, count), near, far)
    e.open(near)
    where = _pointer(e, zero, space)
    if space == "global" and e.repeats:
        _foresee(e, zero, size * count * WARP)
    if count == 1:
        given = f"ptr {where}, i32 {size}, {_MASK} {e.mask}, {vector(t)} poison"
        values = [e.raw_op(f"call {vector(t)} @{_masked(e, t, True)}({given})")]
    else:
        values = _apart(e, e.raw_op(f"load <{WARP * count} x {t}>, ptr {where}, align {size}"), t, count)
    for slot, value in zip(slots, values, strict=True):
        e.raw(f"store {vector(t)} {value}, ptr {slot}")
    e.branch(done)
    e.open(far)
    if row is not None:
        address = row.addresses()
    if row is None or not row.sure:
        _load_halves(e, address, space, kind, slots, done)
    for slot, value in zip(slots, _elsewhere_load(e, address, space, kind, count), strict=True):
        e.raw(f"store {vector(t)} {value}, ptr {slot}")
    e.open(done)
    return [e.raw_op(f"load {vector(t)}, ptr {slot}", t) for slot in slots]


def _foresee(e: WarpEmitter, address: str, size: int) -> None:
    """Asks for what the loop will load if it goes on as since the last time: grids stride over pages, where
    the processor foresees nothing."""
    e.kernel.declare("llvm.prefetch.p0", "void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)")
    last = e.alloca("i64")
    e.entry.append(f"  store i64 0, ptr {last}")
    stride = e.raw_op(f"sub i64 {address}, {e.raw_op(f'load i64, ptr {last}')}")
    e.raw(f"store i64 {address}, ptr {last}")
    ahead = e.raw_op(f"add i64 {address}, {e.raw_op(f'mul i64 {stride}, {_ROUNDS_AHEAD}')}")
    for offset in range(0, size, _LINE):
        where = e.raw_op(f"inttoptr i64 {e.raw_op(f'add i64 {ahead}, {offset}')} to ptr")
        e.raw(f"call void @llvm.prefetch.p0(ptr {where}, i32 0, i32 3, i32 1)")


def store_each(
    e: WarpEmitter, address: str, space: str, kind: Type, values: list[str], row: Row | None = None
) -> None:
    t, size, count = kind.integer, kind.bytes, len(values)
    if space == "generic":
        keep_constants(e, address)
    wide = [e.spread(t, value) for value in values]
    if kind.bits > 64 or not e.is_small:
        _elsewhere_store(e, address, space, kind, wide)
        return
    good, zero = _neighbours(e, address, space, size * count, row)
    near, far, done = e.label(), e.label(), e.label()
    e.branch_if(_whole(e, good, count), near, far)
    e.open(near)
    to = _pointer(e, zero, space)
    if count == 1:
        given = f"{vector(t)} {wide[0]}, ptr {to}, i32 {size}, {_MASK} {e.mask}"
        e.raw(f"call void @{_masked(e, t, False)}({given})")
    else:
        e.raw(f"store <{WARP * count} x {t}> {_together(e, wide, t)}, ptr {to}, align {size}")
    e.branch(done)
    e.open(far)
    if row is not None:
        address = row.addresses()
    _elsewhere_store(e, address, space, kind, wide)
    e.open(done)


@dataclass
class _Half:
    """Sixteen lanes: the address of the first, and whether the others' are the same, or follow it."""

    base: str
    same: str
    near: str


def _half(e: WarpEmitter, address: str, first: int, t: str, size: int) -> _Half:
    wide, part = vector(t), f"<{_HALF} x {t}>"
    chosen = ", ".join(f"i32 {first + lane}" for lane in range(_HALF))
    lanes = e.raw_op(f"shufflevector {wide} {address}, {wide} poison, <{_HALF} x i32> <{chosen}>")
    base = e.raw_op(f"extractelement {wide} {address}, i32 {first}")
    every = e.raw_op(f"shufflevector {part} {lanes}, {part} poison, <{_HALF} x i32> zeroinitializer")
    steps = "<" + ", ".join(f"{t} {lane * size}" for lane in range(_HALF)) + ">"
    following = e.raw_op(f"add {part} {every}, {steps}")
    found = []
    for expected in (every, following):
        equal = e.raw_op(f"icmp eq {part} {lanes}, {expected}")
        bits = e.raw_op(f"bitcast <{_HALF} x i1> {equal} to i{_HALF}")
        found.append(e.raw_op(f"icmp eq i{_HALF} {bits}, -1"))
    return _Half(base, found[0], found[1])


def _load_halves(e: WarpEmitter, address: str, space: str, kind: Type, slots: list[str], done: str) -> None:
    """Where all lanes are there, and each half is at one address or, in blocks of 16 columns, in one row."""
    t, size, at = kind.integer, kind.bytes, _address_type(space)
    if e.kernel.checked:
        return
    reach_of = size * len(slots)
    low, high = (_half(e, address, first, at, size) for first in (0, _HALF))
    good = e.raw_op(f"icmp eq i32 {e.bits(e.mask)}, -1")
    crooked = e.raw_op(f"and {at} {e.raw_op(f'or {at} {low.base}, {high.base}')}, {reach_of - 1}")
    good = e.raw_op(f"and i1 {good}, {e.raw_op(f'icmp eq {at} {crooked}, 0')}")
    begins = [low.base, high.base]
    if space == "shared":
        begins = [e.raw_op(f"zext i32 {base} to i64") for base in begins]

    def inside(size: int) -> str:
        """Whether every lane is there and what is read lies in the state space."""
        inside = good
        for begin in begins if space == "shared" else ():
            end = e.raw_op(f"add i64 {begin}, {size}")
            inside = e.raw_op(f"and i1 {inside}, {e.raw_op(f'icmp ule i64 {end}, {e.shared_limit()}')}")
        return inside

    pointers = [_pointer(e, begin, space) for begin in begins]
    part, everyone = f"<{_HALF} x {t}>", ", ".join(f"i32 {lane}" for lane in range(WARP))

    def join(slot: str, halves: list[str]) -> None:
        both = f"{part} {halves[0]}, {part} {halves[1]}"
        joined = e.raw_op(f"shufflevector {both}, <{WARP} x i32> <{everyone}>")
        e.raw(f"store {vector(t)} {joined}, ptr {slot}")

    if len(slots) == 1:
        rows, on = e.label(), e.label()
        together = e.raw_op(f"and i1 {inside(_HALF * size)}, {e.raw_op(f'and i1 {low.near}, {high.near}')}")
        e.branch_if(together, rows, on)
        e.open(rows)
        join(slots[0], [e.raw_op(f"load {part}, ptr {pointer}, align {size}") for pointer in pointers])
        e.branch(done)
        e.open(on)
    ones, on = e.label(), e.label()
    together = e.raw_op(f"and i1 {inside(reach_of)}, {e.raw_op(f'and i1 {low.same}, {high.same}')}")
    e.branch_if(together, ones, on)
    e.open(ones)
    for index, slot in enumerate(slots):
        halves = []
        for pointer in pointers:
            where = e.raw_op(f"getelementptr {t}, ptr {pointer}, i64 {index}")
            value = e.raw_op(f"load {t}, ptr {where}, align {size}")
            first = e.raw_op(f"insertelement {part} poison, {t} {value}, i64 0")
            halves.append(
                e.raw_op(f"shufflevector {part} {first}, {part} poison, <{_HALF} x i32> zeroinitializer")
            )
        join(slot, halves)
    e.branch(done)
    e.open(on)


def _whole(e: WarpEmitter, good: str, count: int) -> str:
    """Several values of a lane are moved together only if all lanes are there."""
    if count == 1:
        return good
    everyone = e.raw_op(f"icmp eq i32 {e.bits(e.mask)}, -1")
    return e.raw_op(f"and i1 {good}, {everyone}")


def _apart(e: WarpEmitter, value: str, kind: str, count: int) -> list[str]:
    wide = f"<{WARP * count} x {kind}>"
    parts = []
    for index in range(count):
        chosen = ", ".join(f"i32 {index + lane * count}" for lane in range(WARP))
        parts.append(e.raw_op(f"shufflevector {wide} {value}, {wide} poison, <{WARP} x i32> <{chosen}>"))
    return parts


def _together(e: WarpEmitter, values: list[str], kind: str) -> str:
    count = len(values)
    length = WARP
    joined = list(values)
    while len(joined) > 1:
        chosen = ", ".join(f"i32 {lane}" for lane in range(2 * length))
        joined = [
            e.raw_op(
                f"shufflevector <{length} x {kind}> {joined[at]}, <{length} x {kind}> {joined[at + 1]}, "
                f"<{2 * length} x i32> <{chosen}>"
            )
            for at in range(0, len(joined), 2)
        ]
        length *= 2
    chosen = ", ".join(f"i32 {lane + part * WARP}" for lane in range(WARP) for part in range(count))
    wide = f"<{length} x {kind}>"
    return e.raw_op(f"shufflevector {wide} {joined[0]}, {wide} poison, <{length} x i32> <{chosen}>")


def _elsewhere_load(e: WarpEmitter, address: str, space: str, kind: Type, count: int) -> list[str]:
    name = helper(e.kernel, space, kind.bits, True)
    values = []
    for place in _places(e, address, space, kind, count):
        given = f"ptr %warp, {vector(_address_type(space))} {place}, {_MASK} {e.mask}"
        values.append(e.raw_op(f"call {vector(kind.integer)} @{name}({given})", kind.integer))
    return values


def _elsewhere_store(e: WarpEmitter, address: str, space: str, kind: Type, values: list[str]) -> None:
    name = helper(e.kernel, space, kind.bits, False)
    t = vector(kind.integer)
    for place, value in zip(_places(e, address, space, kind, len(values)), values, strict=True):
        given = f"ptr %warp, {vector(_address_type(space))} {place}, {_MASK} {e.mask}, {t} {value}"
        e.raw(f"call void @{name}({given})")


def _address_type(space: str) -> str:
    return "i32" if space == "shared" else "i64"


def _places(e: WarpEmitter, address: str, space: str, kind: Type, count: int) -> list[str]:
    """The addresses of the parts of an access, whose alignment as a whole is checked here."""
    t = _address_type(space)
    if count > 1:
        low = e.op(f"and {t} {address}, {kind.bytes * count - 1}")
        wrong = e.op(f"icmp ne {t} {low}, 0")
        e.stop_if(
            wrong, "sim_rt_misaligned", f"i64 {e.resize(address, 32 if space == 'shared' else 64, 64, False)}"
        )
    return [e.op(f"add {t} {address}, {index * kind.bytes}") if index else address for index in range(count)]


def _in_turns(access: Access) -> bool:
    """Whether each lane moves its own: what another block has, which is rare, and what has to move as a
    whole, since a gather takes a vector's elements one by one. In the block's shared memory nobody looks
    meanwhile, for its threads run on one thread of the host."""
    if access.space == "cluster":
        return True
    return access.at_once and access.space != "shared"


@warp_opcode("ld", "ldu")
def load(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    access, (d, source) = take_load(e, m)
    space, count, kind = access.space, access.count, access.kind
    named = _parameter(e, source, kind.bytes * count)
    if named is not None:
        place, offset = named
        values = [load_parameter(e, place, offset + index * kind.bytes, kind.bits) for index in range(count)]
    else:
        found = _address(e, source, space, kind.bytes * count)
        if found is None or _in_turns(access):
            e.emit_as_thread(i)
            return
        values = load_each(e, *found, kind, count, _row(e, source, *found, kind, count))
        if access.order.load == "acquire":
            e.emit("fence acquire")  # the lanes' own loads have no order
    for operand, value in zip(elements(e, d, count), values, strict=True):
        e.write_bits(operand, kind.bits, value, kind.signed)


@warp_opcode("st")
def store(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    if not {"async", "bulk"}.isdisjoint(m.flags):
        m.flags.clear()
        m.types.clear()
        e.emit_as_thread(i)
        return
    access, (target, source) = take_store(e, m)
    space, count, kind = access.space, access.count, access.kind
    named = _parameter(e, target, kind.bytes * count)
    found = None if named is not None else _address(e, target, space, kind.bytes * count)
    given = elements(e, source, count)
    if named is None and (found is None or _in_turns(access) or any(map(is_sink, given))):
        e.emit_as_thread(i)
        return
    values = [bits_to_store(e, operand, kind) for operand in given]
    if named is not None:
        place, offset = named
        for index, value in enumerate(values):
            store_parameter(e, place, offset + index * kind.bytes, kind.bits, value)
    elif found is not None:
        if access.order.store == "release":
            e.emit("fence release")
        store_each(e, *found, kind, values, _row(e, target, *found, kind, count))


@warp_opcode("alloca", "stacksave", "stackrestore")
def stack(e: WarpEmitter, i: Instruction, m: Modifiers) -> None:
    raise Unsuitable("each lane takes memory from a stack of its own")
