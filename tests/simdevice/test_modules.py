"""Modules, libraries, functions and their launches."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from .driver import (
    FILE_NOT_FOUND,
    ILLEGAL_ADDRESS,
    INVALID_HANDLE,
    INVALID_IMAGE,
    INVALID_PTX,
    INVALID_VALUE,
    NOT_FOUND,
    NOT_LOADED,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    SUCCESS,
    Driver,
)
from .kernels import MEET, PTX, Attribute, Config, function, launch, module, needs_holes, pack
from .test_vmm import MIB2

OUT = ctypes.byref(ctypes.c_uint64())
LAUNCH_FAILED = 719
MAX_THREADS_PER_BLOCK, NUM_REGS, MULTIPROCESSOR_COUNT = 0, 4, 16  # CU_FUNC_ATTRIBUTE_*, CU_DEVICE_ATTRIBUTE_*
COOPERATIVE_LAUNCH_TOO_LARGE = 720
GRIDS = 128  # resident ones of compute capability 7.0 and newer (CUDA Programming Guide)


def library(cu: Driver, image: bytes = PTX) -> int:
    return int(cu.out("cuLibraryLoadData", image, None, None, 0, None, None, 0))


def global_(cu: Driver, call: str, owner: int, name: bytes) -> tuple[int, int]:
    pointer, size = ctypes.c_uint64(), ctypes.c_uint64()
    cu.ok(call, ctypes.byref(pointer), ctypes.byref(size), owner, name)
    return pointer.value, size.value


def test_launch_computes(cu: Driver, context: int) -> None:
    scale = function(cu, module(cu), "scale")
    count = 1000
    values = np.arange(count, dtype=np.uint32)
    source, target = cu.alloc(4 * count), cu.alloc(4 * count)
    cu.write(source, values.tobytes())
    arguments = pack(target, source, ctypes.c_uint32(count), ctypes.c_uint32(7))
    assert launch(cu, scale, arguments, (4, 1, 1), (256, 1, 1)) == SUCCESS
    assert (np.frombuffer(cu.read(target, 4 * count), np.uint32) == values * 3 + 7).all()


def test_arguments_are_copied_at_the_call(cu: Driver, context: int) -> None:
    store = function(cu, module(cu), "store")
    stream, pointer = cu.stream(), cu.alloc(4)
    release = cu.alloc(4)
    cu.ok("cuStreamWaitValue32_v2", stream, release, 1, 1)
    value = ctypes.c_uint32(42)
    assert launch(cu, store, pack(pointer, value), stream=stream) == SUCCESS
    value.value = 0
    other = cu.stream()
    cu.ok("cuStreamWriteValue32_v2", other, release, 1, 0)
    cu.ok("cuStreamSynchronize", stream)
    assert cu.read(pointer, 4) == b"\x2a\0\0\0"


def test_extra(cu: Driver, context: int) -> None:
    store, pointer = function(cu, module(cu), "store"), cu.alloc(4)
    buffer = ctypes.create_string_buffer(pointer.to_bytes(8, "little") + (77).to_bytes(4, "little"), 12)
    size = ctypes.c_size_t(12)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    cu.ok("cuLaunchKernel", store, *(1,) * 6, 0, 0, None, extra)
    assert cu.read(pointer, 4) == b"\x4d\0\0\0"
    size.value = 8  # as NCCL gives the beginning of its kernels' parameters
    cu.ok("cuLaunchKernel", store, *(1,) * 6, 0, 0, None, extra)
    assert cu.read(pointer, 4) == bytes(4)
    size.value = 0
    assert cu.status("cuLaunchKernel", store, *(1,) * 6, 0, 0, None, extra) == INVALID_VALUE
    assert cu.status("cuLaunchKernel", store, *(1,) * 6, 0, 0, None, None) == INVALID_VALUE
    both = pack(pointer, ctypes.c_uint32(1))
    assert cu.status("cuLaunchKernel", store, *(1,) * 6, 0, 0, both, extra) == INVALID_VALUE


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        ((0, 1, 1), (1, 1, 1), 0),
        ((1, 1, 0), (1, 1, 1), 0),
        ((1, 65536, 1), (1, 1, 1), 0),
        ((1, 1, 65536), (1, 1, 1), 0),
        ((1 << 31, 1, 1), (1, 1, 1), 0),
        ((1, 1, 1), (0, 1, 1), 0),
        ((1, 1, 1), (1025, 1, 1), 0),
        ((1, 1, 1), (1, 1, 65), 0),
        ((1, 1, 1), (64, 64, 1), 0),
        ((1, 1, 1), (1 << 16, 1 << 16, 1), 0),
        ((1, 1, 1), (1, 1, 1), 48 * 1024 + 1),
    ],
)
def test_bad_shapes(
    cu: Driver, context: int, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int
) -> None:
    count = function(cu, module(cu), "count")
    assert launch(cu, count, None, grid, block, shared) == INVALID_VALUE
    cu.ok("cuCtxSynchronize")


def test_as_many_kernels_as_a_device_has_at_work_wait_for_each_other(cu: Driver, context: int) -> None:
    streams, pointer = [cu.stream() for _ in range(GRIDS)], cu.alloc(4)
    meet, arguments = function(cu, module(cu, MEET), "meet"), pack(pointer, GRIDS)
    cu.ok("cuMemsetD32_v2", pointer, 0, 1)
    for stream in streams:
        assert launch(cu, meet, arguments, stream=stream) == SUCCESS
    cu.ok("cuCtxSynchronize")


def test_bounds_and_shared_memory(cu: Driver, context: int) -> None:
    bounded, pointer = function(cu, module(cu), "bounded"), cu.alloc(4)
    arguments = pack(pointer)
    assert launch(cu, bounded, arguments, block=(64, 1, 1)) == SUCCESS
    assert launch(cu, bounded, arguments, block=(65, 1, 1)) == INVALID_VALUE
    static = 1024
    assert launch(cu, bounded, arguments, shared=49152 - static) == SUCCESS
    assert launch(cu, bounded, arguments, shared=49152 - static + 1) == INVALID_VALUE
    cu.ok("cuFuncSetAttribute", bounded, 8, 100_000)
    assert launch(cu, bounded, arguments, shared=100_000) == SUCCESS
    assert cu.status("cuFuncSetAttribute", bounded, 8, 166912 - static + 1) == INVALID_VALUE
    assert cu.status("cuFuncSetAttribute", bounded, 8, -1) == INVALID_VALUE
    assert cu.status("cuFuncSetAttribute", bounded, 4, 1) == INVALID_VALUE
    values = {0: 64, 1: static, 5: 80, 6: 80, 8: 100_000}
    for number, expected in values.items():
        value = ctypes.c_int()
        cu.ok("cuFuncGetAttribute", ctypes.byref(value), number, bounded)
        assert value.value == expected, number
    assert cu.status("cuFuncGetAttribute", OUT, 99, bounded) == INVALID_VALUE
    cu.ok("cuCtxSynchronize")


def test_handles_are_checked(cu: Driver, context: int) -> None:
    loaded = module(cu)
    count = function(cu, loaded, "count")
    for bad in (0, 1, 0xDEADBEEF, loaded, count + 16, 2**64 - 1):
        assert launch(cu, bad, None) == INVALID_HANDLE
    assert launch(cu, count, None, stream=0xABCD0) == INVALID_HANDLE
    with cu.context():
        stream = cu.stream()
        assert launch(cu, count, None, stream=stream) == INVALID_HANDLE  # another context's
    cu.ok("cuModuleUnload", loaded)
    assert launch(cu, count, None) == INVALID_HANDLE
    assert cu.status("cuModuleUnload", loaded) == INVALID_HANDLE
    assert cu.status("cuModuleGetFunction", OUT, loaded, b"count") == INVALID_HANDLE


def test_unloading_waits_for_no_launch_and_breaks_none(cu: Driver, context: int) -> None:
    loaded, pointer, release = module(cu), cu.alloc(4), cu.alloc(4)
    stream, other = cu.stream(), cu.stream()
    cu.ok("cuStreamWaitValue32_v2", stream, release, 1, 1)
    store = function(cu, loaded, "store")
    assert launch(cu, store, pack(pointer, ctypes.c_uint32(8)), stream=stream) == SUCCESS
    cu.ok("cuModuleUnload", loaded)
    cu.ok("cuStreamWriteValue32_v2", other, release, 1, 0)
    cu.ok("cuStreamSynchronize", stream)
    assert cu.read(pointer, 1) == b"\x08"


def test_globals_have_their_values_and_belong_to_the_module(cu: Driver, context: int) -> None:
    first, second = module(cu), module(cu)
    pointer, size = global_(cu, "cuModuleGetGlobal_v2", first, b"counter")
    assert (size, cu.read(pointer, 8)) == (8, (5).to_bytes(8, "little"))
    address, _ = global_(cu, "cuModuleGetGlobal_v2", first, b"counter_address")
    assert int.from_bytes(cu.read(address, 8), "little") == pointer
    assert launch(cu, function(cu, first, "count"), None, (3, 1, 1), (50, 1, 1)) == SUCCESS
    assert int.from_bytes(cu.read(pointer, 8), "little") == 155
    untouched, _ = global_(cu, "cuModuleGetGlobal_v2", second, b"counter")
    assert int.from_bytes(cu.read(untouched, 8), "little") == 5
    assert cu.status("cuModuleGetGlobal_v2", OUT, None, first, b"nothing") == NOT_FOUND
    before = cu.used()
    cu.ok("cuModuleUnload", first)
    assert cu.used() < before
    assert cu.status("cuMemcpyHtoD_v2", pointer, b"x", 1) == INVALID_VALUE


def test_enumeration_and_parameters(cu: Driver, context: int) -> None:
    loaded = module(cu)
    count = cu.out("cuModuleGetFunctionCount", loaded, type=ctypes.c_uint)
    assert count == 5
    functions = (ctypes.c_uint64 * count)()
    cu.ok("cuModuleEnumerateFunctions", functions, count, loaded)
    names = set()
    for handle in functions:
        name = ctypes.c_char_p()
        cu.ok("cuFuncGetName", ctypes.byref(name), handle)
        names.add(name.value)
        assert cu.out("cuFuncGetModule", handle) == loaded
    assert names == {b"scale", b"count", b"store", b"bounded", b"trap"}
    scale = function(cu, loaded, "scale")
    assert scale in list(functions)
    layout: list[tuple[int, int]] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while (
        cu.status("cuFuncGetParamInfo", scale, len(layout), ctypes.byref(offset), ctypes.byref(size))
        == SUCCESS
    ):
        layout.append((offset.value, size.value))
    assert layout == [(0, 8), (8, 8), (16, 4), (20, 4)]
    assert cu.status("cuModuleGetFunction", OUT, loaded, b"nothing") == NOT_FOUND
    assert cu.status("cuModuleGetFunction", OUT, loaded, None) == INVALID_VALUE


def test_library_in_two_contexts(cu: Driver, context: int) -> None:
    loaded = library(cu)
    kernel = cu.out("cuLibraryGetKernel", loaded, b"count")
    assert cu.out("cuLibraryGetKernel", loaded, b"count") == kernel
    assert cu.out("cuLibraryGetKernelCount", loaded, type=ctypes.c_uint) == 5
    assert cu.out("cuKernelGetLibrary", kernel) == loaded
    assert launch(cu, kernel, None, block=(10, 1, 1)) == SUCCESS  # a CUkernel where a CUfunction is asked for
    here, _ = global_(cu, "cuLibraryGetGlobal", loaded, b"counter")
    assert int.from_bytes(cu.read(here, 8), "little") == 15
    with cu.context(1):
        there, _ = global_(cu, "cuLibraryGetGlobal", loaded, b"counter")
        assert there != here
        assert int.from_bytes(cu.read(there, 8), "little") == 5
        of_function = cu.out("cuKernelGetFunction", kernel)
        assert launch(cu, of_function, None, block=(2, 1, 1)) == SUCCESS
        assert int.from_bytes(cu.read(there, 8), "little") == 7
    assert launch(cu, of_function, None) == INVALID_HANDLE
    whole = cu.out("cuLibraryGetModule", loaded)
    assert function(cu, whole, "count") == cu.out("cuKernelGetFunction", kernel)
    assert cu.status("cuModuleUnload", whole) == NOT_PERMITTED
    value = ctypes.c_int()
    cu.ok("cuKernelSetAttribute", 8, 60_000, kernel, 0)
    for device, expected in ((0, 60_000), (1, 49152)):
        cu.ok("cuKernelGetAttribute", ctypes.byref(value), 8, kernel, device)
        assert value.value == expected
    cu.ok("cuFuncGetAttribute", ctypes.byref(value), 8, cu.out("cuKernelGetFunction", kernel))
    assert value.value == 60_000
    assert cu.status("cuLibraryGetKernel", OUT, loaded, b"nothing") == NOT_FOUND
    cu.ok("cuLibraryUnload", loaded)
    for call in ("cuLibraryUnload",):
        assert cu.status(call, loaded) == INVALID_HANDLE
    assert launch(cu, kernel, None) == INVALID_HANDLE


def test_libraries_need_no_context(cu: Driver) -> None:
    loaded = library(cu)
    assert cu.out("cuLibraryGetKernel", loaded, b"scale")
    cu.ok("cuLibraryUnload", loaded)


def test_images_that_are_none(cu: Driver, context: int, tmp_path: Path) -> None:
    assert cu.status("cuModuleLoadData", OUT, b"\x7fELF garbage") != SUCCESS
    assert cu.status("cuModuleLoadData", OUT, b"garbage") in (INVALID_IMAGE, INVALID_PTX)
    assert cu.status("cuModuleLoadData", OUT, None) == INVALID_VALUE
    assert cu.status("cuModuleLoad", OUT, str(tmp_path / "none").encode()) == FILE_NOT_FOUND
    path = tmp_path / "module.ptx"
    path.write_bytes(PTX)
    loaded = cu.out("cuModuleLoad", str(path).encode())
    assert function(cu, loaded, "count")


def test_log_of_a_refused_image(cu: Driver, context: int) -> None:
    log = ctypes.create_string_buffer(1000)
    options = (ctypes.c_int * 3)(5, 6, 2)
    values = (ctypes.c_uint64 * 3)(ctypes.addressof(log), 1000, 0)
    image = PTX.replace(b".entry count()", b".entry count(")
    assert cu.status("cuModuleLoadDataEx", OUT, image, 3, options, values) == INVALID_PTX
    assert log.value
    assert values[1] == len(log.value)
    assert cu.status("cuModuleLoadDataEx", OUT, PTX, 1, (ctypes.c_int * 1)(99), values) == INVALID_VALUE
    cu.ok("cuModuleLoadDataEx", OUT, PTX, 3, options, values)


def test_a_kernel_that_cannot_be_compiled_fails_alone(cu: Driver, context: int) -> None:
    loaded = module(cu, PTX.replace(b"trap;", b"cp.async.wait_some;"))
    assert launch(cu, function(cu, loaded, "trap"), None) == INVALID_PTX
    assert launch(cu, function(cu, loaded, "count"), None) == SUCCESS
    cu.ok("cuCtxSynchronize")


def test_launch_attributes(cu: Driver, context: int) -> None:
    count = function(cu, module(cu), "count")

    def status(*attributes: Attribute, grid: int = 1) -> int:
        array = (Attribute * len(attributes))(*attributes)
        config = Config((grid, 1, 1), (32, 1, 1), 0, 0, ctypes.addressof(array), len(attributes))
        return cu.status("cuLaunchKernelEx", ctypes.byref(config), count, None, None)

    assert status() == SUCCESS
    assert status(Attribute(0), Attribute(6, 0, (1,)), Attribute(8, 0, (0,))) == SUCCESS
    assert status(Attribute(4, 0, (1, 1, 1))) == SUCCESS
    assert status(Attribute(4, 0, (2, 1, 1))) == NOT_SUPPORTED
    assert status(Attribute(4, 0, (0, 1, 1))) == INVALID_VALUE
    assert status(Attribute(200)) == INVALID_VALUE
    assert status(Attribute(2, 0, (1,)), grid=64) == SUCCESS
    assert status(Attribute(2, 0, (1,)), grid=100_000) == COOPERATIVE_LAUNCH_TOO_LARGE
    assert cu.status("cuLaunchKernelEx", None, count, None, None) == INVALID_VALUE
    cu.ok("cuCtxSynchronize")


@needs_holes
def test_a_kernel_reaches_memory_up_to_the_next_large_page_and_no_further(cu: Driver) -> None:
    """As on a GPU, where programs that overrun a small allocation run."""
    with cu.context(1):
        end = cu.alloc(16) // MIB2 * MIB2 + MIB2
        store = function(cu, module(cu), "store")
        for at, status in ((end - 4, SUCCESS), (end, ILLEGAL_ADDRESS)):
            assert launch(cu, store, pack(at, ctypes.c_uint32(1))) == SUCCESS
            assert cu.status("cuCtxSynchronize") == status


@pytest.mark.parametrize(
    ("name", "error"),
    [pytest.param("store", ILLEGAL_ADDRESS, marks=needs_holes), ("trap", LAUNCH_FAILED)],
)
def test_a_faulting_kernel_ends_all_contexts_of_its_device(
    cu: Driver, context: int, name: str, error: int
) -> None:
    outer, inner = cu.out("cuCtxCreate_v2", 0, 1), cu.out("cuCtxCreate_v2", 0, 1)
    loaded = module(cu)
    stream, event = cu.stream(), cu.out("cuEventCreate", 0)
    freed = cu.alloc(1 << 20)
    cu.free(freed)
    cu.ok("cuEventRecord", event, stream)
    arguments = pack(freed, ctypes.c_uint32(1)) if name == "store" else None
    assert launch(cu, function(cu, loaded, name), arguments, stream=stream) == SUCCESS
    assert cu.status("cuStreamSynchronize", stream) == error
    for call, given in [
        ("cuCtxSynchronize", ()),
        ("cuStreamQuery", (stream,)),
        ("cuEventQuery", (event,)),
        ("cuEventSynchronize", (event,)),
        ("cuMemAlloc_v2", (OUT, 16)),
        ("cuMemcpyDtoH_v2", (OUT, freed, 1)),
        ("cuStreamCreate", (OUT, 0)),
        ("cuModuleGetFunction", (OUT, loaded, b"count")),
    ]:
        assert cu.status(call, *given) == error, call
    cu.ok("cuCtxDestroy_v2", inner)
    assert cu.status("cuCtxSynchronize") == error
    assert cu.status("cuCtxCreate_v2", OUT, 0, 1) == error
    cu.ok("cuCtxDestroy_v2", outer)
    cu.free(cu.alloc(16))  # on the other device
    cu.ok("cuCtxSynchronize")
    with cu.context(1):
        cu.free(cu.alloc(16))


def test_reset_heals_a_primary_context(cu: Driver) -> None:
    primary = cu.out("cuDevicePrimaryCtxRetain", 1)
    cu.ok("cuCtxPushCurrent_v2", primary)
    assert launch(cu, function(cu, module(cu), "trap"), None) == SUCCESS
    assert cu.status("cuCtxSynchronize") == LAUNCH_FAILED
    cu.ok("cuDevicePrimaryCtxReset_v2", 1)
    assert cu.out("cuDevicePrimaryCtxRetain", 1) == primary
    cu.ok("cuCtxSynchronize")
    cu.free(cu.alloc(16))
    cu.ok("cuDevicePrimaryCtxRelease_v2", 1)
    cu.ok("cuDevicePrimaryCtxRelease_v2", 1)
    cu.ok("cuCtxPopCurrent_v2", None)


def test_linking(cu: Driver, context: int) -> None:
    main = b"""
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 out) twice (.param .b32 in);
.visible .entry go(.param .u64 to)
{
    .reg .b32 %r1;
    .reg .b64 %d1;
    .param .b32 a;
    .param .b32 b;
    st.param.b32 [a], 21;
    call (b), twice, (a);
    ld.param.b32 %r1, [b];
    ld.param.u64 %d1, [to];
    st.global.u32 [%d1], %r1;
    ret;
}
\0"""
    helper = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 out) twice (.param .b32 in)
{
    .reg .b32 %r1;
    ld.param.b32 %r1, [in];
    add.u32 %r1, %r1, %r1;
    st.param.b32 [out], %r1;
    ret;
}
\0"""
    created = ctypes.c_uint64()
    cu.ok("cuLinkCreate_v2", 0, None, None, ctypes.byref(created))
    state = created.value
    for text in (main, helper):
        cu.ok("cuLinkAddData_v2", state, 1, text, len(text), b"part", 0, None, None)
    image, size = ctypes.c_void_p(), ctypes.c_size_t()
    cu.ok("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size))
    loaded = cu.out("cuModuleLoadData", image.value)
    cu.ok("cuLinkDestroy", state)
    assert cu.status("cuLinkDestroy", state) == INVALID_HANDLE
    pointer = cu.alloc(4)
    assert launch(cu, function(cu, loaded, "go"), pack(pointer)) == SUCCESS
    assert cu.read(pointer, 4) == b"\x2a\0\0\0"


def test_occupancy(cu: Driver, context: int) -> None:
    loaded = module(cu)
    bounded, count = function(cu, loaded, "bounded"), function(cu, loaded, "count")
    value = ctypes.c_int()

    def blocks(handle: int, size: int, dynamic: int) -> int:
        cu.ok("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(value), handle, size, dynamic)
        return value.value

    assert blocks(count, 1024, 0) == 2
    assert blocks(count, 32, 0) == 32
    assert blocks(count, 32, 48 * 1024) == 3
    assert blocks(bounded, 64, 15 * 1024) == 9  # 164 KiB, less 1 KiB for each block
    assert blocks(bounded, 128, 0) == 0
    grid, block = ctypes.c_int(), ctypes.c_int()
    cu.ok("cuOccupancyMaxPotentialBlockSize", ctypes.byref(grid), ctypes.byref(block), count, None, 0, 0)
    assert (grid.value, block.value) == (216, 1024)
    assert cu.status("cuOccupancyMaxActiveBlocksPerMultiprocessor", OUT, count, 0, 0) == INVALID_VALUE
    assert cu.status("cuOccupancyMaxActiveBlocksPerMultiprocessor", OUT, 1, 32, 0) == INVALID_HANDLE
    assert cu.out("cuOccupancyAvailableDynamicSMemPerBlock", count, 2, 128) == 48 * 1024


def test_launch_bounds_beyond_the_device_s(cu: Driver, context: int) -> None:
    head = b".version 7.0\n.target sm_80\n.address_size 64\n"
    wide = function(cu, module(cu, head + b".visible .entry wide() .maxntid 2048, 1, 1 { ret; }\n"), "wide")
    threads, grid, block = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    cu.ok("cuFuncGetAttribute", ctypes.byref(threads), MAX_THREADS_PER_BLOCK, wide)
    cu.ok("cuOccupancyMaxPotentialBlockSize", ctypes.byref(grid), ctypes.byref(block), wide, None, 0, 0)
    assert threads.value == block.value == 1024
    cu.ok("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(threads), wide, 2048, 0)
    assert threads.value == 0


def test_a_function_that_is_only_listed_is_not_loaded(cu: Driver, context: int) -> None:
    """Modules are loaded lazily: before that NVIDIA's driver does not know all of a function."""
    owner = module(cu)
    count = cu.out("cuModuleGetFunctionCount", owner, type=ctypes.c_uint)
    listed = (ctypes.c_uint64 * count)()
    cu.ok("cuModuleEnumerateFunctions", listed, count, owner)
    threads = ctypes.byref(ctypes.c_int())
    assert cu.status("cuFuncGetAttribute", threads, MAX_THREADS_PER_BLOCK, listed[0]) == NOT_LOADED
    cu.ok("cuFuncGetAttribute", threads, NUM_REGS, listed[0])
    assert cu.status("cuFuncGetAttribute", threads, -1, listed[0]) == INVALID_VALUE
    name = ctypes.c_char_p()
    cu.ok("cuFuncGetName", ctypes.byref(name), listed[0])
    assert name.value
    cu.out("cuModuleGetFunction", owner, name.value)
    cu.ok("cuFuncLoad", listed[1])
    for known in listed[:2]:
        cu.ok("cuFuncGetAttribute", threads, MAX_THREADS_PER_BLOCK, known)


def slots(cu: Driver, table: str) -> ctypes.Array[ctypes.c_uint64]:
    """Of a table that only NVIDIA's libraries ask for (native/driver_interop/export_tables.c)."""
    return (ctypes.c_uint64 * 64).from_address(cu.out("cuGetExportTable", bytes.fromhex(table)))


def test_cufft_comes_to_the_functions_of_a_module(cu: Driver, context: int) -> None:
    found: list[int] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
    note = callback(lambda with_, function, owner: found.append(function))
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 2, callback, ctypes.c_uint64)
    each = prototype(slots(cu, "6e163fbeb958444d835ce182aff1991e")[7])
    owner = module(cu)
    assert each(context, owner, note, 0) == 1
    assert len(found) == cu.out("cuModuleGetFunctionCount", owner, type=ctypes.c_uint)
    assert function(cu, owner, "scale") in found
    assert each(context, 4711, note, 0) == 0


def test_cupti_is_told_that_there_is_nothing_for_profilers(cu: Driver, context: int) -> None:
    """Refused the table, it asks again until the stack is full; with slots that refuse, it follows NULL."""
    assert slots(cu, "7cb63f9b9ca48e42a484beb66e6aed7f")[0] == ctypes.sizeof(ctypes.c_void_p)


def test_cublas_asks_where_multiprocessors_lie(cu: Driver, context: int) -> None:
    """As lists that it gives back: as many groups and places in them as there are multiprocessors."""
    table = slots(cu, "1734dc26800d47458726c0f1e7dd8bca")
    count = cu.out("cuDeviceGetAttribute", MULTIPROCESSOR_COUNT, 0, type=ctypes.c_int)
    lists = [ctypes.POINTER(ctypes.c_ubyte)() for _ in range(2)]
    pointers = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2)
    assert pointers(table[4])(*[ctypes.addressof(one) for one in lists]) == SUCCESS
    groups, places = (one[:count] for one in lists)
    assert len(set(zip(groups, places, strict=True))) == count
    assert pointers(table[13])(*[ctypes.cast(one, ctypes.c_void_p) for one in lists]) == SUCCESS
