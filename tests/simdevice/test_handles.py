"""Garbage where a handle or a pointer is expected gives an error, never a crash."""

from __future__ import annotations

import ctypes

from hypothesis import given, settings
from hypothesis import strategies as st

from .driver import SUCCESS, Driver, driver
from .kernels import function, module

OUT = ctypes.byref((ctypes.c_uint64 * 64)())

# function, arguments: "h" is where the garbage goes
CALLS: list[tuple[str, tuple[object, ...]]] = [
    ("cuCtxSetCurrent", ("h",)),
    ("cuCtxPushCurrent_v2", ("h",)),
    ("cuCtxDestroy_v2", ("h",)),
    ("cuCtxGetApiVersion", ("h", OUT)),
    ("cuCtxSynchronize_v2", ("h",)),
    ("cuStreamSynchronize", ("h",)),
    ("cuStreamQuery", ("h",)),
    ("cuStreamDestroy_v2", ("h",)),
    ("cuStreamGetCtx", ("h", OUT)),
    ("cuMemsetD8Async", ("pointer", 1, 1, "h")),
    ("cuEventQuery", ("h",)),
    ("cuEventRecord", ("h", 0)),
    ("cuEventDestroy_v2", ("h",)),
    ("cuStreamWaitEvent", (0, "h", 0)),
    ("cuModuleUnload", ("h",)),
    ("cuModuleGetFunction", (OUT, "h", b"count")),
    ("cuModuleGetGlobal_v2", (OUT, OUT, "h", b"counter")),
    ("cuLaunchKernel", ("h", 1, 1, 1, 1, 1, 1, 0, 0, None, None)),
    ("cuLaunchKernel", ("function", 1, 1, 1, 1, 1, 1, 0, "h", None, None)),
    ("cuFuncGetAttribute", (OUT, 0, "h")),
    ("cuKernelGetAttribute", (OUT, 0, "h", 0)),
    ("cuKernelGetFunction", (OUT, "h")),
    ("cuLibraryUnload", ("h",)),
    ("cuLibraryGetKernel", (OUT, "h", b"count")),
    ("cuLinkComplete", ("h", OUT, OUT)),
    ("cuMemPoolDestroy", ("h",)),
    ("cuMemPoolGetAttribute", ("h", 7, OUT)),
    ("cuMemAllocFromPoolAsync", (OUT, 16, "h", 0)),
    ("cuMemRelease", ("h",)),
    ("cuMemGetAllocationPropertiesFromHandle", (OUT, "h")),
    ("cuMemFree_v2", ("h",)),
    ("cuMemFreeAsync", ("h", 0)),
    ("cuMemFreeHost", ("h",)),
    ("cuMemHostUnregister", ("h",)),
    ("cuMemUnmap", ("h", 2 << 20)),
    ("cuMemAddressFree", ("h", 2 << 20)),
    ("cuMemsetD8_v2", ("h", 1, 1)),
    ("cuMemcpyDtoD_v2", ("h", "pointer", 1)),
    ("cuPointerGetAttribute", (OUT, 2, "h")),
]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 2**64 - 1) | st.integers(3, 4096) | st.integers(0, 2**30).map(lambda n: n << 4 | 1 << 28)
)
def test_random_garbage(garbage: int) -> None:
    cu = driver()
    with cu.context():
        names = {"h": garbage, "pointer": cu.alloc(64), "function": function(cu, module(cu), "count")}
        for call, arguments in CALLS:
            given_ = [names.get(a, a) if isinstance(a, str) else a for a in arguments]
            assert cu.status(call, *given_) != SUCCESS, (call, hex(garbage))
        cu.ok("cuCtxSynchronize")


def test_a_handle_of_another_kind(cu: Driver, context: int) -> None:
    stream, event, loaded = cu.stream(), cu.out("cuEventCreate", 0), module(cu)
    kinds = {
        "cuStreamQuery": stream,
        "cuEventQuery": event,
        "cuModuleUnload": loaded,
        "cuCtxGetApiVersion": context,
    }
    for call in kinds:
        for owner, handle in kinds.items():
            if owner != call:
                assert cu.status(call, handle, OUT) != SUCCESS, (call, owner)


def test_slots_are_reused_but_old_handles_stay_dead(cu: Driver, context: int) -> None:
    dead = []
    for _ in range(3000):
        event = cu.out("cuEventCreate", 2)
        cu.ok("cuEventDestroy_v2", event)
        dead.append(event)
    assert len(set(dead)) == len(dead)
    assert all(cu.status("cuEventQuery", event) == 400 for event in dead)
