"""Contexts: created and primary, the stack of a thread, limits, and what remains after the end."""

from __future__ import annotations

import ctypes
import threading

from .driver import (
    CONTEXT_IS_DESTROYED,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED,
    SUCCESS,
    UNSUPPORTED_LIMIT,
    Driver,
)


def current(cu: Driver) -> int:
    return int(cu.out("cuCtxGetCurrent"))


def test_create_pushes_and_destroy_pops(cu: Driver) -> None:
    before = current(cu)
    context = cu.out("cuCtxCreate_v2", 0, 1)
    assert current(cu) == context
    assert cu.out("cuCtxGetDevice", type=ctypes.c_int) == 1
    cu.ok("cuCtxDestroy_v2", context)
    assert current(cu) == before
    assert cu.status("cuCtxDestroy_v2", context) == INVALID_CONTEXT
    assert cu.status("cuCtxSetCurrent", context) == INVALID_CONTEXT


def test_creation_errors(cu: Driver) -> None:
    out = ctypes.byref(ctypes.c_uint64())
    assert cu.status("cuCtxCreate_v2", out, 0, 5) == INVALID_DEVICE
    assert cu.status("cuCtxCreate_v2", out, 3, 0) == INVALID_VALUE
    assert cu.status("cuCtxCreate_v2", out, 0x1000, 0) == INVALID_VALUE
    assert cu.status("cuCtxCreate_v2", None, 0, 0) == INVALID_VALUE


def test_stack_of_a_thread(cu: Driver, context: int) -> None:
    with cu.context(1) as other:
        cu.ok("cuCtxPushCurrent_v2", context)
        assert current(cu) == context
        assert cu.out("cuCtxPopCurrent_v2") == context
        assert current(cu) == other
        cu.ok("cuCtxSetCurrent", context)  # replaces the top
        assert cu.out("cuCtxPopCurrent_v2") == context
        assert current(cu) == context
        cu.ok("cuCtxPushCurrent_v2", other)
    assert current(cu) == context


def test_without_a_current_context(cu: Driver) -> None:
    results: list[int] = []

    def body() -> None:
        pointer = ctypes.byref(ctypes.c_uint64())
        results.append(cu.status("cuMemAlloc_v2", pointer, 16))
        results.append(cu.status("cuCtxPopCurrent_v2", None))
        results.append(cu.status("cuStreamCreate", pointer, 0))
        results.append(cu.status("cuCtxSynchronize"))
        results.append(cu.status("cuCtxPushCurrent_v2", 0))
        results.append(cu.status("cuCtxPushCurrent_v2", 0x123450))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    wanted = [INVALID_CONTEXT] * 6
    wanted[4] = INVALID_VALUE
    assert results == wanted


def test_another_thread_learns_of_the_end(cu: Driver) -> None:
    context = cu.out("cuCtxCreate_v2", 0, 0)
    ready, ended = threading.Event(), threading.Event()
    results: list[int] = []

    def body() -> None:
        cu.ok("cuCtxSetCurrent", context)
        ready.set()
        ended.wait(30)
        results.append(cu.status("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 16))

    thread = threading.Thread(target=body)
    thread.start()
    assert ready.wait(30)
    cu.ok("cuCtxDestroy_v2", context)
    ended.set()
    thread.join()
    assert results == [CONTEXT_IS_DESTROYED]


def test_end_frees_what_the_context_owns(cu: Driver, context: int) -> None:
    before = cu.used()
    inner = cu.out("cuCtxCreate_v2", 0, 0)
    pointer = cu.alloc(1 << 20)
    stream = cu.stream()
    event = cu.out("cuEventCreate", 0)
    assert cu.used() == before + (1 << 20)
    cu.ok("cuCtxDestroy_v2", inner)
    assert cu.used() == before
    assert cu.status("cuStreamSynchronize", stream) == INVALID_HANDLE
    assert cu.status("cuEventQuery", event) == INVALID_HANDLE
    assert cu.status("cuMemFree_v2", pointer) == INVALID_VALUE


def test_primary_context(cu: Driver) -> None:
    flags, active = ctypes.c_uint(), ctypes.c_int()

    def state() -> tuple[int, int]:
        cu.ok("cuDevicePrimaryCtxGetState", 1, ctypes.byref(flags), ctypes.byref(active))
        return flags.value, active.value

    assert state()[1] == 0
    primary = cu.out("cuDevicePrimaryCtxRetain", 1)
    assert cu.out("cuDevicePrimaryCtxRetain", 1) == primary
    assert state()[1] == 1
    assert cu.status("cuCtxDestroy_v2", primary) == INVALID_CONTEXT
    cu.ok("cuCtxPushCurrent_v2", primary)
    cu.ok("cuDevicePrimaryCtxSetFlags_v2", 1, 4)
    assert state() == (4, 1)
    pointer = cu.alloc(4096)
    cu.ok("cuDevicePrimaryCtxReset_v2", 1)
    assert state()[1] == 0
    assert cu.status("cuMemFree_v2", pointer) == CONTEXT_IS_DESTROYED
    assert cu.out("cuDevicePrimaryCtxRetain", 1) == primary
    assert cu.status("cuMemFree_v2", pointer) == INVALID_VALUE
    cu.free(cu.alloc(16))
    for _ in range(3):  # a reset releases for nobody
        cu.ok("cuDevicePrimaryCtxRelease_v2", 1)
    assert cu.status("cuDevicePrimaryCtxRelease_v2", 1) == INVALID_CONTEXT
    assert state()[1] == 0
    assert cu.status("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 16) == CONTEXT_IS_DESTROYED
    assert cu.out("cuDevicePrimaryCtxRetain", 1) == primary
    cu.free(cu.alloc(16))
    cu.ok("cuDevicePrimaryCtxSetFlags_v2", 1, 0)
    cu.ok("cuDevicePrimaryCtxRelease_v2", 1)
    cu.ok("cuCtxPopCurrent_v2", None)


def test_limits_and_configuration(cu: Driver, context: int) -> None:
    cu.ok("cuCtxSetLimit", 0, 4096)
    assert cu.out("cuCtxGetLimit", 0) == 4096
    assert cu.status("cuCtxSetLimit", 9, 1) == UNSUPPORTED_LIMIT
    assert cu.out("cuCtxGetLimit", 8) == 0  # CIG_ENABLED: cuBLAS takes what it finds for the answer
    assert cu.status("cuCtxSetLimit", 8, 0) == UNSUPPORTED_LIMIT
    assert cu.status("cuCtxSetLimit", 99, 1) == INVALID_VALUE
    cu.ok("cuCtxSetCacheConfig", 2)
    assert cu.out("cuCtxGetCacheConfig", type=ctypes.c_int) == 2
    assert cu.status("cuCtxSetCacheConfig", 9) == INVALID_VALUE
    least, greatest = ctypes.c_int(), ctypes.c_int()
    cu.ok("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    assert (least.value, greatest.value) == (0, -5)


def test_limits_that_cannot_be_had(cu: Driver, context: int) -> None:
    """As on a GPU: no thread has more than 512 KiB of local memory, and no heap more than its device."""
    cu.ok("cuCtxSetLimit", 0, 512 << 10)
    for limit, value in [(0, (512 << 10) + 1), (0, 1 << 46), (0, 1 << 63), (1, 1 << 62), (2, 1 << 40)]:
        assert cu.status("cuCtxSetLimit", limit, value) == INVALID_VALUE
    assert cu.out("cuCtxGetLimit", 0) == 512 << 10


def test_ids_and_version(cu: Driver, context: int) -> None:
    first, second = ctypes.c_uint64(), ctypes.c_uint64()
    cu.ok("cuCtxGetId", context, ctypes.byref(first))
    with cu.context() as other:
        cu.ok("cuCtxGetId", other, ctypes.byref(second))
    assert first.value != second.value
    version = ctypes.c_uint()
    cu.ok("cuCtxGetApiVersion", context, ctypes.byref(version))
    assert version.value >= 3020


def test_peer_access(cu: Driver, context: int) -> None:
    assert cu.out("cuDeviceCanAccessPeer", 0, 1, type=ctypes.c_int) == 1
    assert cu.out("cuDeviceCanAccessPeer", 0, 0, type=ctypes.c_int) == 0
    with cu.context(1) as peer:
        cu.ok("cuCtxPushCurrent_v2", context)
        cu.ok("cuCtxEnablePeerAccess", peer, 0)
        assert cu.status("cuCtxEnablePeerAccess", peer, 0) == PEER_ACCESS_ALREADY_ENABLED
        cu.ok("cuCtxDisablePeerAccess", peer)
        assert cu.status("cuCtxDisablePeerAccess", peer) == PEER_ACCESS_NOT_ENABLED
        assert cu.status("cuCtxEnablePeerAccess", peer, 1) == INVALID_VALUE
        cu.ok("cuCtxPopCurrent_v2", None)


def test_many_contexts_in_many_threads(cu: Driver) -> None:
    failures: list[int] = []

    def body() -> None:
        for _ in range(50):
            context = cu.out("cuCtxCreate_v2", 0, 0)
            pointer = cu.alloc(4096)
            cu.ok("cuMemsetD8Async", pointer, 1, 4096, 0)
            result = cu.status("cuCtxDestroy_v2", context)
            if result != SUCCESS:
                failures.append(result)

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
