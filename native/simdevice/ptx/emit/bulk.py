"""Bulk copies: many bytes at once, counted on an mbarrier of where they go or waited for in groups."""

from __future__ import annotations

from ..types import Type
from . import cluster, tensor
from .atomics import OPERATIONS, flushes, update_word
from .function import FunctionEmitter
from .mbarrier import update
from .memory import check_shared_span, pointer, take_hints
from .modifiers import Modifiers

_SPACES = {"global": "global", "shared::cta": "shared", "shared::cluster": "cluster"}


def copy(e: FunctionEmitter, m: Modifiers, reduces: bool) -> None:
    """cp.async.bulk, and cp.reduce.async.bulk if it `reduces`."""
    if m.choice("commit_group"):
        e.operands(0)
        return
    if m.flag("wait_group"):
        m.flag("read")
        m.drop(("sync_restrict::",))
        e.operands(1)
        return
    if m.flag("tensor"):
        tensor.copy(e, m, reduces)
        return
    if m.flag("prefetch"):
        m.flag("L2")
        m.flag("global")
        take_hints(m)
        e.operands(2, 3)
        return
    spaces = [
        m.need("global", "shared::cta", "shared::cluster"),
        m.need("global", "shared::cta", "shared::cluster"),
    ]
    order = [flag for flag in e.instruction.modifiers if flag in spaces]
    leaves = order[0] == "global"  # there is no mbarrier there, and no other block's memory
    completion = m.need(*(() if leaves else ("mbarrier::complete_tx::bytes",)), "bulk_group")
    policy = take_hints(m)
    barrier = completion != "bulk_group"
    reduction = _take_reduction(m) if reduces else None
    masked, trims = m.flag("cp_mask"), not reduces and m.flag("ignore_oob")
    everywhere = m.flag("multicast::cluster")
    to, source, size, *rest = e.operands(3 + barrier + policy + masked + 2 * trims + everywhere)
    from_space, to_space = _SPACES[order[-1]], _SPACES[order[0]]
    dst = pointer(e, to, to_space, 16).value
    src = pointer(e, source, from_space, 16).value
    count = size64 = e.op(f"zext i32 {e.read_bits(size, 32)} to i64")
    if trims:
        # The bytes left out are those beyond a tensor's ends, which may not be there.
        left, right = (
            e.op(f"zext i32 {e.read_bits(each, 32)} to i64") for each in (rest.pop(0), rest.pop(0))
        )
        dst, src = (e.op(f"getelementptr i8, ptr {each}, i64 {left}") for each in (dst, src))
        trimmed = e.op(f"add i64 {left}, {right}")
        e.stop_if(e.op(f"icmp ugt i64 {trimmed}, {size64}"), "sim_rt_illegal", f"i64 {trimmed}")
        count = e.op(f"sub i64 {size64}, {trimmed}")
    # Beyond device memory there is nothing within the reach of a size.
    for each, space in ((dst, to_space), (src, from_space)):
        if space != "global":
            check_shared_span(e, each, count, space)
    if everywhere and barrier:
        place = pointer(e, rest[0], to_space, 8).value
        _to_each(e, e.read_bits(rest[1], 16), dst, src, count, place, size64)
        return
    if reduction is not None:
        _reduce(e, *reduction, to_space, dst, src, count)
    elif masked:
        mask = e.op(f"zext i16 {e.read_bits(rest[-1], 16)} to i32")
        e.call("void", "sim_copy_masked", f"ptr {dst}", f"ptr {src}", f"i64 {count}", f"i32 {mask}")
    else:
        _move_bytes(e, dst, src, count)
    if barrier:
        # Where the bytes go, there they are counted.
        update(e, pointer(e, rest[0], to_space, 8).value, "0", e.op(f"sub i64 0, {size64}"))


def _take_reduction(m: Modifiers) -> tuple[str, Type]:
    operation = m.need(*(each for each in OPERATIONS if each not in ("exch", "cas")))
    m.flag("noftz")
    return operation, m.type()


def _reduce(
    e: FunctionEmitter, operation: str, kind: Type, space: str, to: str, source: str, count: str
) -> None:
    """Each number of `count` bytes updates its place in the destination, as an atomic does."""
    slot = e.alloca("i64")
    e.emit(f"store i64 0, ptr {slot}, align 8")
    again, following, done = (e.label() for _ in range(3))
    e.open(again)
    offset = e.op(f"load i64, ptr {slot}, align 8")
    e.branch_if(e.op(f"icmp ult i64 {offset}, {count}"), following, done)
    e.open(following)
    value, where = (e.op(f"getelementptr i8, ptr {each}, i64 {offset}") for each in (source, to))
    bits = e.op(f"load {kind.integer}, ptr {value}, align {kind.bytes}")
    update_word(e, kind, operation, "monotonic", flushes(e, kind, space, where), where, bits)
    e.emit(f"store i64 {e.op(f'add i64 {offset}, {kind.bytes}')}, ptr {slot}, align 8")
    e.branch(again)
    e.open(done)


def _move_bytes(e: FunctionEmitter, to: str, source: str, count: str) -> None:
    e.kernel.declare("llvm.memmove.p0.p0.i64", "void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1 immarg)")
    e.emit(f"call void @llvm.memmove.p0.p0.i64(ptr {to}, ptr {source}, i64 {count}, i1 false)")


def _to_each(
    e: FunctionEmitter, ranks: str, to: str, source: str, count: str, barrier: str, size64: str
) -> None:
    """Copies to the same place of each block whose rank is a bit of `ranks`, and counts on its mbarrier."""

    def copy_to(rank: str) -> None:
        _move_bytes(e, cluster.in_block(e, to, rank), source, count)
        update(e, cluster.in_block(e, barrier, rank), "0", e.op(f"sub i64 0, {size64}"))

    cluster.for_each_block(e, ranks, copy_to)
