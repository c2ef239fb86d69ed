"""Kernels whose unit of execution is the warp."""

from __future__ import annotations

from ..emit.layout import BLOCK
from ..emit.registry import handler_of
from ..kernel import KernelContext
from . import calls, exchange, matrix, memory  # noqa: F401  (register the handlers)
from .control import function_text
from .function import ATTRIBUTES, ENTRY, Unsuitable, WarpEmitter
from .record import Recorder
from .registry import WARP_HANDLERS
from .rows import Shape
from .uniform import Uniformity

__all__ = ["Shape", "kernel_functions"]

# Instructions and declarations of a kernel with its functions: vectors take twice as long to compile.
_MOST = 12_000
# Of one that is made twice, for blocks of rows and for any. That doubles how long it takes.
_TWICE = 500


def kernel_functions(
    kernel: KernelContext, records: dict[int, Recorder], shape: Shape = Shape.ANY
) -> list[str] | None:
    """The functions of a kernel for warps, as LLVM IR; None: it runs a thread at a time. `records` are of the
    functions for one thread. `shape`: of the blocks for which they are right."""
    if sum(len(record.items) for record in records.values()) > _MOST:
        return None
    before = dict(kernel.declared), dict(kernel.helpers)
    try:
        plans = {index: _plan(kernel, record, shape) for index, record in records.items()}
        texts = _of_two_shapes(kernel, records, plans) if shape is Shape.ANY else []
        texts = texts or [_text(kernel, record, plans[index]) for index, record in records.items()]
    except (Unsuitable, RecursionError):  # the latter: loops in loops, hundreds of them
        kernel.declared, kernel.helpers = before
        return None
    return [*texts, *kernel.helpers.values()]


def _plan(kernel: KernelContext, record: Recorder, shape: Shape) -> Uniformity:
    plan = Uniformity(record.items, record, shape)
    if plan.waits_on_both_sides() and not kernel.program.in_step:
        raise Unsuitable("lanes wait for each other in different places")
    return plan


def _of_two_shapes(
    kernel: KernelContext, records: dict[int, Recorder], plans: dict[int, Uniformity]
) -> list[str]:
    """A kernel for blocks whose first dimension is a multiple of 32 and for others, where it is worth twice
    the time to compile: lanes leave loops together there. Nothing: it is not."""
    if kernel.quick or len(records) > 1 or sum(len(record.items) for record in records.values()) > _TWICE:
        return []
    ((index, record),) = records.items()
    apart = plans[index].loops_left_apart()
    if record.yields or not apart:  # lanes that wait agree on nothing, whatever their block is like
        return []
    rows = _plan(kernel, record, Shape.ROWS)
    if rows.loops_left_apart() == apart:
        return []
    try:
        return [_text(kernel, record, plans[index], _ANY), _text(kernel, record, rows, _ROWS), _BY_SHAPE]
    except Unsuitable:
        return []


def _text(kernel: KernelContext, record: Recorder, plan: Uniformity, name: str = ENTRY) -> str:
    emitter = WarpEmitter(
        kernel, record.function, record.items, record.yields, handler_of, plan, WARP_HANDLERS
    )
    emitter.entry_name = name
    return function_text(emitter)


_ANY, _ROWS = "warp.of.any", "warp.of.rows"
_WIDTH, _ = BLOCK["ntid.x"]
_BY_SHAPE = f"""
define void @{ENTRY}(ptr %warp) {ATTRIBUTES} {{
  %block = load ptr, ptr %warp, align 8
  %width.at = getelementptr i8, ptr %block, i64 {_WIDTH}
  %width = load i32, ptr %width.at, align 4
  %rest = and i32 %width, 31
  %whole = icmp eq i32 %rest, 0
  br i1 %whole, label %rows, label %any
rows:
  tail call void @{_ROWS}(ptr %warp)
  ret void
any:
  tail call void @{_ANY}(ptr %warp)
  ret void
}}
"""
