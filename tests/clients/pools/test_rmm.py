"""RAPIDS' memory manager: each of its resources gives memory, over which bytes go there and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import rmm
from rmm import mr
from rmm.pylibrmm.stream import Stream

MB = 1 << 20
UPSTREAM = mr.CudaMemoryResource

RESOURCES: dict[str, Callable[[], Any]] = {
    "cuda": UPSTREAM,
    "managed": mr.ManagedMemoryResource,
    "async": lambda: mr.CudaAsyncMemoryResource(initial_pool_size=16 * MB, release_threshold=32 * MB),
    "async_exportable": lambda: mr.CudaAsyncMemoryResource(enable_ipc=True),
    "pool": lambda: mr.PoolMemoryResource(UPSTREAM(), initial_pool_size=16 * MB, maximum_pool_size=64 * MB),
    "pool_managed": lambda: mr.PoolMemoryResource(mr.ManagedMemoryResource(), initial_pool_size=16 * MB),
    "arena": lambda: mr.ArenaMemoryResource(UPSTREAM(), arena_size=64 * MB),
    "fixed": lambda: mr.FixedSizeMemoryResource(UPSTREAM(), block_size=8 * MB, blocks_to_preallocate=2),
    "binning": lambda: mr.BinningMemoryResource(UPSTREAM(), 18, 22),
    "prefetch": lambda: mr.PrefetchResourceAdaptor(mr.ManagedMemoryResource()),
    "statistics": lambda: mr.StatisticsResourceAdaptor(UPSTREAM()),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    mr.set_current_device_resource(UPSTREAM())


@pytest.mark.parametrize("name", RESOURCES)
def test_resource(name: str) -> None:
    mr.set_current_device_resource(RESOURCES[name]())
    given = [np.arange(size, dtype=np.uint8) for size in (1, 7, 256, 4096)]
    buffers = [rmm.DeviceBuffer.to_device(each) for each in given]
    large = rmm.DeviceBuffer(size=5 * MB)
    assert large.size == 5 * MB
    assert [each.tobytes() for each in buffers] == [each.tobytes() for each in given]
    stream = Stream()
    copy = rmm.DeviceBuffer(size=4096, stream=stream)
    copy.copy_from_device(buffers[3])
    stream.synchronize()
    copy.resize(10000)
    assert copy.tobytes()[:4096] == given[3].tobytes()


def test_limit() -> None:
    mr.set_current_device_resource(mr.LimitingResourceAdaptor(UPSTREAM(), MB))
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=2 * MB)


def test_out_of_memory() -> None:
    mr.set_current_device_resource(UPSTREAM())
    with pytest.raises(MemoryError, match="failed to allocate"):
        rmm.DeviceBuffer(size=1 << 50)
    assert rmm.DeviceBuffer.to_device(np.ones(4, np.uint8)).tobytes() == b"\1" * 4


def test_exportable_by_the_fabric() -> None:
    with pytest.raises(RuntimeError, match="not supported"):
        mr.CudaAsyncMemoryResource(enable_fabric=True)
