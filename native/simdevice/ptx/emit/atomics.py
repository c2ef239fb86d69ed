"""atom, red and fences."""

from __future__ import annotations

from collections.abc import Callable

from ..model import Instruction, Operand, Vector
from ..types import BF16, F16, F32, Type
from . import numbers
from .function import FunctionEmitter
from .mbarrier import update
from .memory import COUNTED, SCOPES, pointer, take_hints
from .modifiers import Modifiers
from .registry import opcode
from .spaces import SHARED, in_cluster, take_space

_ORDERS = {
    None: "monotonic",
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
}
_BITWISE = {"and": "and", "or": "or", "xor": "xor", "exch": "xchg"}
_COUNTING = {"inc": "uinc_wrap", "dec": "udec_wrap"}
OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas")


def _rmw_name(kind: Type, operation: str) -> str | None:
    """The atomicrmw operation, None if a loop is needed."""
    if operation in _BITWISE:
        return _BITWISE[operation]
    if kind.kind in "us" and operation == "add":
        return "add"
    if kind.kind in "us" and operation in ("min", "max"):
        return operation if kind.signed else "u" + operation
    if kind.name == "u32" and operation in _COUNTING:
        return _COUNTING[operation]
    if kind.name == "f64" and operation == "add":
        return "fadd"
    return None


def _loop(e: FunctionEmitter, bits: int, where: str, order: str, change: Callable[[str], str]) -> str:
    """Replaces a word by change(word) atomically and yields the old bits."""
    t = f"i{bits}"
    slot = e.alloca(t)
    e.emit(f"store {t} {e.op(f'load atomic {t}, ptr {where} monotonic, align {bits // 8}')}, ptr {slot}")
    again, done = e.label(), e.label()
    e.open(again)
    old = e.op(f"load {t}, ptr {slot}")
    new = change(old)
    failure = {"monotonic": "monotonic", "release": "monotonic"}.get(order, "acquire")
    both = e.op(f"cmpxchg ptr {where}, {t} {old}, {t} {new} {order} {failure}, align {bits // 8}")
    e.emit(f"store {t} {e.op(f'extractvalue {{ {t}, i1 }} {both}, 0')}, ptr {slot}")
    e.branch_if(e.op(f"extractvalue {{ {t}, i1 }} {both}, 1"), done, again)
    e.open(done)
    return old


def _float_change(
    e: FunctionEmitter, kind: Type, operation: str, ftz: str, operand: str
) -> Callable[[str], str]:
    """The new bits of a float, or of each half of a packed word; `operand` is given as bits. `ftz`: whether
    single precision is flushed, an i1."""

    def flushed(value: str) -> str:
        if ftz == "false":
            return value
        small = numbers.flush(e, kind, value)
        return small if ftz == "true" else e.op(f"select i1 {ftz}, float {small}, float {value}")

    def single(old: str) -> str:
        a, b = flushed(numbers.from_bits(e, kind, old)), flushed(numbers.from_bits(e, kind, operand))
        t = kind.llvm
        if operation == "add":
            value = e.op(f"fadd {t} {a}, {b}")
        else:
            name = f"llvm.{operation}imumnum.{'f' + str(kind.bits)}"
            value = e.intrinsic(name, t, f"{t} {a}", f"{t} {b}")
        return numbers.bits_of(e, kind, numbers.canonical(e, kind, flushed(value)))

    def brain(old: str, mine: str) -> str:
        a, b = numbers.widen_bf16(e, old), numbers.widen_bf16(e, mine)
        if operation == "add":
            return numbers.narrow_bf16(e, e.op(f"fadd float {a}, {b}"))
        return numbers.narrow_bf16(
            e, e.intrinsic(f"llvm.{operation}imumnum.f32", "float", f"float {a}", f"float {b}")
        )

    def half(old: str, mine: str) -> str:
        a, b = numbers.from_bits(e, F16, old), numbers.from_bits(e, F16, mine)
        if operation == "add":
            value = e.op(f"fadd half {a}, {b}")
        else:
            value = e.intrinsic(f"llvm.{operation}imumnum.f16", "half", f"half {a}", f"half {b}")
        return numbers.bits_of(e, F16, numbers.canonical(e, F16, value))

    part = brain if kind.name.startswith("bf16") else half

    def packed(old: str) -> str:
        # split() of the brain type leaves bits alone.
        pairs = zip(numbers.split(e, BF16, old), numbers.split(e, BF16, operand), strict=True)
        low, high = (part(mine, other) for mine, other in pairs)
        return numbers.join_bits(e, low, high)

    if kind.name in ("f16x2", "bf16x2"):
        return packed
    if kind.name in ("f16", "bf16"):
        return lambda old: part(old, operand)
    return single


def _update(
    e: FunctionEmitter,
    kind: Type,
    operation: str,
    order: str,
    flushes: str,
    where: str,
    operands: list[Operand],
) -> str:
    """One atomic operation; the old bits. `flushes`: whether subnormals are, an i1."""
    t = kind.integer
    if operation == "cas":
        compare, new = e.read_bits(operands[0], kind.bits), e.read_bits(operands[1], kind.bits)
        failure = {"monotonic": "monotonic", "release": "monotonic"}.get(order, "acquire")
        text = f"cmpxchg ptr {where}, {t} {compare}, {t} {new} {order} {failure}, align {kind.bytes}"
        return e.op(f"extractvalue {{ {t}, i1 }} {e.op(text)}, 0")
    if kind.kind == "f" and kind.bits > 16:
        bits = numbers.bits_of(e, kind, e.read(operands[0], kind))
    else:
        bits = e.read_bits(operands[0], kind.bits)
    return update_word(e, kind, operation, order, flushes, where, bits)


def update_word(
    e: FunctionEmitter, kind: Type, operation: str, order: str, flushes: str, where: str, bits: str
) -> str:
    """The same by the bits of one operand."""
    t = kind.integer
    name = _rmw_name(kind, operation)
    if name == "fadd":
        value = numbers.from_bits(e, kind, bits)
        return numbers.bits_of(e, kind, e.op(f"atomicrmw fadd ptr {where}, double {value} {order}, align 8"))
    if name is not None:
        return e.op(f"atomicrmw {name} ptr {where}, {t} {bits} {order}, align {kind.bytes}")
    if kind.name not in ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64") or operation not in (
        "add",
        "min",
        "max",
    ):
        raise e.fail(f"no .{operation} of .{kind.name}")
    return _loop(e, kind.bits, where, order, _float_change(e, kind, operation, flushes, bits))


def flushes(e: FunctionEmitter, kind: Type, space: str, where: str) -> str:
    """The GPU's memory units flush single precision; its multiprocessors, for shared memory, do not."""
    if kind is not F32 or space in SHARED:
        return "false"
    if space == "generic":
        return e.op(f"xor i1 {in_cluster(e, e.op(f'ptrtoint ptr {where} to i64'))}, true")
    return "true"


@opcode("atom", "red")
def atomic(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    if m.flag("async"):
        if m.flag(COUNTED):
            _reduce_async(e, m)
            return
        m.flag("mmio")
    order = _ORDERS[m.choice("relaxed", "acquire", "release", "acq_rel")]
    m.choice(*SCOPES)
    space = take_space(m)
    operation = m.need(*OPERATIONS)
    noftz = m.flag("noftz")
    policy = take_hints(m)
    vector = m.choice("v2", "v4", "v8")
    kind = m.type()
    if noftz and kind.name not in ("f16", "f16x2", "bf16", "bf16x2", "f32"):
        raise e.fail(f".noftz is not for .{kind.name}")
    returns = i.opcode == "atom"
    needed = returns + (3 if operation == "cas" else 2)
    found = e.operands(needed + policy)
    destination = found[0] if returns else None
    address, *operands = found[returns:needed]
    count = int(vector[1:]) if vector else 1
    base = pointer(e, address, space, kind.bytes * count)
    flushing = flushes(e, kind, "shared" if noftz else space, base.value)
    if count == 1:
        old = _update(e, kind, operation, order, flushing, base.value, operands)
        if destination is not None:
            e.write_bits(destination, kind.bits, old, kind.signed)
        return
    sources = operands[0]
    if not isinstance(sources, Vector) or len(sources.items) != count:
        raise e.fail(f"needs a vector of {count}")
    old_values = []
    for index, operand in enumerate(sources.items):
        where = e.op(f"getelementptr i8, ptr {base.value}, i64 {index * kind.bytes}")
        old_values.append(_update(e, kind, operation, order, flushing, where, [operand]))
    if destination is not None:
        if not isinstance(destination, Vector) or len(destination.items) != count:
            raise e.fail(f"needs a vector of {count}")
        for to, old in zip(destination.items, old_values, strict=True):
            e.write_bits(to, kind.bits, old)


def _reduce_async(e: FunctionEmitter, m: Modifiers) -> None:
    """Whose bytes are counted on an mbarrier of the block that they go to."""
    m.need("relaxed")
    m.need("cluster")
    m.choice("shared::cluster")
    operation, kind = m.need(*OPERATIONS), m.type()
    target, source, barrier = e.operands(3)
    where = pointer(e, target, "cluster", kind.bytes).value
    counted = pointer(e, barrier, "cluster", 8).value
    _update(e, kind, operation, "monotonic", "false", where, [source])
    update(e, counted, "0", str(-kind.bytes))


@opcode("membar", "fence")
def fence(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    order = m.choice("sc", "acq_rel", "acquire", "release")
    if m.flag("proxy"):
        m.choice("alias", "async", "async.global", "tensormap::generic", "tensormap")
        m.choice("to_proxy::tensormap", "tensormap::generic")
        m.choice("async::generic")
        take_space(m)
    m.choice("mbarrier_init", "alias")
    m.drop(("sync_restrict::",))
    m.choice(*SCOPES, "gl")
    take_space(m)
    e.operands(0, 2)
    e.emit(f"fence {order if order in ('acq_rel', 'acquire', 'release') else 'seq_cst'}")
