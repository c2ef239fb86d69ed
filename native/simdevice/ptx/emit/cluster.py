"""Shared memory of the blocks of a cluster, of which there is one."""

from __future__ import annotations

from ..model import Instruction
from ..types import U32
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode


@opcode("mapa")
def mapa(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """Emit `mapa`: where the shared variable is in the block of a rank, which can only be 0."""
    m.choice("shared::cluster")
    kind = m.type()
    d, address, rank = e.operands(3)
    value = e.read_bits(address, kind.bits)
    e.stop_if(e.op(f"icmp ne i32 {e.read(rank, U32)}, 0"), "sim_rt_trap")
    e.write_bits(d, kind.bits, value)


@opcode("getctarank")
def getctarank(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    """The rank of the block whose shared memory an address lies in."""
    m.choice("shared::cluster")
    kind = m.type()
    d, address = e.operands(2)
    e.read_bits(address, kind.bits)
    e.write(d, U32, "0")
