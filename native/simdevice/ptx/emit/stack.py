"""alloca, stacksave, stackrestore: local memory that a function takes while it runs."""

from __future__ import annotations

from ..model import Immediate, Instruction
from ..types import U32, U64
from . import reach
from .function import FunctionEmitter
from .modifiers import Modifiers
from .registry import opcode

_PAGE = 4096
_LARGEST = 1 << 24  # bytes; no stack is larger, and what is smaller is probed page by page


@opcode("alloca")
def alloca(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    bits = _width(e, m)
    d, size, *alignment = e.operands(2, 3)
    align = _alignment(e, alignment[0]) if alignment else 8
    extra = align if align > _PAGE else 0
    bytes_ = e.resize(e.read_bits(size, bits), bits, 64, False)
    if e.kernel.checked:
        address = _from_frame(e, bytes_, max(align, reach.ALIGN))
    else:
        e.stop_if(e.op(f"icmp ugt i64 {bytes_}, {_LARGEST}"), "sim_rt_overflow")
        # The machine's stack is probed page by page up to a page's alignment.
        room = e.op(f"add i64 {bytes_}, {extra}") if extra else bytes_
        taken = e.op(f"alloca i8, i64 {room}, align {min(align, _PAGE)}")
        address = e.op(f"ptrtoint ptr {taken} to i64")
        if extra:
            address = e.op(f"and i64 {e.op(f'add i64 {address}, {extra - 1}')}, {-extra}")
    e.write_bits(d, bits, e.resize(address, 64, bits, False))


def _width(e: FunctionEmitter, m: Modifiers) -> int:
    kind = m.type()
    if kind not in (U32, U64):
        raise e.fail("needs u32 or u64")
    return kind.bits


def _alignment(e: FunctionEmitter, operand: object) -> int:
    value = operand.value if isinstance(operand, Immediate) else None
    if not isinstance(value, int) or not 0 < value <= _LARGEST or value & (value - 1):
        raise e.fail("an alignment must be a power of two, and no larger than a stack")
    return value


def _from_frame(e: FunctionEmitter, size: str, align: int) -> str:
    """What is left of local memory gives `size` bytes, or the grid ends."""
    e.frame.place(1, reach.ALIGN)  # a function that has a frame gives back what it took
    e.kernel.take_more()
    top = e.op("load i64, ptr %frame.top, align 8")
    room = e.op(f"sub i64 %frame.limit, {top}")
    first = e.op(f"and i64 {e.op(f'add i64 {top}, {align - 1}')}, {-align}")
    needed = e.op(f"add i64 {size}, {e.op(f'sub i64 {first}, {top}')}")
    for taken in (size, needed):  # the sum may overflow
        e.stop_if(e.op(f"icmp ugt i64 {taken}, {room}"), "sim_rt_overflow")
    end = e.op(f"add i64 {e.op(f'add i64 {first}, {size}')}, {reach.ALIGN - 1}")
    e.emit(f"store i64 {e.op(f'and i64 {end}, {-reach.ALIGN}')}, ptr %frame.top, align 8")
    return first


@opcode("stacksave")
def stacksave(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    bits = _width(e, m)
    (d,) = e.operands(1)
    e.write_bits(d, bits, e.resize(_top(e), 64, bits, False))


@opcode("stackrestore")
def stackrestore(e: FunctionEmitter, i: Instruction, m: Modifiers) -> None:
    if _width(e, m) != 64:
        raise e.fail("needs u64: addresses of local memory have 64 bits")
    (operand,) = e.operands(1)
    saved, top = e.read_bits(operand, 64), _top(e)
    if e.kernel.checked:
        low, high = e.op("ptrtoint ptr %frame.next to i64"), top
    else:  # the machine's stack grows downwards
        frame = e.intrinsic("llvm.frameaddress.p0", "ptr", "i32 0")
        low, high = top, e.op(f"ptrtoint ptr {frame} to i64")
    outside = e.op(f"icmp ugt i64 {e.op(f'sub i64 {saved}, {low}')}, {e.op(f'sub i64 {high}, {low}')}")
    crooked = e.op(f"icmp ne i64 {e.op(f'and i64 {saved}, {reach.ALIGN - 1}')}, 0")
    e.stop_if(e.op(f"or i1 {outside}, {crooked}"), "sim_rt_illegal", f"i64 {saved}")
    if e.kernel.checked:
        e.emit(f"store i64 {saved}, ptr %frame.top, align 8")
    else:
        e.call("void", "llvm.stackrestore.p0", f"ptr {e.op(f'inttoptr i64 {saved} to ptr')}")


def _top(e: FunctionEmitter) -> str:
    """Where what is taken next begins: a number that means something to stackrestore only."""
    if e.kernel.checked:
        e.frame.place(1, reach.ALIGN)
        return e.op("load i64, ptr %frame.top, align 8")
    return e.op(f"ptrtoint ptr {e.intrinsic('llvm.stacksave.p0', 'ptr')} to i64")
