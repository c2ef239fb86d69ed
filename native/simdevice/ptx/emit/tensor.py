"""Copies of boxes of tensors: cp.async.bulk.tensor and cp.reduce.async.bulk.tensor, in tiles (tensor.c)."""

from __future__ import annotations

from ..model import Address, Bracket, Operand, Register, Vector
from . import cluster
from .function import FunctionEmitter
from .mbarrier import update
from .memory import check_shared_span, pointer, shared_pointer, take_hints
from .modifiers import Modifiers

_SPACES = {"shared::cta": "shared", "shared::cluster": "cluster"}
_CHANGES = ("add", "min", "max", "inc", "dec", "and", "or", "xor")  # enum tensor_change, from 1 on
_MAP_BYTES = 128
_ALIGNED = 128  # shared memory of a copy
_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")


def copy(e: FunctionEmitter, m: Modifiers, reduces: bool) -> None:
    """One of a box; what is fetched ahead is not."""
    rank = 1 + _DIMENSIONS.index(m.need(*_DIMENSIONS))
    m.flag("tile")
    if m.flag("prefetch"):
        m.need("L2")
        m.need("global")
        take_hints(m)
        e.operands(1, 2)
        return
    shared = _SPACES[m.need(*_SPACES)]
    m.need("global")
    completion = m.need("mbarrier::complete_tx::bytes", "bulk_group")
    m.choice("cta_group::1", "cta_group::2")
    policy, everywhere = take_hints(m), m.flag("multicast::cluster")
    if completion == "bulk_group":
        how = 1 + _CHANGES.index(m.need(*_CHANGES)) if reduces else 0
        tensor, source = e.operands(2 + policy)[:2]
        _store(e, tensor, rank, source, how)
        return
    to, tensor, barrier, *rest = e.operands(3 + everywhere + policy)
    _load(e, to, shared, tensor, rank, barrier, rest[0] if everywhere else None)


def _load(
    e: FunctionEmitter,
    to: Operand,
    shared: str,
    tensor: Operand,
    rank: int,
    barrier: Operand,
    ranks: Operand | None,
) -> None:
    box, corner = _tensor(e, tensor, rank)
    span, count = _size(e, box, rank)
    memory, place = _memory(e, to, shared, span)
    word = pointer(e, barrier, shared, 8).value
    if ranks is None:
        _one(e, box, corner, memory, place, word, count)
        return
    cluster.for_each_block(
        e,
        e.read_bits(ranks, 16),
        lambda rank: _one(
            e, box, corner, cluster.in_block(e, memory, rank), place, cluster.in_block(e, word, rank), count
        ),
    )


def _one(e: FunctionEmitter, box: str, corner: str, memory: str, place: str, word: str, count: str) -> None:
    """Into one block's memory, where it is counted."""
    arguments = (f"ptr {box}", f"ptr {corner}", f"ptr {memory}", f"i32 {place}", _held(e))
    _stop_at(e, e.call("i64", "sim_tensor_load", *arguments))
    update(e, word, "0", e.op(f"sub i64 0, {count}"))


def _store(e: FunctionEmitter, tensor: Operand, rank: int, source: Operand, how: int) -> None:
    box, corner = _tensor(e, tensor, rank)
    span, _ = _size(e, box, rank)
    memory, place = _memory(e, source, "shared", span)
    arguments = (f"ptr {box}", f"ptr {corner}", f"ptr {memory}", f"i32 {place}", f"i32 {how}", _held(e))
    _stop_at(e, e.call("i64", "sim_tensor_store", *arguments))


def _held(e: FunctionEmitter) -> str:
    return f"i32 {int(e.kernel.checked)}"


def _stop_at(e: FunctionEmitter, bad: str) -> None:
    e.stop_if(e.op(f"icmp ne i64 {bad}, 0"), "sim_rt_illegal", f"i64 {bad}")


def _tensor(e: FunctionEmitter, operand: Operand, rank: int) -> tuple[str, str]:
    """The map, copied, so that it stays what it is looked at for, and the coordinates."""
    if not isinstance(operand, Bracket) or len(operand.items) != 2:
        raise e.fail("a tensor map and coordinates are expected")
    where, given = operand.items
    if not isinstance(where, Register):
        raise e.fail("a tensor map is an address in a register")
    items = given.items if isinstance(given, Vector) else [given]
    if len(items) != rank:
        raise e.fail(f"{rank} coordinates are needed")
    first = pointer(e, Address(where.name, 0), "generic", 8, writes=False).value
    pointer(e, Address(where.name, _MAP_BYTES - 8), "generic", 8, writes=False)
    box, corner = e.alloca(f"[{_MAP_BYTES} x i8], align 8"), e.alloca(f"[{rank} x i32], align 4")
    e.kernel.declare("llvm.memcpy.p0.p0.i64", "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)")
    e.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {box}, ptr {first}, i64 {_MAP_BYTES}, i1 false)")
    for index, each in enumerate(items):
        slot = e.op(f"getelementptr i32, ptr {corner}, i64 {index}")
        e.emit(f"store i32 {e.read_bits(each, 32)}, ptr {slot}, align 4")
    return box, corner


def _size(e: FunctionEmitter, box: str, rank: int) -> tuple[str, str]:
    """Bytes of shared memory that are taken, and that are counted, each an i64."""
    both = e.call("i64", "sim_tensor_size", f"ptr {box}", f"i32 {rank}")
    e.stop_if(e.op(f"icmp eq i64 {both}, 0"), "sim_rt_illegal", "i64 0")
    return e.op(f"lshr i64 {both}, 32"), e.op(f"and i64 {both}, {(1 << 32) - 1}")


def _memory(e: FunctionEmitter, operand: Operand, space: str, span: str) -> tuple[str, str]:
    """Shared memory of so many bytes: its host pointer, and its address within its block, an i32."""
    memory = pointer(e, operand, space, 1, _ALIGNED).value
    check_shared_span(e, memory, span, space)
    numbers = (e.op(f"ptrtoint ptr {each} to i64") for each in (memory, shared_pointer(e, "0")))
    place = e.op(f"trunc i64 {e.op('sub i64 {}, {}'.format(*numbers))} to i32")
    return memory, place
