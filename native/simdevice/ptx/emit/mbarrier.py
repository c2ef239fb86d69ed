"""The word of an mbarrier: how arrivals and bytes change it."""

from __future__ import annotations

from .function import FunctionEmitter

# Its 64 bits: pending arrivals, arrivals of each phase, the phase's parity, outstanding bytes.
EXPECTED, PHASE, _BYTES = 20, 40, 41
MASK = (1 << 20) - 1


def update(e: FunctionEmitter, where: str, arrivals: str, transferred: str) -> str:
    """Counts arrivals down and adds to the outstanding bytes; begins the next phase when both are zero.
    Yields the state before."""
    slot = e.alloca("i64")
    e.emit(f"store i64 {e.op(f'load atomic i64, ptr {where} monotonic, align 8')}, ptr {slot}")
    again, done = e.label(), e.label()
    e.open(again)
    old = e.op(f"load i64, ptr {slot}")
    pending = e.op(f"sub i64 {e.op(f'and i64 {old}, {MASK}')}, {arrivals}")
    outstanding = e.op(f"add i64 {e.op(f'ashr i64 {old}, {_BYTES}')}, {transferred}")
    complete = e.op(f"icmp eq i64 {e.op(f'or i64 {pending}, {outstanding}')}, 0")
    fixed = e.op(f"and i64 {old}, {1 << PHASE | MASK << EXPECTED}")
    expected = e.op(f"and i64 {e.op(f'lshr i64 {old}, {EXPECTED}')}, {MASK}")
    turned = e.op(f"or i64 {e.op(f'xor i64 {fixed}, {1 << PHASE}')}, {expected}")
    counted = e.op(f"or i64 {fixed}, {e.op(f'and i64 {pending}, {MASK}')}")
    counted = e.op(f"or i64 {counted}, {e.op(f'shl i64 {outstanding}, {_BYTES}')}")
    new = e.op(f"select i1 {complete}, i64 {turned}, i64 {counted}")
    both = e.op(f"cmpxchg ptr {where}, i64 {old}, i64 {new} acq_rel acquire, align 8")
    e.emit(f"store i64 {e.op(f'extractvalue {{ i64, i1 }} {both}, 0')}, ptr {slot}")
    e.branch_if(e.op(f"extractvalue {{ i64, i1 }} {both}, 1"), done, again)
    e.open(done)
    return old
