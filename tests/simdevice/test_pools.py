"""Stream-ordered allocation."""

from __future__ import annotations

import ctypes

import pytest

from .driver import (
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    Driver,
    Gate,
)
from .kernels import needs_holes
from .test_vmm import Access, Location

OUT = ctypes.byref(ctypes.c_uint64())
MIB = 1 << 20


class PoolProperties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("security", ctypes.c_void_p),
        ("limit", ctypes.c_size_t),
        ("reserved", ctypes.c_uint8 * 56),
    ]


def pool(cu: Driver, limit: int = 0) -> int:
    properties = PoolProperties(type=1, location=Location(1, 0), limit=limit)
    return int(cu.out("cuMemPoolCreate", ctypes.byref(properties)))


def attribute(cu: Driver, handle: int, number: int) -> int:
    value = ctypes.c_uint64()
    cu.ok("cuMemPoolGetAttribute", handle, number, ctypes.byref(value))
    return value.value


def test_default_pool(cu: Driver, context: int) -> None:
    default = cu.out("cuDeviceGetDefaultMemPool", 0)
    assert cu.out("cuDeviceGetMemPool", 0) == default
    stream, before = cu.stream(), attribute(cu, default, 7)
    pointer = cu.out("cuMemAllocAsync", 5 * MIB, stream)
    assert attribute(cu, default, 7) == before + 5 * MIB
    assert cu.out("cuPointerGetAttribute", 17, pointer) == default
    cu.ok("cuMemsetD8Async", pointer, 6, 5 * MIB, stream)
    gate = Gate(cu, stream)
    cu.ok("cuMemFreeAsync", pointer, stream)
    assert cu.status("cuMemFreeAsync", pointer, stream) == INVALID_VALUE
    assert cu.status("cuMemFree_v2", pointer) == INVALID_VALUE
    assert attribute(cu, default, 7) == before
    gate.open()
    cu.ok("cuStreamSynchronize", stream)
    assert attribute(cu, default, 7) == before
    assert attribute(cu, default, 8) >= before + 5 * MIB
    assert cu.status("cuMemPoolDestroy", default) == INVALID_VALUE


def test_a_stream_has_at_once_what_it_freed(cu: Driver, context: int) -> None:
    own, stream, other = pool(cu), cu.stream(), cu.stream()
    pointer = cu.out("cuMemAllocFromPoolAsync", MIB, own, stream)
    first = cu.out("cuPointerGetAttribute", 7, pointer)
    gate = Gate(cu, stream)
    cu.ok("cuMemFreeAsync", pointer, stream)
    assert (attribute(cu, own, USED), attribute(cu, own, RESERVED)) == (0, 2 * MIB), "in granules"
    elsewhere = cu.out("cuMemAllocFromPoolAsync", MIB, own, other)
    assert elsewhere != pointer
    again = cu.out("cuMemAllocFromPoolAsync", MIB - 1, own, stream)
    assert again == pointer
    assert cu.out("cuPointerGetAttribute", 7, again) != first
    assert cu.out("cuMemAllocFromPoolAsync", MIB, own, stream) not in (pointer, elsewhere)
    assert (attribute(cu, own, USED), attribute(cu, own, RESERVED)) == (3 * MIB, 4 * MIB)
    cu.ok("cuMemsetD8Async", again, 7, MIB - 1, stream)
    gate.open()
    cu.ok("cuStreamSynchronize", stream)
    assert cu.read(again, 1) == b"\7"  # the free that was on its way took nothing
    cu.ok("cuMemFreeAsync", again, stream)
    cu.ok("cuStreamSynchronize", stream)
    assert cu.status("cuMemsetD8_v2", again, 0, 1) == INVALID_VALUE
    assert attribute(cu, own, USED) == 2 * MIB


def test_either_free_will_do(cu: Driver, context: int) -> None:
    pointer = cu.out("cuMemAllocAsync", MIB, 0)
    cu.free(pointer)
    plain = cu.alloc(16)
    cu.ok("cuMemFreeAsync", plain, 0)
    cu.ok("cuStreamSynchronize", 0)
    assert cu.status("cuMemFreeAsync", plain, 0) == INVALID_VALUE
    cu.ok("cuMemFreeAsync", 0, 0)


def test_memory_on_its_way_back_counts_as_free(cu: Driver, context: int) -> None:
    stream = cu.stream()
    for _ in range(5):
        pointer = cu.out("cuMemAllocAsync", 900 * MIB, stream)
        cu.ok("cuMemFreeAsync", pointer, stream)
    cu.ok("cuStreamSynchronize", stream)


def test_own_pool(cu: Driver, context: int) -> None:
    own = pool(cu, 4 * MIB)
    pointer = cu.out("cuMemAllocFromPoolAsync", 3 * MIB, own, 0)
    assert cu.status("cuMemAllocFromPoolAsync", OUT, 2 * MIB, own, 0) == OUT_OF_MEMORY
    value = ctypes.c_uint64(123 * MIB)
    cu.ok("cuMemPoolSetAttribute", own, 4, ctypes.byref(value))
    assert attribute(cu, own, 4) == 123 * MIB
    assert cu.status("cuMemPoolSetAttribute", own, 7, ctypes.byref(value)) == INVALID_VALUE
    cu.ok("cuMemPoolTrimTo", own, 0)
    cu.ok("cuDeviceSetMemPool", 0, own)
    assert cu.out("cuDeviceGetMemPool", 0) == own
    cu.ok("cuMemPoolSetAccess", own, ctypes.byref(Access(Location(1, 1), 3)), 1)
    flags = ctypes.c_int()
    cu.ok("cuMemPoolGetAccess", ctypes.byref(flags), own, ctypes.byref(Location(1, 1)))
    assert flags.value == 3
    cu.ok("cuMemPoolDestroy", own)  # what is allocated stays
    assert cu.out("cuDeviceGetMemPool", 0) == cu.out("cuDeviceGetDefaultMemPool", 0)
    cu.write(pointer, b"still here")
    cu.ok("cuMemFreeAsync", pointer, 0)
    cu.ok("cuCtxSynchronize")
    assert cu.status("cuMemAllocFromPoolAsync", OUT, 16, own, 0) == INVALID_VALUE


THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8


def test_a_pool_keeps_what_was_freed_until_the_host_waits(cu: Driver, context: int) -> None:
    own, stream = pool(cu), cu.stream()
    before = cu.used()
    pointer = cu.out("cuMemAllocFromPoolAsync", 4 * MIB, own, stream)
    event = cu.out("cuEventCreate", 0)
    cu.ok("cuMemFreeAsync", pointer, stream)
    cu.ok("cuEventRecord", event, stream)
    while cu.status("cuEventQuery", event):  # not a wait
        pass
    assert attribute(cu, own, USED) == 0
    assert attribute(cu, own, RESERVED) == 4 * MIB
    assert cu.used() == before + 4 * MIB
    assert cu.status("cuMemsetD8_v2", pointer, 0, 1) == INVALID_VALUE
    again = cu.out("cuMemAllocFromPoolAsync", 4 * MIB - 1, own, stream)
    assert again == pointer
    cu.ok("cuMemsetD8Async", again, 1, 4 * MIB - 1, stream)
    cu.ok("cuMemFreeAsync", again, stream)
    cu.ok("cuStreamSynchronize", stream)
    assert attribute(cu, own, RESERVED) == 0
    assert cu.used() == before
    assert attribute(cu, own, RESERVED_HIGH) == attribute(cu, own, USED_HIGH) == 4 * MIB
    zero = ctypes.c_uint64(0)
    cu.ok("cuMemPoolSetAttribute", own, RESERVED_HIGH, ctypes.byref(zero))
    assert attribute(cu, own, RESERVED_HIGH) == 0
    cu.ok("cuMemPoolDestroy", own)


def test_release_threshold_and_trim(cu: Driver, context: int) -> None:
    own, stream = pool(cu), cu.stream()
    before = cu.used()
    cu.ok("cuMemPoolSetAttribute", own, THRESHOLD, ctypes.byref(ctypes.c_uint64(5 * MIB)))
    pointers = [cu.out("cuMemAllocFromPoolAsync", MIB * size, own, stream) for size in (1, 2, 4)]
    for pointer in pointers:
        cu.ok("cuMemFreeAsync", pointer, stream)
    cu.ok("cuStreamSynchronize", stream)
    assert attribute(cu, own, RESERVED) == 6 * MIB, "five, in granules of two"
    cu.ok("cuMemPoolTrimTo", own, 2 * MIB)
    assert attribute(cu, own, RESERVED) >= 2 * MIB
    cu.ok("cuMemPoolTrimTo", own, 64 * MIB)
    kept = attribute(cu, own, RESERVED)
    assert 2 * MIB <= kept <= 5 * MIB
    cu.ok("cuMemPoolDestroy", own)  # gives the rest back
    assert cu.used() == before


def test_plain_allocations_do_not_get_what_a_pool_keeps(cu: Driver, context: int) -> None:
    own, stream = pool(cu), cu.stream()
    cu.ok("cuMemPoolSetAttribute", own, THRESHOLD, ctypes.byref(ctypes.c_uint64(2**64 - 1)))
    pointer = cu.out("cuMemAllocFromPoolAsync", 700 * MIB, own, stream)
    cu.ok("cuMemFreeAsync", pointer, stream)
    cu.ok("cuStreamSynchronize", stream)
    assert cu.status("cuMemAlloc_v2", OUT, 600 * MIB) == OUT_OF_MEMORY
    other = cu.out("cuMemAllocAsync", 600 * MIB, stream)  # but another pool does
    cu.ok("cuMemFreeAsync", other, stream)
    cu.ok("cuStreamSynchronize", stream)
    cu.free(cu.alloc(600 * MIB))
    cu.ok("cuMemPoolDestroy", own)


def test_the_largest_size_counts_what_is_kept(cu: Driver, context: int) -> None:
    own, stream = pool(cu, 8 * MIB), cu.stream()
    cu.ok("cuMemPoolSetAttribute", own, THRESHOLD, ctypes.byref(ctypes.c_uint64(2**64 - 1)))
    cu.ok("cuMemFreeAsync", cu.out("cuMemAllocFromPoolAsync", 6 * MIB, own, stream), stream)
    cu.ok("cuStreamSynchronize", stream)
    pointer = cu.out("cuMemAllocFromPoolAsync", 4 * MIB, own, stream)
    assert attribute(cu, own, RESERVED) == 4 * MIB
    assert attribute(cu, own, 13) == 8 * MIB
    cu.ok("cuMemFreeAsync", pointer, stream)
    cu.ok("cuStreamSynchronize", stream)
    cu.ok("cuMemPoolDestroy", own)


def test_attributes_of_a_new_pool(cu: Driver, context: int) -> None:
    own = pool(cu)
    values = {1: 1, 2: 1, 3: 1, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 1, 10: 0, 11: 0, 12: 1, 13: 0, 14: 0}
    for number, expected in values.items():
        assert attribute(cu, own, number) == expected, number
    domain = ctypes.c_int()
    cu.ok("cuMemPoolGetAttribute", own, 15, ctypes.byref(domain))
    assert domain.value == -1
    one = ctypes.c_uint64(1)
    for number in (5, 6, 7, 8, 9, 13, 0, 99):
        assert cu.status("cuMemPoolSetAttribute", own, number, ctypes.byref(one)) == INVALID_VALUE
    for number in (0, 16, 99):
        assert cu.status("cuMemPoolGetAttribute", own, number, ctypes.byref(one)) == INVALID_VALUE
    assert cu.status("cuMemPoolGetAttribute", own, 4, None) == INVALID_VALUE
    assert cu.status("cuMemPoolSetAttribute", own, 4, None) == INVALID_VALUE
    cu.ok("cuMemPoolDestroy", own)
    assert cu.status("cuMemPoolGetAttribute", own, 4, ctypes.byref(one)) == INVALID_VALUE
    assert cu.status("cuMemPoolTrimTo", own, 0) == INVALID_VALUE
    assert cu.status("cuMemPoolDestroy", own) == INVALID_VALUE


def test_access_to_a_pool(cu: Driver, context: int) -> None:
    own = pool(cu)

    def access(device: int) -> int:
        flags = ctypes.c_int()
        cu.ok("cuMemPoolGetAccess", ctypes.byref(flags), own, ctypes.byref(Location(1, device)))
        return flags.value

    def allow(kind: int, device: int, flags: int) -> int:
        return cu.status("cuMemPoolSetAccess", own, ctypes.byref(Access(Location(kind, device), flags)), 1)

    assert (access(0), access(1)) == (3, 0)
    assert allow(1, 1, 3) == 0
    assert access(1) == 3
    assert allow(1, 1, 0) == 0
    assert access(1) == 0
    assert allow(1, 0, 3) == 0
    assert allow(1, 0, 0) == INVALID_DEVICE  # its own device cannot be kept out
    assert allow(1, 9, 3) == INVALID_DEVICE
    assert allow(1, 1, 5) == INVALID_VALUE
    assert cu.status("cuMemPoolGetAccess", OUT, own, ctypes.byref(Location(1, 9))) == INVALID_VALUE
    assert cu.status("cuMemPoolGetAccess", OUT, own, ctypes.byref(Location(0, 0))) == INVALID_VALUE
    cu.ok("cuMemPoolDestroy", own)


def test_pools_of_devices_that_are_not_there(cu: Driver, context: int) -> None:
    own = pool(cu)
    assert cu.status("cuDeviceGetDefaultMemPool", OUT, 9) == INVALID_DEVICE
    assert cu.status("cuDeviceGetMemPool", OUT, 9) == INVALID_VALUE
    assert cu.status("cuDeviceSetMemPool", 9, own) == INVALID_VALUE
    assert cu.status("cuDeviceSetMemPool", 1, own) == INVALID_VALUE  # another's
    cu.ok("cuMemPoolDestroy", own)


def test_memory_of_a_pool_is_no_contexts(cu: Driver, context: int) -> None:
    pointer = cu.out("cuMemAllocAsync", MIB, 0)
    owner = ctypes.c_uint64(1)
    cu.ok("cuPointerGetAttribute", ctypes.byref(owner), 1, pointer)
    assert owner.value == 0
    cu.ok("cuMemFreeAsync", pointer, 0)


def test_bad_allocations(cu: Driver, context: int) -> None:
    assert cu.status("cuMemAllocAsync", None, MIB, 0) == INVALID_VALUE
    assert cu.status("cuMemAllocAsync", OUT, MIB, -1) == INVALID_HANDLE
    assert cu.status("cuMemAllocAsync", OUT, -1, 0) == OUT_OF_MEMORY
    assert cu.status("cuMemAllocFromPoolAsync", OUT, MIB, 0, 0) == INVALID_VALUE
    pointer = cu.out("cuMemAllocAsync", MIB, 0)
    assert cu.status("cuMemFreeAsync", pointer, -1) == INVALID_HANDLE
    assert cu.status("cuMemFreeAsync", pointer + 1, 0) == INVALID_VALUE
    cu.ok("cuMemFreeAsync", pointer, 0)
    assert cu.status("cuMemFreeAsync", pointer, 0) == INVALID_VALUE


def test_bad_pools(cu: Driver, context: int) -> None:
    fabric = PoolProperties(type=1, handles=8, location=Location(1, 0))
    assert cu.status("cuMemPoolCreate", OUT, ctypes.byref(fabric)) == NOT_SUPPORTED
    assert cu.status("cuMemPoolCreate", OUT, ctypes.byref(PoolProperties())) == INVALID_VALUE
    assert cu.status("cuMemPoolCreate", OUT, None) == INVALID_VALUE
    host, managed = PoolProperties(type=1, location=Location(2, 0)), PoolProperties(type=2)
    assert cu.status("cuMemPoolCreate", OUT, ctypes.byref(host)) == NOT_SUPPORTED
    assert cu.status("cuMemPoolCreate", OUT, ctypes.byref(managed)) == NOT_SUPPORTED
    nowhere = ctypes.byref(Location())
    for call in ("cuMemGetDefaultMemPool", "cuMemGetMemPool"):
        assert cu.status(call, OUT, nowhere, 2) == NOT_SUPPORTED
        assert cu.status(call, OUT, nowhere, 1) == INVALID_VALUE
    elsewhere = PoolProperties(type=1, location=Location(1, 9))
    assert cu.status("cuMemPoolCreate", OUT, ctypes.byref(elsewhere)) == INVALID_VALUE
    good = PoolProperties(type=1, location=Location(1, 0))
    assert cu.status("cuMemPoolCreate", None, ctypes.byref(good)) == INVALID_VALUE
    assert cu.out("cuMemAllocAsync", 0, 0) == 0  # other than with cuMemAlloc


@needs_holes
@pytest.mark.parametrize("work", ["cuMemsetD8Async", "cuMemcpyDtoDAsync_v2"])
def test_work_on_what_another_stream_has_freed_is_an_error(cu: Driver, context: int, work: str) -> None:
    """Once the process died of it."""
    pointer = cu.out("cuMemAllocAsync", MIB, other := cu.stream())
    cu.ok("cuStreamSynchronize", other)
    gate = Gate(cu, stream := cu.stream())
    second = cu.alloc(MIB) if "cpy" in work else 5
    cu.ok(work, pointer, second, MIB, stream)
    cu.ok("cuMemFreeAsync", pointer, other)
    cu.ok("cuStreamSynchronize", other)
    gate.open()
    assert cu.status("cuStreamSynchronize", stream) == ILLEGAL_ADDRESS
    cu.ok("cuDevicePrimaryCtxReset_v2", 0)
