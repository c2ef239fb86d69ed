"""Virtual memory management: reservations, physical memory, mappings, access rights."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .driver import INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Driver

MIB2 = 2 << 20
OUT = ctypes.byref(ctypes.c_uint64())


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def properties(device: int = 0) -> Properties:
    return Properties(type=1, location=Location(1, device))


def create(cu: Driver, size: int, device: int = 0) -> int:
    return int(cu.out("cuMemCreate", size, ctypes.byref(properties(device)), 0))


def allow(cu: Driver, pointer: int, size: int, flags: int = 3, device: int = 0) -> None:
    cu.ok("cuMemSetAccess", pointer, size, ctypes.byref(Access(Location(1, device), flags)), 1)


@contextmanager
def reserved(cu: Driver, size: int, alignment: int = 0, wanted: int = 0) -> Iterator[int]:
    pointer = int(cu.out("cuMemAddressReserve", size, alignment, wanted, 0))
    yield pointer
    cu.ok("cuMemAddressFree", pointer, size)


def test_granularity(cu: Driver) -> None:
    assert cu.out("cuMemGetAllocationGranularity", ctypes.byref(properties()), 0) == MIB2
    # NVIDIA's driver does not look whether the device is there
    assert cu.out("cuMemGetAllocationGranularity", ctypes.byref(properties(9)), 0) == MIB2
    assert cu.status("cuMemGetAllocationGranularity", OUT, ctypes.byref(Properties()), 0) == INVALID_VALUE
    assert cu.status("cuMemGetAllocationGranularity", OUT, ctypes.byref(properties()), 2) == INVALID_VALUE
    assert cu.status("cuMemGetAllocationGranularity", None, ctypes.byref(properties()), 0) == INVALID_VALUE


def test_reservation_honours_hint_and_alignment(cu: Driver) -> None:
    with reserved(cu, 8 * MIB2, 1 << 30) as pointer:  # as much as below, beside what others left
        assert pointer % (1 << 30) == 0
    with reserved(cu, 8 * MIB2, 0, pointer) as again:
        assert again == pointer
        with reserved(cu, MIB2, 0, pointer) as elsewhere:  # taken: a hint is no order
            assert not pointer <= elsewhere < pointer + 8 * MIB2


def test_a_large_window_costs_nothing(cu: Driver) -> None:
    with reserved(cu, 1 << 38):
        pass


def test_map_use_unmap(cu: Driver, context: int) -> None:
    before = cu.used()
    with reserved(cu, 2 * MIB2) as pointer:
        handle = create(cu, 2 * MIB2)
        assert cu.used() == before + 2 * MIB2
        cu.ok("cuMemMap", pointer, 2 * MIB2, 0, handle, 0)
        assert cu.status("cuMemcpyHtoD_v2", pointer, b"x", 1) == INVALID_VALUE  # no access yet
        allow(cu, pointer, 2 * MIB2)
        cu.write(pointer + MIB2 - 2, b"abcd")
        assert cu.read(pointer + MIB2 - 2, 4) == b"abcd"
        cu.ok("cuMemRelease", handle)
        assert cu.used() == before + 2 * MIB2  # the mapping keeps it
        cu.ok("cuMemUnmap", pointer, 2 * MIB2)
        assert cu.used() == before
        assert cu.status("cuMemcpyDtoH_v2", ctypes.create_string_buffer(1), pointer, 1) == INVALID_VALUE
    assert cu.status("cuMemRelease", handle) == INVALID_VALUE


def test_same_memory_at_two_addresses(cu: Driver, context: int) -> None:
    handle = create(cu, MIB2)
    with reserved(cu, 2 * MIB2) as pointer:
        for address in (pointer, pointer + MIB2):
            cu.ok("cuMemMap", address, MIB2, 0, handle, 0)
        allow(cu, pointer, 2 * MIB2)
        cu.write(pointer + 100, b"twice")
        assert cu.read(pointer + MIB2 + 100, 5) == b"twice"
        cu.ok("cuMemUnmap", pointer, 2 * MIB2)
        cu.ok("cuMemMap", pointer, MIB2, 0, handle, 0)  # contents survive a new mapping
        allow(cu, pointer, MIB2)
        assert cu.read(pointer + 100, 5) == b"twice"
        cu.ok("cuMemUnmap", pointer, MIB2)
    cu.ok("cuMemRelease", handle)


def test_new_physical_memory_is_zero(cu: Driver, context: int) -> None:
    with reserved(cu, MIB2) as pointer:
        for _ in range(3):
            handle = create(cu, MIB2)
            cu.ok("cuMemMap", pointer, MIB2, 0, handle, 0)
            allow(cu, pointer, MIB2)
            assert cu.read(pointer, MIB2) == bytes(MIB2)
            cu.ok("cuMemsetD8_v2", pointer, 255, MIB2)
            cu.ok("cuMemUnmap", pointer, MIB2)
            cu.ok("cuMemRelease", handle)


def test_copies_cross_mappings_but_not_gaps(cu: Driver, context: int) -> None:
    handles = [create(cu, MIB2) for _ in range(2)]
    with reserved(cu, 3 * MIB2) as pointer:
        for i, handle in enumerate(handles):
            cu.ok("cuMemMap", pointer + i * MIB2, MIB2, 0, handle, 0)
        allow(cu, pointer, 2 * MIB2)
        cu.ok("cuMemsetD8_v2", pointer + 1, 3, 2 * MIB2 - 1)
        assert cu.status("cuMemsetD8_v2", pointer + 1, 3, 2 * MIB2) == INVALID_VALUE
        assert cu.status("cuMemUnmap", pointer, MIB2 // 2) == INVALID_VALUE
        assert cu.status("cuMemUnmap", pointer + MIB2, 2 * MIB2) == INVALID_VALUE
        assert cu.status("cuMemAddressFree", pointer, 3 * MIB2) == INVALID_VALUE  # still mapped
        cu.ok("cuMemUnmap", pointer, 2 * MIB2)
    for handle in handles:
        cu.ok("cuMemRelease", handle)


def test_rights(cu: Driver, context: int) -> None:
    handle = create(cu, MIB2)
    with reserved(cu, MIB2) as pointer:
        cu.ok("cuMemMap", pointer, MIB2, 0, handle, 0)
        location = ctypes.byref(Location(1, 0))
        assert cu.out("cuMemGetAccess", location, pointer) == 0
        allow(cu, pointer, MIB2, 1)
        assert cu.out("cuMemGetAccess", location, pointer) == 1
        assert cu.read(pointer, 4) == bytes(4)
        assert cu.status("cuMemsetD8_v2", pointer, 1, 4) == INVALID_VALUE
        allow(cu, pointer, MIB2, 3, device=1)
        assert cu.out("cuMemGetAccess", location, pointer) == 1
        assert cu.out("cuMemGetAccess", ctypes.byref(Location(1, 1)), pointer) == 3
        bad = ctypes.byref(Access(Location(1, 0), 2))
        assert cu.status("cuMemSetAccess", pointer, MIB2, bad, 1) == INVALID_VALUE
        cu.ok("cuMemUnmap", pointer, MIB2)
    cu.ok("cuMemRelease", handle)


def test_retained_handle_and_properties(cu: Driver, context: int) -> None:
    handle = create(cu, MIB2, 1)
    with reserved(cu, MIB2) as pointer:
        cu.ok("cuMemMap", pointer, MIB2, 0, handle, 0)
        cu.ok("cuMemRelease", handle)
        assert cu.status("cuMemMap", pointer, MIB2, 0, handle, 0) == INVALID_VALUE
        retained = cu.out("cuMemRetainAllocationHandle", pointer + 5)
        found = Properties()
        cu.ok("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(found), retained)
        assert (found.type, found.location.id) == (1, 1)
        cu.ok("cuMemUnmap", pointer, MIB2)
        cu.ok("cuMemMap", pointer, MIB2, 0, retained, 0)
        cu.ok("cuMemUnmap", pointer, MIB2)
        cu.ok("cuMemRelease", retained)
        assert cu.status("cuMemRetainAllocationHandle", OUT, pointer) == INVALID_VALUE


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        ("cuMemAddressReserve", (MIB2 + 1, 0, 0, 0), INVALID_VALUE),
        ("cuMemAddressReserve", (0, 0, 0, 0), INVALID_VALUE),
        ("cuMemAddressReserve", (MIB2, 3, 0, 0), INVALID_VALUE),
        ("cuMemAddressReserve", (MIB2, 0, 0, 1), INVALID_VALUE),
        ("cuMemCreate", (MIB2 + 4096, ctypes.byref(properties()), 0), INVALID_VALUE),
        ("cuMemCreate", (0, ctypes.byref(properties()), 0), INVALID_VALUE),
        ("cuMemCreate", (MIB2, None, 0), INVALID_VALUE),
        ("cuMemCreate", (MIB2, ctypes.byref(properties(9)), 0), INVALID_VALUE),
        ("cuMemCreate", (MIB2, ctypes.byref(properties()), 1), INVALID_VALUE),
    ],
)
def test_bad_arguments(cu: Driver, function: str, arguments: tuple[object, ...], error: int) -> None:
    """As NVIDIA's driver answers them."""
    assert cu.status(function, OUT, *arguments) == error


def test_a_reservation_of_host_pages(cu: Driver) -> None:
    with reserved(cu, MIB2 + 4096) as pointer:
        assert cu.status("cuMemAddressFree", pointer, MIB2) == INVALID_VALUE
        assert cu.status("cuMemAddressFree", pointer + 4096, MIB2) == INVALID_VALUE


def test_memory_that_is_mapped_is_no_contexts(cu: Driver, context: int) -> None:
    handle = create(cu, MIB2)
    with reserved(cu, MIB2) as pointer:
        cu.ok("cuMemMap", pointer, MIB2, 0, handle, 0)
        owner = ctypes.c_uint64(1)
        cu.ok("cuPointerGetAttribute", ctypes.byref(owner), 1, pointer)
        assert owner.value == 0
        cu.ok("cuMemUnmap", pointer, MIB2)
    cu.ok("cuMemRelease", handle)


def test_access_errors(cu: Driver, context: int) -> None:
    handle = create(cu, 2 * MIB2)
    with reserved(cu, 4 * MIB2) as pointer:
        access = Access(Location(1, 0), 3)

        def set_access(at: int, size: int, one: Access | None, count: int = 1) -> int:
            return cu.status("cuMemSetAccess", at, size, ctypes.byref(one) if one else None, count)

        assert set_access(pointer, 2 * MIB2, access) == INVALID_VALUE  # only reserved
        cu.ok("cuMemMap", pointer, 2 * MIB2, 0, handle, 0)
        for at, size in (
            (pointer, MIB2),  # not the whole mapping
            (pointer + MIB2, MIB2),
            (pointer, 3 * MIB2),  # more than it
            (pointer, 0),
            (0, 2 * MIB2),
        ):
            assert set_access(at, size, access) == INVALID_VALUE
        assert set_access(pointer, 2 * MIB2, None) == INVALID_VALUE
        assert set_access(pointer, 2 * MIB2, access, 0) == INVALID_VALUE
        for wrong in (Access(Location(1, 0), 2), Access(Location(0, 0), 3), Access(Location(1, 9), 3)):
            assert set_access(pointer, 2 * MIB2, wrong) == INVALID_VALUE
        assert cu.status("cuMemGetAccess", OUT, ctypes.byref(Location(1, 9)), pointer) == INVALID_DEVICE
        assert (
            cu.status("cuMemGetAccess", OUT, ctypes.byref(Location(1, 0)), pointer + 3 * MIB2)
            == INVALID_VALUE
        )
        assert cu.status("cuMemUnmap", pointer, 0) == INVALID_VALUE
        cu.ok("cuMemUnmap", pointer, 2 * MIB2)
    cu.ok("cuMemRelease", handle)


def test_mapping_errors_and_limit(cu: Driver, context: int) -> None:
    assert cu.status("cuMemCreate", OUT, 2 << 30, ctypes.byref(properties()), 0) == OUT_OF_MEMORY
    handle = create(cu, MIB2)
    with reserved(cu, 2 * MIB2) as pointer:
        for arguments in (
            (pointer, 2 * MIB2, 0, handle, 0),  # larger than the memory
            (pointer + 2 * MIB2, MIB2, 0, handle, 0),  # outside
            (pointer + 4096, MIB2, 0, handle, 0),
            (pointer, MIB2, 0, handle + 16, 0),
        ):
            assert cu.status("cuMemMap", *arguments) == INVALID_VALUE
        assert cu.status("cuMemMap", pointer, MIB2, MIB2, handle, 0) == NOT_SUPPORTED
        assert cu.status("cuMemMap", pointer, 4096, 0, handle, 0) == NOT_SUPPORTED
        cu.ok("cuMemMap", pointer, MIB2, 0, handle, 0)
        assert cu.status("cuMemMap", pointer, MIB2, 0, handle, 0) == INVALID_VALUE
        cu.ok("cuMemUnmap", pointer, MIB2)
        assert cu.status("cuMemAddressFree", pointer, MIB2) == INVALID_VALUE
    cu.ok("cuMemRelease", handle)


def test_many_small_mappings_need_no_file_each(cu: Driver, context: int) -> None:
    """An API server maps one per allocation of its guest: more than a process may have open files."""
    count = 400
    with reserved(cu, count * MIB2) as pointer:
        handles = [create(cu, MIB2) for _ in range(count)]
        for i, handle in enumerate(handles):
            cu.ok("cuMemMap", pointer + i * MIB2, MIB2, 0, handle, 0)
        allow(cu, pointer, count * MIB2)
        cu.ok("cuMemsetD8_v2", pointer, 0, count * MIB2)
        cu.ok("cuMemUnmap", pointer, count * MIB2)
        for handle in handles:
            cu.ok("cuMemRelease", handle)


def resident() -> int:
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmRSS"].split()[0]) << 10


def test_zeroing_gives_pages_back(cu: Driver, context: int) -> None:
    size = 256 << 20
    plain = cu.alloc(size)
    handle = create(cu, size)
    with reserved(cu, size) as mapped:
        cu.ok("cuMemMap", mapped, size, 0, handle, 0)
        allow(cu, mapped, size)
        for pointer in (plain, mapped):
            cu.ok("cuMemsetD8_v2", pointer, 1, 64 << 20)
            cu.ok("cuCtxSynchronize")
            before = resident()
            cu.ok("cuMemsetD32_v2", pointer + 4, 0, size // 4 - 2)
            cu.ok("cuCtxSynchronize")
            assert before - resident() > 48 << 20
            assert cu.read(pointer, 8) == b"\1\1\1\1\0\0\0\0"
            assert cu.read(pointer + (64 << 20) - 4, 8) == bytes(8)
        cu.ok("cuMemUnmap", mapped, size)
    cu.ok("cuMemRelease", handle)
    cu.free(plain)


MADV_COLLAPSE = 25


def makes_huge_pages(pointer: int, size: int) -> bool:
    """Whether the system can do it for memory of this kind, now."""
    libc = ctypes.CDLL(None)
    for at in range(pointer, pointer + size, MIB2):
        ctypes.c_char.from_address(at).value = b"x"
    return bool(libc.madvise(ctypes.c_void_p(pointer), ctypes.c_size_t(size), MADV_COLLAPSE) == 0)


def in_huge_pages(pointer: int, size: int) -> int:
    """How many bytes of a range are."""
    found, inside = 0, False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            word = line.split()[0]
            if "-" in word:
                inside = pointer <= int(word.split("-")[0], 16) < pointer + size
            elif inside and word == "ShmemPmdMapped:":
                found += int(line.split()[1]) << 10
    return found


@pytest.mark.some(1)
@pytest.mark.parametrize("handle_types", [0, 1])
def test_large_writes_to_new_memory_make_huge_pages(cu: Driver, context: int, handle_types: int) -> None:
    size = 64 << 20
    wanted = properties()
    wanted.handle_types = handle_types
    handles = [cu.out("cuMemCreate", size, ctypes.byref(wanted), 0) for _ in range(3)]
    pattern = os.urandom(MIB2) * (size // MIB2)
    with reserved(cu, 3 * size) as pointer:
        for i, handle in enumerate(handles):
            cu.ok("cuMemMap", pointer + i * size, size, 0, handle, 0)
            cu.ok("cuMemRelease", handle)
        allow(cu, pointer, 3 * size)
        can = makes_huge_pages(pointer, size)
        huge = in_huge_pages(pointer, 3 * size)
        copied, filled = pointer + size, pointer + 2 * size
        cu.write(copied + 5 * MIB2 + 7, b"there already")
        cu.ok("cuMemcpyHtoD_v2", copied + 100, pattern, size - 4196)
        cu.ok("cuMemsetD32_v2", filled + 4, 0x01020304, size // 4 - 2)
        cu.ok("cuCtxSynchronize")
        huge = in_huge_pages(pointer, 3 * size) - huge
        assert cu.read(copied, 100) + cu.read(copied + size - 4096, 4096) == bytes(4196)
        assert cu.read(copied + 100, size - 4196) == pattern[: size - 4196]
        assert cu.read(filled, 8) == b"\0\0\0\0\4\3\2\1"
        assert cu.read(filled + size - 8, 8) == b"\4\3\2\1\0\0\0\0"
        cu.ok("cuMemUnmap", pointer, 3 * size)
    if not can:
        pytest.skip("the system makes no huge pages of shared memory")
    assert huge > size  # nearly all, but the system may fail to make one or the other
