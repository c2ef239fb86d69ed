"""Kernels whose unit of execution is the warp."""

from __future__ import annotations

from ..emit.registry import handler_of
from ..kernel import KernelContext
from . import calls, exchange, matrix, memory  # noqa: F401  (register the handlers)
from .control import function_text
from .function import Unsuitable, WarpEmitter
from .record import Recorder
from .registry import WARP_HANDLERS
from .rows import Shape
from .uniform import Uniformity

__all__ = ["Shape", "kernel_functions"]

# Instructions and declarations of a kernel with its functions: vectors take twice as long to compile.
_MOST = 12_000


def kernel_functions(
    kernel: KernelContext, records: dict[int, Recorder], shape: Shape = Shape.ANY
) -> list[str] | None:
    """The functions of a kernel for warps, as LLVM IR; None: it runs a thread at a time. `records` are of the
    functions for one thread. `shape`: of the blocks for which they are right."""
    if sum(len(record.items) for record in records.values()) > _MOST:
        return None
    declared, helpers = dict(kernel.declared), dict(kernel.helpers)
    try:
        texts = [_function_text(kernel, record, shape) for record in records.values()]
    except Unsuitable:
        kernel.declared, kernel.helpers = declared, helpers
        return None
    return [*texts, *kernel.helpers.values()]


def _function_text(kernel: KernelContext, record: Recorder, shape: Shape) -> str:
    items = record.items
    plan = Uniformity(items, record, shape)
    if plan.waits_on_both_sides() and not kernel.program.in_step:
        raise Unsuitable("lanes wait for each other in different places")
    emitter = WarpEmitter(kernel, record.function, items, record.yields, handler_of, plan, WARP_HANDLERS)
    return function_text(emitter)
