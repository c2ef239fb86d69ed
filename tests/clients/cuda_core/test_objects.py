"""Devices, memory, streams and events of cuda-core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    LegacyPinnedMemoryResource,
    StreamOptions,
)


@pytest.fixture
def device() -> Device:
    found = Device(0)
    found.set_current()
    return found


def test_device(device: Device) -> None:
    assert device.name
    assert len(device.uuid) >= 32
    assert device.compute_capability >= (7, 5)
    assert device.properties.multiprocessor_count > 0
    assert device.properties.max_threads_per_block == 1024
    assert [d.device_id for d in Device.get_all_devices()] == list(range(len(Device.get_all_devices())))


def test_device_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="device_id"):
        Device(1000)


@pytest.mark.parametrize("size", [1, 511, 1 << 20])
def test_copies_between_pinned_and_device_memory(device: Device, size: int) -> None:
    stream = device.create_stream()
    pinned = LegacyPinnedMemoryResource()
    source, result = pinned.allocate(size, stream=stream), pinned.allocate(size, stream=stream)
    middle = device.allocate(size, stream=stream)
    values = np.from_dlpack(source).view(np.uint8)
    values[:] = np.arange(size, dtype=np.uint64).astype(np.uint8)
    source.copy_to(middle, stream=stream)
    middle.copy_to(result, stream=stream)
    stream.sync()
    assert (np.from_dlpack(result).view(np.uint8) == values).all()


@pytest.mark.parametrize(("value", "width"), [(5, 1), (b"\x01\x02", 2), (b"\x01\x02\x03\x04", 4)])
def test_fill(device: Device, value: int | bytes, width: int) -> None:
    stream = device.create_stream()
    buffer = device.allocate(64 * width, stream=stream)
    buffer.fill(value, stream=stream)
    result = LegacyPinnedMemoryResource().allocate(64 * width, stream=stream)
    buffer.copy_to(result, stream=stream)
    stream.sync()
    pattern = value if isinstance(value, bytes) else bytes([value])
    assert np.from_dlpack(result).tobytes() == pattern * 64


def test_pool_of_ones_own(device: Device) -> None:
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 25))
    stream = device.create_stream()
    buffer = pool.allocate(1 << 20, stream=stream)
    assert pool.attributes.used_mem_current == 1 << 20
    assert buffer.is_device_accessible
    buffer.close(stream)
    stream.sync()
    assert pool.attributes.used_mem_current == 0
    assert pool.attributes.used_mem_high == 1 << 20


def test_streams(device: Device) -> None:
    blocking = device.create_stream(options=StreamOptions(nonblocking=False, priority=0))
    assert not blocking.is_nonblocking
    assert device.create_stream().is_nonblocking
    assert blocking.priority == 0
    assert blocking.device.device_id == device.device_id
    blocking.close()


def test_events_order_streams_and_tell_time(device: Device) -> None:
    first, second = device.create_stream(), device.create_stream()
    begin = first.record(options=EventOptions(timing_enabled=True))
    second.wait(begin)
    end = second.record(options=EventOptions(timing_enabled=True))
    end.sync()
    assert begin.is_done
    assert end.is_done
    assert end - begin >= 0


def test_events_without_time(device: Device) -> None:
    stream = device.create_stream()
    first, second = stream.record(), stream.record()
    stream.sync()
    with pytest.raises(RuntimeError, match="timing"):
        second - first


def test_memory_is_given_back(device: Device) -> None:
    def free() -> int:
        error, left, _ = driver.cuMemGetInfo()
        assert error == driver.CUresult.CUDA_SUCCESS
        return int(left)

    before = free()
    error, address = driver.cuMemAlloc(64 << 20)
    assert error == driver.CUresult.CUDA_SUCCESS
    assert before - free() >= 64 << 20
    assert driver.cuMemFree(address) == (driver.CUresult.CUDA_SUCCESS,)
    assert free() == before


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: driver.cuMemAlloc(0), "CUDA_ERROR_INVALID_VALUE"),
        (lambda: driver.cuMemAlloc(1 << 60), "CUDA_ERROR_OUT_OF_MEMORY"),
        (lambda: driver.cuMemFree(driver.CUdeviceptr(16)), "CUDA_ERROR_INVALID_VALUE"),
        (lambda: driver.cuDeviceGet(99), "CUDA_ERROR_INVALID_DEVICE"),
        (lambda: driver.cuPointerGetAttribute(driver.CUpointer_attribute(2), 16), "CUDA_ERROR_INVALID_VALUE"),
        (lambda: driver.cuModuleLoadData(b"nothing at all"), "CUDA_ERROR_INVALID_IMAGE"),
    ],
)
def test_errors(device: Device, call: Callable[[], Any], expected: str) -> None:
    assert call()[0].name == expected
