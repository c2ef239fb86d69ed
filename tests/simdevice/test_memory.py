"""Device and host memory: allocation, limits, address ranges, pointer attributes."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from .driver import (
    HOST_FUNCTION,
    HOST_MEMORY_ALREADY_REGISTERED,
    HOST_MEMORY_NOT_REGISTERED,
    INVALID_DEVICE,
    INVALID_VALUE,
    NOT_FOUND,
    OUT_OF_MEMORY,
    SUCCESS,
    Driver,
    driver,
)

OUT = ctypes.byref(ctypes.c_uint64())


def test_allocation_is_zero_aligned_and_charged(cu: Driver, context: int) -> None:
    before = cu.used()
    pointer = cu.alloc(100_000)
    assert pointer % 512 == 0
    assert cu.used() > before
    assert cu.read(pointer, 100_000) == bytes(100_000)
    cu.free(pointer)
    assert cu.used() == before


def test_allocation_errors(cu: Driver, context: int) -> None:
    assert cu.status("cuMemAlloc_v2", OUT, 0) == INVALID_VALUE
    assert cu.status("cuMemAlloc_v2", None, 16) == INVALID_VALUE
    assert cu.status("cuMemFree_v2", 0x1000) == INVALID_VALUE
    assert cu.status("cuMemFree_v2", 0) == SUCCESS
    pointer = cu.alloc(4096)
    assert cu.status("cuMemFree_v2", pointer + 16) == INVALID_VALUE
    cu.free(pointer)
    assert cu.status("cuMemFree_v2", pointer) == INVALID_VALUE


def test_limit_is_enforced_exactly(cu: Driver, context: int) -> None:
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    cu.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert cu.status("cuMemAlloc_v2", OUT, free.value + 1) == OUT_OF_MEMORY
    assert cu.status("cuMemAlloc_v2", OUT, 2**64 - 1) == OUT_OF_MEMORY
    pointer = cu.alloc(free.value)
    assert cu.status("cuMemAlloc_v2", OUT, 1) == OUT_OF_MEMORY
    cu.free(pointer)
    cu.free(cu.alloc(free.value))


def test_limit_is_per_device(cu: Driver, context: int) -> None:
    pointer = cu.alloc(800 << 20)
    with cu.context(1):
        cu.free(cu.alloc(800 << 20))
    cu.free(pointer)


def test_pitch(cu: Driver, context: int) -> None:
    pointer, pitch = ctypes.c_uint64(), ctypes.c_uint64()
    cu.ok("cuMemAllocPitch_v2", ctypes.byref(pointer), ctypes.byref(pitch), 1000, 10, 4)
    assert pitch.value == 1024
    cu.ok("cuMemsetD2D8_v2", pointer.value, pitch.value, 7, 1000, 10)
    cu.free(pointer.value)
    for width, height, element in ((0, 10, 4), (10, 0, 4), (10, 10, 3)):
        status = cu.status(
            "cuMemAllocPitch_v2", ctypes.byref(pointer), ctypes.byref(pitch), width, height, element
        )
        assert status == INVALID_VALUE


def test_address_range(cu: Driver, context: int) -> None:
    pointer = cu.alloc(5000)
    base, size = ctypes.c_uint64(), ctypes.c_uint64()
    cu.ok("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), pointer + 4999)
    assert (base.value, size.value) == (pointer, 5000)
    assert cu.status("cuMemGetAddressRange_v2", None, None, pointer + 5000) == NOT_FOUND
    cu.free(pointer)


def attributes(cu: Driver, pointer: int, numbers: list[int]) -> list[int]:
    values = (ctypes.c_uint64 * len(numbers))()
    addresses = (ctypes.c_void_p * len(numbers))(
        *[ctypes.addressof(values) + 8 * i for i in range(len(numbers))]
    )
    cu.ok("cuPointerGetAttributes", len(numbers), (ctypes.c_int * len(numbers))(*numbers), addresses, pointer)
    return list(values)


def test_pointer_attributes(cu: Driver, context: int) -> None:
    numbers = [1, 2, 3, 4, 8, 9, 11, 12, 13]
    device = cu.alloc(4096)
    assert attributes(cu, device + 8, numbers) == [context, 2, device + 8, 0, 0, 0, device, 4096, 1]
    host = cu.out("cuMemHostAlloc", 4096, 0)
    assert attributes(cu, host, numbers) == [context, 1, host, host, 0, 0, host, 4096, 1]
    managed = cu.out("cuMemAllocManaged", 4096, 1)
    assert attributes(cu, managed, numbers) == [context, 2, managed, managed, 1, 0, managed, 4096, 1]
    assert attributes(cu, 0x5000, [2, 3, 4, 9]) == [0, 0, 0x5000, 0xFFFFFFFE]
    assert cu.status("cuPointerGetAttribute", OUT, 2, 0x5000) == INVALID_VALUE
    assert cu.status("cuPointerGetAttribute", OUT, 4, device) == INVALID_VALUE
    assert cu.status("cuPointerGetAttribute", OUT, 77, device) == INVALID_VALUE
    cu.free(managed)
    cu.ok("cuMemFreeHost", host)
    cu.free(device)


def test_managed_memory_is_host_memory_too(cu: Driver, context: int) -> None:
    pointer = cu.out("cuMemAllocManaged", 4096, 1)
    ctypes.memset(pointer, 5, 4096)
    assert cu.read(pointer, 4096) == b"\5" * 4096
    cu.free(pointer)
    assert cu.status("cuMemAllocManaged", OUT, 4096, 0) == INVALID_VALUE


def test_advice_about_managed_memory(cu: Driver, context: int) -> None:
    pointer, plain = cu.out("cuMemAllocManaged", 8192, 1), cu.alloc(8192)
    cu.ok("cuMemPrefetchAsync", pointer, 8192, 0, 0)
    cu.ok("cuMemPrefetchAsync", pointer + 4096, 4096, -1, 0)
    cu.ok("cuMemAdvise", pointer, 8192, 1, 0)
    cu.ok("cuStreamAttachMemAsync", cu.stream(), pointer, 0, 4)
    assert cu.status("cuMemPrefetchAsync", pointer, 8193, 0, 0) == INVALID_VALUE
    assert cu.status("cuMemPrefetchAsync", plain, 8192, 0, 0) == INVALID_VALUE
    assert cu.status("cuMemPrefetchAsync", pointer, 8192, 7, 0) == INVALID_DEVICE
    assert cu.status("cuMemAdvise", pointer, 8192, 77, 0) == INVALID_VALUE
    cu.free(pointer)
    cu.free(plain)


def test_page_locked_memory(cu: Driver, context: int) -> None:
    host = cu.out("cuMemHostAlloc", 1000, 3)
    assert cu.out("cuMemHostGetDevicePointer_v2", host + 4, 0) == host + 4
    flags = ctypes.c_uint()
    cu.ok("cuMemHostGetFlags", ctypes.byref(flags), host)
    assert flags.value == 3
    cu.ok("cuMemFreeHost", host)
    assert cu.status("cuMemFreeHost", host) == INVALID_VALUE
    cu.ok("cuMemFreeHost", cu.out("cuMemHostAlloc", 0, 0))  # of no bytes it is memory all the same
    assert cu.status("cuMemHostAlloc", OUT, 16, 0x80) == INVALID_VALUE


def test_registered_memory(cu: Driver, context: int) -> None:
    with mmap.mmap(-1, 3 * 4096) as pages:
        view = ctypes.c_char.from_buffer(pages)
        address = ctypes.addressof(view)
        cu.ok("cuMemHostRegister_v2", address + 4096, 4096, 0)
        assert cu.out("cuMemHostGetDevicePointer_v2", address + 4096, 0) == address + 4096
        assert cu.status("cuMemHostRegister_v2", address, 3 * 4096, 0) == HOST_MEMORY_ALREADY_REGISTERED
        cu.ok("cuMemsetD8_v2", address + 4096, 9, 4096)
        assert pages[4095:4098] == b"\0\11\11"
        assert cu.status("cuMemHostUnregister", address) == HOST_MEMORY_NOT_REGISTERED
        cu.ok("cuMemHostUnregister", address + 4096)
        assert cu.status("cuMemHostUnregister", address + 4096) == HOST_MEMORY_NOT_REGISTERED
        del view


def permissions(address: int) -> str:
    """What this process may do at an address, as /proc says it (rwxp); empty: nothing is mapped there."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, allowed = line.split()[:2]
            low, high = (int(end, 16) for end in span.split("-"))
            if low <= address < high:
                return allowed
    return ""


def test_freed_memory_is_out_of_reach(cu: Driver, context: int) -> None:
    mark = os.urandom(32)
    pointer = cu.alloc(1 << 20)
    cu.ok("cuMemcpyHtoD_v2", pointer, mark, len(mark))
    cu.free(pointer)
    assert cu.status("cuMemcpyHtoD_v2", pointer, b"x", 1) == INVALID_VALUE
    left = permissions(pointer)
    if os.environ.get("GPUFERRY_SANITIZER") == "thread" and left:
        # Under TSan no range of addresses is the device's alone, and what others map may lie there by now.
        assert left[0] != "r" or ctypes.string_at(pointer, len(mark)) != mark
    else:
        assert not left


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3 << 20), st.integers(0, 1000)), max_size=60))
def test_allocations_never_overlap_and_keep_their_bytes(steps: list[tuple[bool, int, int]]) -> None:
    cu = driver()
    with cu.context():
        before = cu.used()
        live: dict[int, tuple[int, int]] = {}
        for allocate, size, pick in steps:
            if allocate or not live:
                pointer = cu.alloc(size)
                mark = len(live) % 251 + 1
                cu.ok("cuMemsetD8_v2", pointer, mark, size)
                assert all(
                    pointer + size <= other or other + kept[0] <= pointer for other, kept in live.items()
                )
                live[pointer] = (size, mark)
            else:
                pointer = sorted(live)[pick % len(live)]
                size, mark = live.pop(pointer)
                assert cu.read(pointer, 1) == cu.read(pointer + size - 1, 1) == bytes([mark])
                cu.free(pointer)
        for pointer, (size, mark) in live.items():
            assert cu.read(pointer + size - 1, 1) == bytes([mark])
            cu.free(pointer)
        assert cu.used() == before


def test_memory_is_freed_behind_copies_of_other_devices(cu: Driver, context: int) -> None:
    """One that found no memory ended the process."""
    size = 1 << 20
    memory = cu.alloc(size)
    cu.ok("cuMemsetD8_v2", memory, 7, size)
    with cu.context(1):
        stream, target = cu.stream(), cu.alloc(size)
        # The copy is still to come when its source is given up; on a slower machine this proves less.
        later = HOST_FUNCTION(lambda _: time.sleep(0.1))
        cu.ok("cuLaunchHostFunc", stream, later, None)
        cu.ok("cuMemcpyDtoDAsync_v2", target, memory, size, stream)
        cu.free(memory)
        assert cu.status("cuStreamQuery", stream) == SUCCESS
        assert cu.read(target, size) == bytes([7]) * size


def test_threads_allocate_and_free_at_once(cu: Driver, context: int) -> None:
    before = cu.used()
    problems: list[str] = []

    def body(mark: int) -> None:
        cu.ok("cuCtxSetCurrent", context)
        for i in range(300):
            pointer = cu.alloc(1000 + 7 * i)
            cu.ok("cuMemsetD8Async", pointer, mark, 1000, 2)
            if cu.read(pointer, 1000) != bytes([mark]) * 1000:
                problems.append("lost")
            cu.free(pointer)

    threads = [threading.Thread(target=body, args=(i + 1,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert cu.used() == before
