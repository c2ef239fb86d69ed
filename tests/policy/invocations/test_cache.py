"""Buffers on a GPU, and what a cache manager publishes."""

from __future__ import annotations

import pytest
from gpuferry.monitor.policy.invocations import Function
from gpuferry.monitor.policy.invocations.buffers import GRANULE, Buffer, BufferCache, Full
from gpuferry.monitor.policy.invocations.store import Memory, Publisher, measured

from .world import World


def buffer(name: str, granules: int = 1, dirty: bool = False, client: str = "c") -> Buffer:
    return Buffer((client, name, name), granules * GRANULE, dirty)


def use(cache: BufferCache, *buffers: Buffer) -> list[str]:
    moved = cache.load(buffers)
    cache.release(buffers)
    return [one.id[1] for one in moved.evicted]


def test_sizes_are_rounded_up_and_a_margin_is_kept() -> None:
    cache = BufferCache(301 << 20)
    assert cache.capacity == 1 << 20
    cache = BufferCache(4 * GRANULE, margin=0)
    cache.load([Buffer(("c", "a", "a"), 1)])
    assert cache.used == GRANULE


def test_cold_ones_leave_before_hot_ones_each_by_last_use() -> None:
    cache = BufferCache(3 * GRANULE, margin=0)
    for name in "aabc":  # a is used twice: hot
        use(cache, buffer(name))
    assert use(cache, buffer("d")) == ["b"]
    assert use(cache, buffer("e")) == ["c"]
    assert use(cache, buffer("d"), buffer("e")) == []  # all are hot now
    assert use(cache, buffer("f")) == ["a"]


def test_the_source_counts_three_uses_as_hot() -> None:
    cache = BufferCache(2 * GRANULE, margin=0, hot=2)
    for name in "aab":
        use(cache, buffer(name))
    assert use(cache, buffer("c")) == ["a"]


def test_residents_of_a_request_are_pinned_before_room_is_made() -> None:
    """The source makes room first, and may evict what the request needs (§2.4)."""
    cache = BufferCache(2 * GRANULE, margin=0)
    use(cache, buffer("a"))
    use(cache, buffer("b"))
    moved = cache.load([buffer("c"), buffer("a")])
    assert [one.id[1] for one in moved.evicted] == ["b"]
    assert [one.id[1] for one in moved.loaded] == ["c"]


def test_pinned_ones_stay_and_dirty_ones_are_written_back() -> None:
    cache = BufferCache(2 * GRANULE, margin=0)
    cache.load([buffer("a", dirty=True)])
    with pytest.raises(Full):
        cache.load([buffer("b", 2)])
    cache.load([buffer("b")])
    cache.release([buffer("a", dirty=True)])
    moved = cache.load([buffer("c")])
    assert [one.id[1] for one in moved.written_back] == ["a"]
    assert cache.used == cache.capacity


def test_equal_keys_of_two_clients_are_two_copies() -> None:
    cache = BufferCache(4 * GRANULE, margin=0)
    cache.load([buffer("a"), buffer("a", client="d")])
    assert cache.used == 2 * GRANULE


def test_what_is_resident_and_measured_is_published_and_found_by_another() -> None:
    world = World("lalbo3")
    world.gpu(3)
    world.function("a", 40)
    world.function("b", 40)
    store = Memory()
    publisher = Publisher(store, lambda gpu: f"node{gpu}")
    world.arrive("a")
    publisher.publish(world.policy)
    assert dict(store.items("gpu/")) == {"gpu/node3/3/status": "busy", "gpu/node3/3/lru": '["a"]'}
    world.finish(1, 2.0, load=3.0)
    world.finish(world.arrive("b"), 1.0, load=4.0)
    publisher.publish(world.policy)
    assert dict(store.items("gpu/")) == {"gpu/node3/3/status": "idle", "gpu/node3/3/lru": '["b", "a"]'}
    assert dict(store.items("model/a/")) == {"model/a/load": "3.0", "model/a/infer": "2.0"}
    assert measured(store, Function("b", 40)) == Function("b", 40, load=4.0, run=1.0)
    assert measured(store, Function("c", 40, load=9.0)).load == 9.0
    world.lose_gpu(3)
    publisher.publish(world.policy)
    assert not dict(store.items("gpu/"))
