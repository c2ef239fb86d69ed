"""Shared memory of the blocks of a cluster.

It lies in one window of the host's memory, block after block by their ranks, SIM_CLUSTER_STRIDE apart. An
address in shared memory is a distance from the block's own, so that of another block is a multiple of the
stride away, and may be negative; it has 32 bits and wraps. A generic address is the host's.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import Instruction
from ..types import U32
from . import layout
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode
from .writer import Writer

_WITHIN = (1 << layout.CLUSTER_SHIFT) - 1


def place_of(e: Writer, address: str) -> str:
    """The distance of a shared address of 32 bits from the begin of the window, an i32."""
    return e.op(f"add i32 {address}, {_begin(e, e.block_field('cluster_rank'))}")


def place_of_generic(e: Writer, address: str) -> str:
    """The same of a host address, an i64: anything may lie outside."""
    return e.op(f"sub i64 {address}, {_window(e)}")


def is_inside(e: Writer, place: str, size: str) -> str:
    """Whether `size` bytes, an i64 that no sum of it and a stride overflows, at a place of 64 bits belong to
    one of the cluster's blocks."""
    blocks = e.op(f"zext i32 {e.block_field('cluster_size')} to i64")
    known = e.op(f"icmp ult i64 {e.op(f'lshr i64 {place}, {layout.CLUSTER_SHIFT}')}, {blocks}")
    end = e.op(f"add i64 {e.op(f'and i64 {place}, {_WITHIN}')}, {size}")
    return e.op(f"and i1 {known}, {e.op(f'icmp ule i64 {end}, {e.shared_limit()}')}")


def checked_pointer(e: FunctionEmitter, address: str, size: int) -> str:
    """The host pointer of a shared address of 32 bits, which any block of the cluster may have."""
    place = e.op(f"zext i32 {place_of(e, address)} to i64")
    outside = e.op(f"xor i1 {is_inside(e, place, str(size))}, true")
    e.stop_if(outside, "sim_rt_illegal", f"i64 {e.op(f'zext i32 {address} to i64')}")
    return e.op(f"getelementptr i8, ptr {e.block_field('window')}, i64 {place}")


def in_block(e: Writer, pointer: str, rank: str) -> str:
    """The same place, of a host pointer into the cluster's memory, in the block of a rank."""
    place = place_of_generic(e, e.op(f"ptrtoint ptr {pointer} to i64"))
    within = e.op(f"and i64 {place}, {_WITHIN}")
    place = e.op(f"add i64 {within}, {e.op(f'zext i32 {_begin(e, rank)} to i64')}")
    return e.op(f"getelementptr i8, ptr {e.block_field('window')}, i64 {place}")


def for_each_block(e: FunctionEmitter, ranks: str, emit: Callable[[str], None]) -> None:
    """What `emit` writes, for each block of the cluster whose rank is a bit of `ranks`, an i16."""
    slot = e.alloca("i32")
    e.emit(f"store i32 0, ptr {slot}, align 4")
    wanted = e.op(f"zext i16 {ranks} to i32")
    again, asked, wanted_one, following, done = (e.label() for _ in range(5))
    e.open(again)
    rank = e.op(f"load i32, ptr {slot}, align 4")
    e.branch_if(e.op(f"icmp uge i32 {rank}, {e.block_field('cluster_size')}"), done, asked)
    e.open(asked)
    bit = e.op(f"and i32 {e.op(f'lshr i32 {wanted}, {rank}')}, 1")
    e.branch_if(e.op(f"icmp ne i32 {bit}, 0"), wanted_one, following)
    e.open(wanted_one)
    emit(rank)
    e.branch(following)
    e.open(following)
    e.emit(f"store i32 {e.op(f'add i32 {rank}, 1')}, ptr {slot}, align 4")
    e.branch(again)
    e.open(done)


def _window(e: Writer) -> str:
    return e.op(f"ptrtoint ptr {e.block_field('window')} to i64")


def _begin(e: Writer, rank: str) -> str:
    return e.op(f"shl i32 {rank}, {layout.CLUSTER_SHIFT}")


@opcode("mapa")
def mapa(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """Emit `mapa`: where what lies at an address of a block is in the block of another rank."""
    named = m.choice("shared::cluster")
    kind = m.type()
    d, address, rank = e.operands(3)
    wanted = e.read(rank, U32)
    unknown = e.op(f"icmp uge i32 {wanted}, {e.block_field('cluster_size')}")
    e.stop_if(unknown, "sim_rt_trap")
    if named:
        within = e.op(f"and i32 {place_of(e, e.read_bits(address, 32))}, {_WITHIN}")
        other = e.op(f"sub i32 {wanted}, {e.block_field('cluster_rank')}")
        value = e.op(f"add i32 {within}, {_begin(e, other)}")
        e.write_bits(d, kind.bits, e.resize(value, 32, kind.bits, False))
        return
    within = e.op(f"and i64 {place_of_generic(e, e.read_bits(address, 64))}, {_WITHIN}")
    place = e.op(f"add i64 {within}, {e.op(f'zext i32 {_begin(e, wanted)} to i64')}")
    e.write_bits(d, 64, e.op(f"add i64 {_window(e)}, {place}"))


@opcode("getctarank")
def getctarank(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """The rank of the block whose shared memory an address lies in."""
    named = m.choice("shared::cluster")
    m.type()
    d, address = e.operands(2)
    if named:
        place = place_of(e, e.read_bits(address, 32))
    else:
        place = e.op(f"trunc i64 {place_of_generic(e, e.read_bits(address, 64))} to i32")
    e.write(d, U32, e.op(f"lshr i32 {place}, {layout.CLUSTER_SHIFT}"))
