"""Kernels of NVRTC, launched by cuda-core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import (
    Device,
    LaunchConfig,
    Linker,
    LinkerOptions,
    ObjectCode,
    Program,
    ProgramOptions,
    Stream,
    launch,
)

SOURCE = r"""
extern "C" __global__ void axpy(float a, const float *x, float *y, size_t n) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
__device__ int offset = 7;
extern "C" __global__ void reverse(int *values) {
    extern __shared__ int kept[];
    kept[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x] + offset;
}
template <typename T> __global__ void square(T *values) { values[threadIdx.x] *= values[threadIdx.x]; }
extern "C" __global__ void wild(int *nowhere) { *nowhere = 1; }
"""


def compile_ptx(device: Device, *names: str) -> Any:
    """The kernels, with these instances of templates."""
    options = ProgramOptions(std="c++17", arch=f"compute_{device.arch}")
    return Program(SOURCE, "c++", options).compile("ptx", name_expressions=names)


@pytest.fixture
def device() -> Iterator[Device]:
    found = Device(0)
    found.set_current()
    yield found
    found.sync()


@pytest.fixture
def stream(device: Device) -> Stream:
    return device.create_stream()


def on_device(device: Device, stream: Stream, values: Any) -> Any:
    buffer = device.allocate(values.nbytes, stream=stream)
    (error,) = driver.cuMemcpyHtoDAsync(buffer.handle, values.ctypes.data, values.nbytes, stream.handle)
    assert error == driver.CUresult.CUDA_SUCCESS
    return buffer


def back(stream: Stream, buffer: Any, like: Any) -> Any:
    result = np.empty_like(like)
    (error,) = driver.cuMemcpyDtoHAsync(result.ctypes.data, buffer.handle, result.nbytes, stream.handle)
    assert error == driver.CUresult.CUDA_SUCCESS
    stream.sync()
    return result


def test_arguments_by_value_and_by_address(device: Device, stream: Stream) -> None:
    kernel = compile_ptx(device).get_kernel("axpy")
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, dtype=np.float32)
    a, b = on_device(device, stream, x), on_device(device, stream, y)
    launch(stream, LaunchConfig(grid=4, block=256), kernel, np.float32(2), a, b, np.uint64(1000))
    assert (back(stream, b, y) == 2 * x + 1).all()


def test_shared_memory_and_variables(device: Device, stream: Stream) -> None:
    kernel = compile_ptx(device).get_kernel("reverse")
    values = np.arange(128, dtype=np.int32)
    buffer = on_device(device, stream, values)
    launch(stream, LaunchConfig(grid=1, block=128, shmem_size=512), kernel, buffer)
    assert (back(stream, buffer, values) == values[::-1] + 7).all()


@pytest.mark.parametrize(("name", "kind"), [("square<int>", np.int32), ("square<double>", np.float64)])
def test_instances_of_templates(device: Device, stream: Stream, name: str, kind: type) -> None:
    kernel = compile_ptx(device, "square<int>", "square<double>").get_kernel(name)
    values: Any = np.arange(64, dtype=kind)
    buffer = on_device(device, stream, values)
    launch(stream, LaunchConfig(grid=1, block=64), kernel, buffer)
    assert (back(stream, buffer, values) == values**2).all()


def test_what_a_kernel_says_of_itself(device: Device) -> None:
    kernel = compile_ptx(device).get_kernel("axpy")
    assert kernel.num_arguments == 4
    assert [argument.size for argument in kernel.arguments_info] == [4, 8, 8, 8]
    assert kernel.attributes.max_threads_per_block == 1024
    assert kernel.occupancy.max_active_blocks_per_multiprocessor(256, 0) >= 1


def test_a_loaded_image(device: Device, stream: Stream) -> None:
    code = ObjectCode.from_ptx(compile_ptx(device).code)
    values = np.arange(32, dtype=np.int32)
    buffer = on_device(device, stream, values)
    launch(stream, LaunchConfig(grid=1, block=32, shmem_size=128), code.get_kernel("reverse"), buffer)
    assert (back(stream, buffer, values) == values[::-1] + 7).all()


def test_a_linked_image(device: Device, stream: Stream) -> None:
    linked = Linker(compile_ptx(device), options=LinkerOptions(arch=f"sm_{device.arch}")).link("cubin")
    x = np.ones(8, dtype=np.float32)
    a, b = on_device(device, stream, x), on_device(device, stream, x)
    launch(
        stream, LaunchConfig(grid=1, block=8), linked.get_kernel("axpy"), np.float32(4), a, b, np.uint64(8)
    )
    assert (back(stream, b, x) == 5).all()


def test_a_kernel_that_is_not_there(device: Device) -> None:
    with pytest.raises(Exception, match="CUDA_ERROR_NOT_FOUND"):
        compile_ptx(device).get_kernel("nobody")


def test_a_block_that_is_too_large(device: Device, stream: Stream) -> None:
    kernel = compile_ptx(device).get_kernel("wild")
    with pytest.raises(Exception, match="CUDA_ERROR_INVALID_VALUE"):
        launch(stream, LaunchConfig(grid=1, block=1025), kernel, 0)


def test_an_image_that_is_none(device: Device) -> None:
    with pytest.raises(Exception, match=r"CUDA_ERROR_INVALID_(PTX|IMAGE)"):
        ObjectCode.from_ptx(b".version 8.0\n.target sm_80\nnothing of it\n").get_kernel("wild")
