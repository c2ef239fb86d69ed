"""Branches, barriers of the block, and the end of a thread."""

from __future__ import annotations

from ..model import Instruction, Operand, Pair, Register, Targets
from ..types import PRED, U32
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode


@opcode("bra")
def bra(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.flag("uni")
    (target,) = e.operands(1)
    if not isinstance(target, Register):
        raise e.fail("a label is expected")
    label = e.target(target.name)
    condition = e.guard_value(i) if i.guard is not None else None
    waits = e.position in e.yields
    taken, after = e.label() if waits else label, e.label()
    if condition is not None:
        e.branch_if(condition, taken, after)
    else:
        e.branch(taken)
    if waits:
        e.open(taken)
        e.call("void", "sim_rt_yield", "ptr %thread")
        e.branch(label)
    if condition is not None:
        e.open(after)


@opcode("brx")
def brx(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """PTX leaves an index beyond the table open: here it ends the grid, so no kernel leaves its code."""
    m.need("idx")
    m.flag("uni")
    index, name = e.operands(2)
    table = e.table(name.name) if isinstance(name, Register) else None
    if not isinstance(table, Targets):
        raise e.fail("needs .branchtargets")
    after = e.label()
    if i.guard is not None:
        taken = e.label()
        e.branch_if(e.guard_value(i), taken, after)
        e.open(taken)
    chosen = e.read(index, U32)
    if e.position in e.yields:
        e.call("void", "sim_rt_yield", "ptr %thread")
    nowhere = e.label()
    cases = " ".join(f"i32 {n}, label %{e.target(each)}" for n, each in enumerate(table.targets))
    e.finish(f"switch i32 {chosen}, label %{nowhere} [ {cases} ]")
    e.open(nowhere)
    e.stop("sim_rt_trap")
    if i.guard is not None:
        e.open(after)


@opcode("ret")
def ret(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.flag("uni")
    e.operands(0)
    e.leave()


@opcode("exit")
def exit_(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    e.operands(0)
    e.exit()


@opcode("trap", "brkpt")
def trap(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    e.operands(0)
    e.stop("sim_rt_trap")


@opcode("pmevent", "griddepcontrol", "setmaxnreg")
def nothing(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """No effect here: kernels of a stream run one after another, and registers are not scarce."""
    m.choice("launch_dependents", "wait")
    m.choice("inc", "dec")
    m.flag("mask")
    m.flag("sync")
    m.flag("aligned")
    m.types.clear()
    e.operands(0, 1)


@opcode("nanosleep")
def nanosleep(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    (duration,) = e.operands(1)
    e.call("void", "sim_rt_nanosleep", "ptr %thread", f"i32 {e.read(duration, kind)}")


def _word(e: FunctionEmitter, operand: Operand) -> str:
    return f"i32 {e.read_bits(operand, 32)}"


@opcode("bar", "barrier")
def bar(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    m.flag("cta")
    m.flag("aligned")
    if m.flag("cluster"):
        _cluster(e, m)
        return
    if m.flag("warp"):
        m.need("sync")
        (mask,) = e.operands(1)
        e.call("void", "sim_rt_warp_sync", "ptr %thread", _word(e, mask))
        return
    action = m.need("sync", "arrive", "red")
    if action == "red":
        _reduce(e, m)
        return
    number, *count = e.operands(1 if action == "sync" else 2, 2)
    threads = _word(e, count[0]) if count else "i32 0"
    e.call("void", f"sim_rt_bar_{action}", "ptr %thread", _word(e, number), threads)


def _reduce(e: FunctionEmitter, m: Modifiers) -> None:
    operation = m.need("popc", "and", "or")
    kind = m.type()
    d, number, *count, p = e.operands(3, 4)
    predicate = e.op(f"zext i1 {e.predicate(p)} to i32")
    threads = _word(e, count[0]) if count else "i32 0"
    code = ("popc", "and", "or").index(operation)
    arguments = ("ptr %thread", _word(e, number), threads, f"i32 {code}", f"i32 {predicate}")
    value = e.call("i32", "sim_rt_bar_red", *arguments)
    if isinstance(d, Pair):
        raise e.fail("one destination")
    if kind is PRED:
        e.write(d, PRED, e.op(f"icmp ne i32 {value}, 0"))
    else:
        e.write(d, U32, value)


def _cluster(e: FunctionEmitter, m: Modifiers) -> None:
    """The blocks of a cluster run on one thread of the host: what they write is there for the others."""
    action = m.need("arrive", "wait")
    m.choice("release", "relaxed", "acquire")
    e.operands(0)
    if action == "wait":
        e.call("void", "sim_rt_cluster_wait", "ptr %thread")
    else:
        e.call("void", "sim_rt_cluster_arrive", "ptr %thread", f"i32 {e.lanes_here()}")
