"""Exchange between the threads of a warp."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Instruction, Operand, Pair
from ..types import B32, F32, PRED, U32, Type
from .function import FunctionEmitter
from .integer import integer_type
from .modifiers import Modifiers
from .registry import opcode

SHUFFLES = ("up", "down", "bfly", "idx")
VOTES = ("all", "any", "uni", "ballot")
_SIGN, _INFINITY = 1 << 31, 0x7F800000  # of single precision
REDUCTIONS = ("add", "min", "max", "and", "or", "xor")


def destinations(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def active(e: FunctionEmitter) -> str:
    return e.call("i32", "sim_rt_activemask", "ptr %thread", f"i32 {e.way()}")


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


@dataclass(frozen=True)
class Reduction:
    """What `redux` computes: of floats, as whole numbers in whose order floats are (`key`)."""

    operation: str
    kind: Type
    absolute: bool = False
    nan_wins: bool = False

    @property
    def signed(self) -> bool:
        return self.kind.signed

    def key(self, e: FunctionEmitter, value: str) -> str:
        """What is reduced of an i32."""
        if self.kind is not F32:
            return value
        size = e.op(f"and i32 {value}, {_SIGN - 1}")
        if self.absolute:
            value = size
        negative = e.op(f"ashr i32 {value}, 31")
        ordered = e.op(f"xor i32 {value}, {e.op(f'or i32 {negative}, {-_SIGN}')}")
        # Nothing but NaNs is at the ends: one wins, or loses against all else.
        end = 0 if (self.operation == "min") == self.nan_wins else -1
        unordered = e.op(f"icmp ugt i32 {size}, {_INFINITY}")
        return e.op(f"select i1 {unordered}, i32 {end}, i32 {ordered}")

    def value(self, e: FunctionEmitter, key: str) -> str:
        """The i32 that a key was made of."""
        if self.kind is not F32:
            return key
        negative = e.op(f"xor i32 {e.op(f'ashr i32 {key}, 31')}, -1")
        value = e.op(f"xor i32 {key}, {e.op(f'or i32 {negative}, {-_SIGN}')}")
        size = e.op(f"and i32 {value}, {_SIGN - 1}")
        unordered = e.op(f"icmp ugt i32 {size}, {_INFINITY}")
        return e.op(f"select i1 {unordered}, i32 {_SIGN - 1}, i32 {value}")


def take_reduction(e: FunctionEmitter, m: Modifiers) -> Reduction:
    m.need("sync")
    operation = m.need(*REDUCTIONS)
    if operation in ("min", "max") and m.types[:1] == [F32]:
        return Reduction(operation, m.type(), m.flag("abs"), m.flag("NaN"))
    return Reduction(operation, integer_type(e, m, 32))


@opcode("redux")
def redux(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    how = take_reduction(e, m)
    d, a, mask = e.operands(3)
    code = REDUCTIONS.index(how.operation)
    words = [f"i32 {e.read(mask, B32)}", f"i32 {code}", f"i32 {int(how.signed)}"]
    words.append(f"i32 {how.key(e, e.read_bits(a, 32))}")
    e.write_bits(d, 32, how.value(e, e.call("i32", "sim_rt_redux", "ptr %thread", *words)), how.signed)


@opcode("elect")
def elect(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.need("sync")
    target, mask = e.operands(2)
    d, p = destinations(target)
    # Of the members that are left: others may have ended.
    ballot = (f"i32 {e.read(mask, B32)}", f"i32 {VOTES.index('ballot')}", "i32 1")
    members = e.call("i32", "sim_rt_vote", "ptr %thread", *ballot)
    leader = e.intrinsic("llvm.cttz.i32", "i32", f"i32 {members}", "i1 false")
    e.write(d, U32, leader)
    if p is not None:
        lane = e.op(f"and i32 {e.thread_field('linear')}, 31")
        e.write(p, PRED, e.op(f"icmp eq i32 {lane}, {leader}"))
