"""NVIDIA's low-level bindings: the driver, the runtime and the compiler as functions of Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver, nvrtc, runtime

SOURCE = b"""
struct Pair { float by; int first; };
extern "C" __global__ void scale(float *out, const float *in, Pair pair, size_t count) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = in[i] * pair.by + pair.first;
}
__constant__ int table[4] = {1, 2, 3, 4};
extern "C" __global__ void look(int *out) { out[threadIdx.x] = table[threadIdx.x % 4]; }
"""


def good(answer: tuple[Any, ...]) -> Any:
    """What a call returns beside its status, which is success."""
    status, *values = answer
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else tuple(values)


@pytest.fixture(scope="module", autouse=True)
def context() -> Iterator[None]:
    good(driver.cuInit(0))
    device = good(driver.cuDeviceGet(0))
    good(driver.cuCtxSetCurrent(good(driver.cuDevicePrimaryCtxRetain(device))))
    yield
    good(driver.cuDevicePrimaryCtxRelease(device))


@pytest.fixture(scope="module")
def image() -> bytes:
    program = good(nvrtc.nvrtcCreateProgram(SOURCE, b"k.cu", 0, [], []))
    good(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"]))
    text = b" " * int(good(nvrtc.nvrtcGetPTXSize(program)))
    good(nvrtc.nvrtcGetPTX(program, text))
    return text


def test_a_launch(image: bytes) -> None:
    module = good(driver.cuModuleLoadData(image))
    function = good(driver.cuModuleGetFunction(module, b"scale"))
    given, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    source, target = (good(driver.cuMemAlloc(given.nbytes)) for _ in range(2))
    stream = good(driver.cuStreamCreate(0))
    pair = np.array((2.5, 7), np.dtype([("by", np.float32), ("first", np.int32)]))
    values = [
        np.array(int(target), np.uint64),
        np.array(int(source), np.uint64),
        pair,
        np.array(1000, np.uint64),
    ]
    pointers = np.array([value.ctypes.data for value in values], np.uint64)
    good(driver.cuMemcpyHtoDAsync(source, given.ctypes.data, given.nbytes, stream))
    good(driver.cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, stream, pointers.ctypes.data, 0))
    good(driver.cuMemcpyDtoHAsync(out.ctypes.data, target, out.nbytes, stream))
    good(driver.cuStreamSynchronize(stream))
    assert (out == given * np.float32(2.5) + 7).all()
    for memory in (source, target):
        good(driver.cuMemFree(memory))
    good(driver.cuStreamDestroy(stream))
    good(driver.cuModuleUnload(module))


def test_arguments_by_their_types(image: bytes) -> None:
    library = good(driver.cuLibraryLoadData(image, [], [], 0, [], [], 0))
    kernel = good(driver.cuLibraryGetKernel(library, b"look"))
    target = good(driver.cuMemAlloc(64 * 4))
    config = driver.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1
    config.blockDimX = 64
    arguments = ((target,), (None,))
    good(driver.cuLaunchKernelEx(config, driver.CUfunction(int(kernel)), arguments, 0))
    out = np.zeros(64, np.int32)
    good(driver.cuMemcpyDtoH(out.ctypes.data, target, out.nbytes))
    assert (out == np.arange(64) % 4 + 1).all()
    address, size = good(driver.cuLibraryGetGlobal(library, b"table"))
    assert (int(address) != 0, size) == (True, 16)
    good(driver.cuMemFree(target))
    good(driver.cuLibraryUnload(library))


def test_the_compiler_says_what_is_wrong() -> None:
    program = good(nvrtc.nvrtcCreateProgram(b"__global__ void k() { nothing; }", b"k.cu", 0, [], []))
    (status,) = nvrtc.nvrtcCompileProgram(program, 0, [])
    assert status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION
    log = b" " * good(nvrtc.nvrtcGetProgramLogSize(program))
    good(nvrtc.nvrtcGetProgramLog(program, log))
    assert b"nothing" in log


def test_errors_have_names() -> None:
    status, _ = driver.cuMemAlloc(0)
    assert status == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    assert good(driver.cuGetErrorName(status)) == b"CUDA_ERROR_INVALID_VALUE"
    status, _ = driver.cuModuleLoadData(b"nothing\0")
    assert status != driver.CUresult.CUDA_SUCCESS


def test_the_runtime_beside_the_driver() -> None:
    memory = good(runtime.cudaMalloc(4096))
    given, out = np.arange(512, dtype=np.uint64), np.zeros(512, np.uint64)
    kind = runtime.cudaMemcpyKind
    good(runtime.cudaMemcpy(memory, given.ctypes.data, 4096, kind.cudaMemcpyHostToDevice))
    good(driver.cuMemcpyDtoH(out.ctypes.data, memory, 4096))
    assert (out == given).all()
    begin, _ = good(driver.cuMemGetAddressRange(memory))
    assert int(begin) == int(memory)
    good(runtime.cudaFree(memory))
    assert good(runtime.cudaGetDeviceProperties(0)).major == 8


def test_pools() -> None:
    stream, pool = good(runtime.cudaStreamCreate()), good(runtime.cudaDeviceGetDefaultMemPool(0))
    memory = good(runtime.cudaMallocAsync(1 << 20, stream))
    good(runtime.cudaMemsetAsync(memory, 1, 1 << 20, stream))
    good(runtime.cudaStreamSynchronize(stream))
    used = good(runtime.cudaMemPoolGetAttribute(pool, runtime.cudaMemPoolAttr.cudaMemPoolAttrUsedMemCurrent))
    assert int(used) >= 1 << 20
    good(runtime.cudaFreeAsync(memory, stream))
    good(runtime.cudaStreamDestroy(stream))


def test_a_graph() -> None:
    stream, memory = good(driver.cuStreamCreate(1)), good(driver.cuMemAlloc(256))
    good(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    good(driver.cuMemsetD8Async(memory, 7, 256, stream))
    graph = good(driver.cuStreamEndCapture(stream))
    executable = good(driver.cuGraphInstantiate(graph, 0))
    good(driver.cuGraphLaunch(executable, stream))
    good(driver.cuStreamSynchronize(stream))
    out = (ctypes.c_uint8 * 256)()
    good(driver.cuMemcpyDtoH(ctypes.addressof(out), memory, 256))
    assert bytes(out) == b"\7" * 256
    _, count = good(driver.cuGraphGetNodes(graph, 0))
    assert count == 1
    good(driver.cuGraphExecDestroy(executable))
    good(driver.cuGraphDestroy(graph))
    good(driver.cuMemFree(memory))


def test_memory_that_the_program_maps() -> None:
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    size = good(driver.cuMemGetAllocationGranularity(wanted, least))
    handle, address = (
        good(driver.cuMemCreate(size, wanted, 0)),
        good(driver.cuMemAddressReserve(size, 0, 0, 0)),
    )
    good(driver.cuMemMap(address, size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location = wanted.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    good(driver.cuMemSetAccess(address, size, [access], 1))
    good(driver.cuMemsetD32(address, 5, size // 4))
    out = np.zeros(size // 4, np.uint32)
    good(driver.cuMemcpyDtoH(out.ctypes.data, address, size))
    assert (out == 5).all()
    good(driver.cuMemUnmap(address, size))
    good(driver.cuMemAddressFree(address, size))
    good(driver.cuMemRelease(handle))
