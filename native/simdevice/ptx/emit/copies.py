"""Asynchronous copies and mbarriers. A copy is done when it is issued, so nothing has to wait for one."""

from __future__ import annotations

from ..model import Address, Immediate, Instruction, Operand, Vector
from ..types import B64, PRED
from . import bulk, cluster
from .function import FunctionEmitter
from .mbarrier import EXPECTED, MASK, PHASE, update
from .memory import Pointer, check_shared_span, pointer, take_hints
from .modifiers import Modifiers
from .registry import opcode
from .spaces import take_space


@opcode("cp")
def cp(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    reduces = m.flag("reduce")
    m.need("async")
    if m.flag("bulk"):
        bulk.copy(e, m, reduces)
        return
    if m.choice("commit_group", "wait_all"):
        e.operands(0)
        return
    if m.flag("wait_group"):
        e.operands(1)
        return
    if m.flag("mbarrier"):
        _arrive_on(e, m)
        return
    _copy(e, m)


def _copy(e: FunctionEmitter, m: Modifiers) -> None:
    m.need("ca", "cg")
    m.need("shared", "shared::cta")
    m.need("global")
    policy = take_hints(m)
    d, s, size_operand, *rest = e.operands(3, 5)
    if policy:
        if not rest:
            raise e.fail("a cache policy is missing")
        rest.pop()
    if not isinstance(size_operand, Immediate) or size_operand.value not in (4, 8, 16):
        raise e.fail("a copy has 4, 8 or 16 bytes")
    size = int(size_operand.value)
    to = pointer(e, d, "shared", size)
    if not rest:
        _move(e, to, pointer(e, s, "global", size), size)
        return
    _partial(e, to, s, size, rest[0])


def _partial(e: FunctionEmitter, to: Pointer, s: Operand, size: int, operand: Operand) -> None:
    """Copies the first bytes and zeroes the rest; the operand is their number, or a predicate: none."""
    copy, after = e.label(), e.label()
    name = getattr(operand, "name", None)
    slot = e.register(name) if isinstance(name, str) else None
    e.emit(f"call void @llvm.memset.p0.i64(ptr align {size} {to.value}, i8 0, i64 {size}, i1 false)")
    e.kernel.declare("llvm.memset.p0.i64", "void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)")
    if (slot is not None and slot.type is PRED) or (name is not None and slot is None):
        e.branch_if(e.predicate(operand), after, copy)
        count = str(size)
    else:
        bytes32 = e.intrinsic("llvm.umin.i32", "i32", f"i32 {e.read_bits(operand, 32)}", f"i32 {size}")
        count = e.op(f"zext i32 {bytes32} to i64")
        e.branch_if(e.op(f"icmp eq i64 {count}, 0"), after, copy)
    e.open(copy)
    source = pointer(e, s, "global", size)
    e.kernel.declare("llvm.memcpy.p0.p0.i64", "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)")
    e.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {to.value}, ptr {source.value}, i64 {count}, i1 false)")
    e.open(after)


def _move(e: FunctionEmitter, to: Pointer, source: Pointer, size: int) -> None:
    value = e.op(f"load i{8 * size}, ptr {source.value}, align {size}")
    e.emit(f"store i{8 * size} {value}, ptr {to.value}, align {size}")


@opcode("clusterlaunchcontrol")
def clusterlaunchcontrol(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """A block may ask for the work of one that has not started: the answer is always that there is none."""
    if m.flag("try_cancel"):
        m.need("async")
        space = take_space(m)
        m.need("mbarrier::complete_tx::bytes")
        everywhere = m.flag("multicast::cluster::all")
        m.type()
        response, barrier = e.operands(2)
        if space not in ("shared", "generic"):
            raise e.fail("the answer goes to shared memory")
        answer, counted = pointer(e, response, space, 16).value, pointer(e, barrier, space, 8).value
        for where, size in ((answer, "16"), (counted, "8")):
            check_shared_span(e, where, size, "shared")
        if everywhere:
            cluster.for_each_block(
                e,
                "-1",
                lambda rank: _answer(
                    e, cluster.in_block(e, answer, rank), cluster.in_block(e, counted, rank)
                ),
            )
        else:
            _answer(e, answer, counted)
        return
    m.need("query_cancel")
    if m.flag("is_canceled"):
        d, _ = e.operands(2)
        m.types.clear()
        e.write(d, PRED, "false")
        return
    m.need("get_first_ctaid", *(f"get_first_ctaid::{axis}" for axis in "xyz"))
    m.choice("v4")
    m.types.clear()
    d, _ = e.operands(2)
    for item in d.items if isinstance(d, Vector) else [d]:
        e.write_bits(item, 32, "0")


def _answer(e: FunctionEmitter, to: str, barrier: str) -> None:
    """That nothing was cancelled, to one block, on whose mbarrier it counts."""
    e.emit(f"store i128 0, ptr {to}, align 16")
    update(e, barrier, "0", "-16")


def _arrive_on(e: FunctionEmitter, m: Modifiers) -> None:
    """The thread's copies have arrived. Without .noinc the barrier expects one arrival more: no change."""
    m.need("arrive")
    counts = m.flag("noinc")
    space = take_space(m)
    m.type()
    (address,) = e.operands(1)
    where = _word(e, address, space)
    if counts:
        update(e, where, "1", "0")


def _word(e: FunctionEmitter, operand: Operand, space: str) -> str:
    if not isinstance(operand, Address):
        raise e.fail("an mbarrier is an address")
    return pointer(e, operand, space, 8).value


_ACTIONS = {
    "init",
    "inval",
    "arrive",
    "arrive_drop",
    "test_wait",
    "try_wait",
    "pending_count",
    "expect_tx",
    "complete_tx",
}


@opcode("mbarrier")
def mbarrier(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    action = i.modifiers[0] if i.modifiers else ""
    if action not in _ACTIONS:
        raise e.fail("not an action of mbarriers")
    m.flag(action)
    m.choice("release", "acquire", "relaxed")
    m.choice("cta", "cluster")
    space = take_space(m)
    m.type()
    if action == "init":
        address, count = e.operands(2)
        n = e.op(f"zext i32 {e.read_bits(count, 32)} to i64")
        value = e.op(f"or i64 {n}, {e.op(f'shl i64 {n}, {EXPECTED}')}")
        e.emit(f"store atomic i64 {value}, ptr {_word(e, address, space)} release, align 8")
    elif action == "inval":
        (address,) = e.operands(1)
        e.emit(f"store i64 0, ptr {_word(e, address, space)}, align 8")
    elif action == "pending_count":
        d, state = e.operands(2)
        e.write_bits(d, 32, e.op(f"trunc i64 {e.op(f'and i64 {e.read(state, B64)}, {MASK}')} to i32"))
    elif action in ("test_wait", "try_wait"):
        _test(e, m, space)
    elif action in ("expect_tx", "complete_tx"):
        address, count = e.operands(2)
        n = e.op(f"zext i32 {e.read_bits(count, 32)} to i64")
        update(e, _word(e, address, space), "0", n if action == "expect_tx" else e.op(f"sub i64 0, {n}"))
    else:
        _arrival(e, m, action, space)


def _arrival(e: FunctionEmitter, m: Modifiers, action: str, space: str) -> None:
    m.flag("noComplete")
    transaction = m.flag("expect_tx")
    d, address, *rest = e.operands(2, 3)
    where = _word(e, address, space)
    arrivals, transferred = "1", "0"
    if rest:
        count = e.op(f"zext i32 {e.read_bits(rest[0], 32)} to i64")
        arrivals, transferred = ("1", count) if transaction else (count, "0")
    elif transaction:
        raise e.fail(".expect_tx needs a count")
    if action == "arrive_drop":
        e.op(f"atomicrmw sub ptr {where}, i64 {e.op(f'shl i64 {arrivals}, {EXPECTED}')} acq_rel, align 8")
    e.write(d, B64, update(e, where, arrivals, transferred))


def _test(e: FunctionEmitter, m: Modifiers, space: str) -> None:
    """True if the phase of the state, or of that parity, has ended. Other threads run meanwhile."""
    parity = m.flag("parity")
    p, address, state, *_ = e.operands(3, 4)
    where = _word(e, address, space)
    e.call("void", "sim_rt_yield", "ptr %thread")
    now = e.op(f"lshr i64 {e.op(f'load atomic i64, ptr {where} acquire, align 8')}, {PHASE}")
    before = e.read_bits(state, 32) if parity else e.op(f"lshr i64 {e.read(state, B64)}, {PHASE}")
    if parity:
        before = e.op(f"zext i32 {before} to i64")
    differs = e.op(f"xor i64 {now}, {before}")
    e.write(p, PRED, e.op(f"icmp ne i64 {e.op(f'and i64 {differs}, 1')}, 0"))
