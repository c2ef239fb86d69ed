"""State spaces: what an instruction names, and where an address lies."""

from __future__ import annotations

from ..model import Instruction, Register, Variable
from ..types import PRED
from . import cluster, reach
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode

_SPACES = {
    "global": "global",
    "const": "const",
    "local": "local",
    "param": "param",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "cluster",
    "param::entry": "param",
    "param::func": "param",
}
# Addresses of 32 bits: the block's own memory, and that of its cluster.
SHARED = ("shared", "cluster")


def take_space(m: Modifiers) -> str:
    found = m.choice(*_SPACES)
    return _SPACES[found] if found else "generic"


def read_address(e: FunctionEmitter, name: str, space: str) -> str:
    """A register with an address: 32 bits of it where the space is SHARED, else 64. A register of 32 bits has
    the lower half of an address in local memory: LLVM's short pointers, which Triton asks for."""
    slot = e.register(name)
    if space != "local" or slot is None or slot.type.bits != 32:
        return e.read_bits(Register(name), 32 if space in SHARED else 64)
    return _with_upper_half(e, e.read_bits(Register(name), 32))


def _with_upper_half(e: FunctionEmitter, low: str) -> str:
    near = e.near_local()
    distance = e.op(f"sub i32 {low}, {e.resize(near, 64, 32, False)}")
    return e.op(f"add i64 {near}, {e.resize(distance, 32, 64, True)}")


@opcode("cvta")
def cvta(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    to = m.flag("to")
    space = take_space(m)
    kind = m.type()
    d, x = e.operands(2)
    value = e.read_bits(x, 64)
    if space in SHARED:
        base = e.op(f"ptrtoint ptr {e.block_field('shared')} to i64")
        if not to:
            # Another block's may lie in front of the own.
            value = e.resize(e.resize(value, 64, 32, False), 32, 64, True)
        value = e.op(f"{'sub' if to else 'add'} i64 {value}, {base}")
    elif space == "local" and e.short_pointers and not to:
        low = e.resize(value, 64, 32, False)
        short = e.op(f"icmp eq i64 {value}, {e.resize(low, 32, 64, False)}")
        value = e.op(f"select i1 {short}, i64 {_with_upper_half(e, low)}, i64 {value}")
    e.write_bits(d, kind.bits, e.resize(value, 64, kind.bits, False))


def in_shared(e: FunctionEmitter, address: str) -> str:
    base = e.op(f"ptrtoint ptr {e.block_field('shared')} to i64")
    offset = e.op(f"sub i64 {address}, {base}")
    return e.op(f"icmp ult i64 {offset}, {e.shared_limit()}")


def in_cluster(e: FunctionEmitter, address: str) -> str:
    return cluster.is_inside(e, cluster.place_of_generic(e, address), "1")


def _in_local(e: FunctionEmitter, address: str) -> str:
    if e.kernel.checked:
        return reach.in_local(e, address, 1)
    return e.on_stack(address)


def _in_one_of(e: FunctionEmitter, address: str, variables: list[Variable]) -> str:
    found = "false"
    for variable in variables:
        base = e.op(f"ptrtoint ptr {e.global_pointer(variable.index)} to i64")
        offset = e.op(f"sub i64 {address}, {base}")
        found = e.op(f"or i1 {found}, {e.op(f'icmp ult i64 {offset}, {max(variable.size, 1)}')}")
    return found


def keep_constants(e: FunctionEmitter, address: str) -> None:
    """Ends the grid if a generic address that is written lies in the constant space, as far as the kernel
    makes such addresses: those that the host hands out are global memory."""
    if constants := e.kernel.pointed_constants:
        e.stop_if(_in_one_of(e, address, constants), "sim_rt_illegal", f"i64 {address}")


def _in_params(e: FunctionEmitter, address: str) -> str:
    base = e.op(f"ptrtoint ptr {e.block_field('params')} to i64")
    size = max(e.kernel.parameter_bytes, 1)
    return e.op(f"icmp ult i64 {e.op(f'sub i64 {address}, {base}')}, {size}")


@opcode("isspacep")
def isspacep(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    space = take_space(m)
    d, x = e.operands(2)
    address = e.read_bits(x, 64)
    if space == "shared":
        value = in_shared(e, address)
    elif space == "cluster":
        value = in_cluster(e, address)
    elif space == "local":
        # Shared memory may lie as near to a thread's stack as its own.
        elsewhere = e.op(f"xor i1 {in_cluster(e, address)}, true")
        value = e.op(f"and i1 {_in_local(e, address)}, {elsewhere}")
    elif space == "const":
        value = _in_one_of(e, address, [each for each in e.kernel.module.globals if each.space == "const"])
    elif space == "param":
        value = _in_params(e, address)
    elif space == "global":
        elsewhere = e.op(f"or i1 {in_cluster(e, address)}, {_in_local(e, address)}")
        value = e.op(f"xor i1 {elsewhere}, true")
    else:
        raise e.fail("a space is missing")
    e.write(d, PRED, value)
