"""Exchange between the threads of a warp."""

from __future__ import annotations

from ..model import Instruction, Operand, Pair
from ..types import B32, PRED, U32
from .function import FunctionEmitter
from .integer import integer_type
from .modifiers import Modifiers
from .registry import opcode

SHUFFLES = ("up", "down", "bfly", "idx")
VOTES = ("all", "any", "uni", "ballot")
REDUCTIONS = ("add", "min", "max", "and", "or", "xor")


def destinations(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def active(e: FunctionEmitter) -> str:
    return e.call("i32", "sim_rt_activemask", "ptr %thread", f"i32 {e.site()}")


def _mask(e: FunctionEmitter, rest: list[Operand], sync: bool) -> str:
    """The members: an operand of .sync, or for the old forms whoever is there."""
    return e.read(rest[0], B32) if sync else active(e)


@opcode("shfl")
def shfl(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    sync = m.flag("sync")
    mode = m.need(*SHUFFLES)
    integer_type(e, m, 32)
    target, a, b, c, *rest = e.operands(5 if sync else 4)
    d, p = destinations(target)
    mask = _mask(e, rest, sync)
    slot = e.entry_value("shfl.p", "alloca i32")
    words = [f"i32 {e.read(each, B32)}" for each in (a, b, c)]
    code = SHUFFLES.index(mode)
    value = e.call("i32", "sim_rt_shfl", "ptr %thread", f"i32 {mask}", f"i32 {code}", *words, f"ptr {slot}")
    e.write(d, B32, value)
    if p is not None:
        e.write(p, PRED, e.op(f"icmp ne i32 {e.op(f'load i32, ptr {slot}')}, 0"))


@opcode("vote")
def vote(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    sync = m.flag("sync")
    mode = m.need(*VOTES)
    kind = m.type()
    d, a, *rest = e.operands(3 if sync else 2)
    mask = _mask(e, rest, sync)
    predicate = e.op(f"zext i1 {e.predicate(a)} to i32")
    code = VOTES.index(mode)
    value = e.call("i32", "sim_rt_vote", "ptr %thread", f"i32 {mask}", f"i32 {code}", f"i32 {predicate}")
    if mode == "ballot":
        if kind.bits != 32:
            raise e.fail(".ballot is .b32")
        e.write(d, U32, value)
    else:
        e.write(d, PRED, e.op(f"icmp ne i32 {value}, 0"))


@opcode("match")
def match(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    mode = m.need("any", "all")
    m.need("sync")
    kind = integer_type(e, m, 32, 64)
    target, a, mask = e.operands(3)
    d, p = destinations(target)
    slot = e.entry_value("match.p", "alloca i32")
    value = e.resize(e.read(a, kind), kind.bits, 64, False)
    arguments = (f"i32 {e.read(mask, B32)}", f"i64 {value}", f"i32 {int(mode == 'all')}", f"ptr {slot}")
    e.write(d, U32, e.call("i32", "sim_rt_match", "ptr %thread", *arguments))
    if p is not None:
        e.write(p, PRED, e.op(f"icmp ne i32 {e.op(f'load i32, ptr {slot}')}, 0"))


@opcode("activemask")
def activemask(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    integer_type(e, m, 32)
    (d,) = e.operands(1)
    e.write(d, U32, active(e))


@opcode("redux")
def redux(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.need("sync")
    operation = m.need(*REDUCTIONS)
    kind = integer_type(e, m, 32)
    d, a, mask = e.operands(3)
    code = REDUCTIONS.index(operation)
    words = [f"i32 {e.read(mask, B32)}", f"i32 {code}", f"i32 {int(kind.signed)}", f"i32 {e.read(a, kind)}"]
    e.write(d, kind, e.call("i32", "sim_rt_redux", "ptr %thread", *words))


@opcode("elect")
def elect(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.need("sync")
    target, mask = e.operands(2)
    d, p = destinations(target)
    members = e.read(mask, B32)
    e.call("void", "sim_rt_warp_sync", "ptr %thread", f"i32 {members}")
    leader = e.intrinsic("llvm.cttz.i32", "i32", f"i32 {members}", "i1 false")
    e.write(d, U32, leader)
    if p is not None:
        lane = e.op(f"and i32 {e.thread_field('linear')}, 31")
        e.write(p, PRED, e.op(f"icmp eq i32 {lane}, {leader}"))
