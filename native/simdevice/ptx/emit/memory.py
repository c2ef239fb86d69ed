"""Loads, stores and addresses."""

from __future__ import annotations

from dataclasses import dataclass

from ..isa import is_special
from ..model import Address, Immediate, Instruction, Operand, Register, Vector
from ..types import PRED, Type
from . import at_once, cluster, reach
from .function import FunctionEmitter, Place
from .mbarrier import update
from .modifiers import Modifiers
from .registry import opcode
from .spaces import SHARED, keep_constants, read_address, take_space

SCOPES = ("cta", "cluster", "gpu", "sys")
HINTS = ("L1::", "L2::")
COUNTED = "mbarrier::complete_tx::bytes"  # what is asynchronous without it is done when it is issued
# The spaces of variables that an instruction on a space may name.
_NAMED = {
    **{space: (space,) for space in ("global", "const", "local", "shared")},
    "cluster": ("shared",),
    "param": ("param", "kernel_param"),
}


@dataclass
class Pointer:
    """`invariant`: a kernel's parameter, which nothing writes."""

    value: str
    space: str
    invariant: bool = False


def take_hints(m: Modifiers) -> bool:
    """Takes cache hints; whether a cache policy operand follows."""
    policy = m.flag("L2::cache_hint")
    m.drop(HINTS)
    return policy


def shared_pointer(e: FunctionEmitter, offset: str) -> str:
    return e.op(f"getelementptr i8, ptr {e.block_field('shared')}, i64 {offset}")


def pointer(
    e: FunctionEmitter, operand: Operand, space: str, size: int, align: int = 0, writes: bool = True
) -> Pointer:
    """The host pointer of an access of `size` bytes, checked for alignment and, if shared, for its range; in
    a kernel that is held to its own memory, for that.
    """
    align = align or size
    if not isinstance(operand, Address):
        raise e.fail("an address is expected")
    if operand.base is not None and e.register(operand.base) is None:
        return _symbol(e, operand, space, size, align, writes)
    if operand.index:
        raise e.fail(f"{operand.base} is no array")
    # Shared addresses have 32 bits and wrap: compilers form negative ones that an offset brings back.
    bits = 32 if space in SHARED else 64
    if operand.base is None:
        base = address = str(operand.offset & ((1 << bits) - 1))
    else:
        base = address = read_address(e, operand.base, space)
        if e.kernel.checked:
            # One value, whatever it is made of: LLVM may not choose it anew behind the comparison.
            base = address = e.op(f"freeze i{bits} {address}")
        if operand.offset:
            address = e.op(f"add i{bits} {address}, {operand.offset}")
        address = e.resize(address, bits, 64, False)
    if align > 1:
        low = e.op(f"and i64 {address}, {align - 1}")
        e.stop_if(e.op(f"icmp ne i64 {low}, 0"), "sim_rt_misaligned", f"i64 {address}")
    if space == "cluster":
        return Pointer(cluster.checked_pointer(e, e.resize(address, 64, 32, False), size), space)
    if space != "shared":
        if e.kernel.checked:
            reach.check(e, base, address, operand.offset, space, size, writes)
        if writes and space == "generic":
            keep_constants(e, address)
        return Pointer(e.op(f"inttoptr i64 {address} to ptr"), space)
    check_shared(e, address, size)
    return Pointer(shared_pointer(e, address), space)


def check_shared_span(e: FunctionEmitter, to: str, size: str, space: str) -> None:
    """Of a host pointer into shared memory and a number of bytes in an i64, both whatever they are."""
    if space == "cluster":
        place = cluster.place_of_generic(e, e.op(f"ptrtoint ptr {to} to i64"))
        inside = e.op(f"icmp ule i64 {size}, {e.shared_limit()}")
        inside = e.op(f"and i1 {inside}, {cluster.is_inside(e, place, size)}")
        e.stop_if(e.op(f"xor i1 {inside}, true"), "sim_rt_illegal", f"i64 {place}")
        return
    base = e.op(f"ptrtoint ptr {e.block_field('shared')} to i64")
    offset = e.op(f"sub i64 {e.op(f'ptrtoint ptr {to} to i64')}, {base}")
    left = e.op(f"sub i64 {e.shared_limit()}, {offset}")
    begins, ends = (
        e.op(f"icmp ugt i64 {offset}, {e.shared_limit()}"),
        e.op(f"icmp ugt i64 {size}, {left}"),
    )
    e.stop_if(e.op(f"or i1 {begins}, {ends}"), "sim_rt_illegal", f"i64 {offset}")


def check_shared(e: FunctionEmitter, address: str, size: int) -> None:
    """`address` has 32 bits, in an i64."""
    limit = e.shared_limit()
    end = e.op(f"add i64 {address}, {size}")
    outside = e.op(f"icmp ugt i64 {end}, {limit}")
    e.stop_if(outside, "sim_rt_illegal", f"i64 {address}")


def require_space(e: FunctionEmitter, name: str, place: Place, space: str) -> None:
    """A variable is in the space that the instruction names, whose bounds are what is looked at."""
    if space != "generic" and place.space not in _NAMED[space]:
        raise e.fail(f"{name} is not in the state space of the instruction")


def _symbol(e: FunctionEmitter, operand: Address, space: str, size: int, align: int, writes: bool) -> Pointer:
    assert operand.base is not None
    place = e.place(operand.base)
    if place is None:
        raise e.fail(f"{operand.base} is not declared")
    require_space(e, operand.base, place, space)
    offset = place.offset(operand)
    if place.space == "shared":
        offset += int(place.pointer)
        if offset % align:
            e.stop("sim_rt_misaligned", f"i64 {offset}")
        elif not 0 <= offset <= e.kernel.shared.size - size:
            check_shared(e, str(offset & ((1 << 32) - 1)), size)
        return Pointer(shared_pointer(e, str(offset)), "shared")
    value = e.op(f"getelementptr i8, ptr {place.pointer}, i64 {offset}") if offset else place.pointer
    if not 0 <= offset <= place.size - size:
        _outside(e, place, value, offset, size, writes)
    if place.align < align or offset % align:
        address = e.op(f"ptrtoint ptr {value} to i64")
        low = e.op(f"and i64 {address}, {align - 1}")
        e.stop_if(e.op(f"icmp ne i64 {low}, 0"), "sim_rt_misaligned", f"i64 {address}")
    if place.space == "kernel_param":
        return Pointer(value, "param", invariant=True)
    return Pointer(value, place.space)


def _outside(e: FunctionEmitter, place: Place, value: str, offset: int, size: int, writes: bool) -> None:
    """A name and an offset beyond what it names: of an argument or a local variable always an error."""
    address = e.op(f"ptrtoint ptr {value} to i64")
    if place.space not in ("global", "const"):
        e.stop("sim_rt_illegal", f"i64 {address}")
    elif e.kernel.checked:
        base = e.op(f"ptrtoint ptr {place.pointer} to i64")
        reach.check(e, base, address, offset, place.space, size, writes)


@dataclass
class Order:
    """LLVM's ordering, empty for plain accesses."""

    load: str
    store: str


def take_order(m: Modifiers) -> Order:
    m.flag("mmio")  # with which there is one of the others
    found = m.choice("weak", "volatile", "relaxed", "acquire", "release")
    m.choice(*SCOPES)
    if found in (None, "weak"):
        return Order("", "")
    return Order(
        "acquire" if found == "acquire" else "monotonic", "release" if found == "release" else "monotonic"
    )


def take_vector(m: Modifiers) -> int:
    found = m.choice("v2", "v4", "v8")
    return int(found[1:]) if found else 1


def elements(e: FunctionEmitter, operand: Operand, count: int) -> list[Operand]:
    if count == 1:
        if isinstance(operand, Vector) and len(operand.items) == 1:
            return operand.items
        return [operand]
    if isinstance(operand, Vector) and len(operand.items) == count:
        return operand.items
    if isinstance(operand, Register) and is_special(operand.name) and count <= 4:
        # %tid and the like stand for their components.
        return [Register(f"{operand.name}.{'xyzw'[index]}") for index in range(count)]
    raise e.fail(f"needs a vector of {count}")


def is_sink(operand: Operand) -> bool:
    """Whether an element of a vector is `_`: what is stored leaves its place as it is."""
    return isinstance(operand, Register) and operand.name == "_"


def take_storage(e: FunctionEmitter, m: Modifiers) -> Type:
    kind = m.type()
    if kind is PRED or kind.bits < 8:
        raise e.fail(f"no .{kind.name} in memory")
    return kind


@dataclass
class Access:
    """What a load or store says besides its operands."""

    order: Order
    space: str
    count: int
    kind: Type

    @property
    def at_once(self) -> bool:
        """Whether no other thread may see it half done (at_once.py)."""
        return bool(self.order.load) and (self.count > 1 or self.kind.bits > 64)


def take_load(e: FunctionEmitter, m: Modifiers) -> tuple[Access, list[Operand]]:
    """The access of a load; its destination and its address."""
    return _take_access(e, m, ("ca", "cg", "cs", "lu", "cv"), ("nc", "unified"))


def take_store(e: FunctionEmitter, m: Modifiers) -> tuple[Access, list[Operand]]:
    """The access of a store; its address and its source."""
    return _take_access(e, m, ("wb", "cg", "cs", "wt"), ())


def _take_access(
    e: FunctionEmitter, m: Modifiers, caching: tuple[str, ...], flags: tuple[str, ...]
) -> tuple[Access, list[Operand]]:
    order, space = take_order(m), take_space(m)
    level = m.choice(*caching)
    if not order.load and (level in ("cv", "wt") or (level == "cg" and e.yields)):
        # How threads of several blocks waited before there was .relaxed.
        order = Order("monotonic", "monotonic")
    for flag in flags:
        m.flag(flag)
    policy = take_hints(m)
    access = Access(order, space, take_vector(m), take_storage(e, m))
    return access, list(e.operands(3 if policy else 2)[:2])


def bits_to_store(e: FunctionEmitter, operand: Operand, kind: Type) -> str:
    """The operand as the integer that lies in memory."""
    if kind.kind == "f":
        return e.op(f"bitcast {kind.llvm} {e.read(operand, kind)} to {kind.integer}")
    return e.read_bits(operand, kind.bits)


@opcode("ld", "ldu")
def load(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    access, (d, source) = take_load(e, m)
    order, space, count, kind = access.order, access.space, access.count, access.kind
    base = pointer(e, source, space, kind.bytes * count, writes=False)
    metadata = ", !invariant.load !0" if base.invariant else ""
    if access.at_once:
        values = at_once.load(e, base.value, kind, count, order.load)
    elif order.load:
        values = [e.op(f"load atomic {kind.integer}, ptr {base.value} {order.load}, align {kind.bytes}")]
    else:
        places = [e.behind(base.value, index * kind.bytes) for index in range(count)]
        values = [e.op(f"load {kind.integer}, ptr {each}, align {kind.bytes}{metadata}") for each in places]
    for operand, value in zip(elements(e, d, count), values, strict=True):
        e.write_bits(operand, kind.bits, value, kind.signed)


@opcode("st")
def store(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    if m.flag("async") and m.flag(COUNTED):
        _store_async(e, m)
        return
    if m.flag("bulk"):
        _fill(e, m)
        return
    access, (target, source) = take_store(e, m)
    order, space, count, kind = access.order, access.space, access.count, access.kind
    base = pointer(e, target, space, kind.bytes * count)
    given = elements(e, source, count)
    values = {index: bits_to_store(e, each, kind) for index, each in enumerate(given) if not is_sink(each)}
    if access.at_once and len(values) == count:
        at_once.store(e, base.value, kind, list(values.values()), order.store)
        return
    atomic, ordering = ("atomic ", f" {order.store}") if order.store else ("", "")
    for index, value in values.items():
        where = e.behind(base.value, index * kind.bytes)
        e.emit(f"store {atomic}{kind.integer} {value}, ptr {where}{ordering}, align {kind.bytes}")


def _store_async(e: FunctionEmitter, m: Modifiers) -> None:
    """Whose bytes are counted on an mbarrier of the block that they go to."""
    m.flag("weak")
    m.choice("shared::cluster")
    count, kind = take_vector(m), take_storage(e, m)
    target, source, barrier = e.operands(3)
    size = kind.bytes * count
    base = pointer(e, target, "cluster", size)
    counted = pointer(e, barrier, "cluster", 8).value
    for index, operand in enumerate(elements(e, source, count)):
        where = e.behind(base.value, index * kind.bytes)
        e.emit(f"store {kind.integer} {bits_to_store(e, operand, kind)}, ptr {where}, align {kind.bytes}")
    update(e, counted, "0", str(-size))


def _fill(e: FunctionEmitter, m: Modifiers) -> None:
    """`st.bulk`: fill a span of shared memory with zeros."""
    m.flag("weak")
    space = m.choice("shared::cta")
    target, size, value = e.operands(3)
    if not isinstance(value, Immediate) or value.value != 0:
        raise e.fail("memory is filled with 0")
    where = pointer(e, target, "shared" if space else "generic", 8).value
    count = e.read_bits(size, 64)
    check_shared_span(e, where, count, "shared")
    e.kernel.declare("llvm.memset.p0.i64", "void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)")
    e.emit(f"call void @llvm.memset.p0.i64(ptr align 8 {where}, i8 0, i64 {count}, i1 false)")


@opcode("prefetch", "prefetchu", "discard", "applypriority")
def hint(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    take_space(m)
    m.choice("tensormap")
    m.choice("L1", "L2")
    m.drop(HINTS)
    m.drop(("evict_",))
    m.flag("valid_addr")
    e.operands(1, 2)


@opcode("createpolicy")
def createpolicy(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.need("fractional", "range", "cvt")
    take_space(m)
    m.drop(HINTS)
    m.flag("L2")
    kind = m.type()
    e.write_bits(e.operands(1, 5)[0], kind.bits, "0")
