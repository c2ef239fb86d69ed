"""Stream-ordered allocation."""

from __future__ import annotations

import ctypes

from .driver import INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Driver, Gate
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
    assert attribute(cu, default, 7) == before + 5 * MIB
    gate.open()
    cu.ok("cuStreamSynchronize", stream)
    assert attribute(cu, default, 7) == before
    assert attribute(cu, default, 8) >= before + 5 * MIB
    assert cu.status("cuMemPoolDestroy", default) == INVALID_VALUE


def test_either_free_will_do(cu: Driver, context: int) -> None:
    pointer = cu.out("cuMemAllocAsync", MIB, 0)
    cu.free(pointer)
    plain = cu.alloc(16)
    assert cu.status("cuMemFreeAsync", plain, 0) == INVALID_VALUE
    cu.free(plain)
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


def test_bad_pools(cu: Driver, context: int) -> None:
    shareable = PoolProperties(type=1, handles=1, location=Location(1, 0))
    assert cu.status("cuMemPoolCreate", OUT, ctypes.byref(shareable)) == NOT_SUPPORTED
    assert cu.status("cuMemPoolCreate", OUT, ctypes.byref(PoolProperties())) == INVALID_VALUE
    assert cu.status("cuMemPoolCreate", OUT, None) == INVALID_VALUE
    assert cu.status("cuMemAllocAsync", OUT, 0, 0) == INVALID_VALUE
