"""Handles: a live one is found, and no other 64 bits ever are."""

from __future__ import annotations

import ctypes
import threading

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.shared_object import SharedObject

LIBRARY = SharedObject(
    ["tests/guest/handle_table.c", "guest/src/handles.c"], make=ctypes.c_uint64, make_owned=ctypes.c_uint64
)


def value_of(handle: int) -> int:
    return int(LIBRARY.value_of(ctypes.c_uint64(handle)))


def end(handle: int) -> bool:
    return bool(LIBRARY.end(ctypes.c_uint64(handle)))


@given(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=600), st.integers(0, 63))
def test_a_stale_handle_is_not_found_and_its_slot_is_used_again(values: list[int], bit: int) -> None:
    handles = [LIBRARY.make(value) for value in values]
    assert len(set(handles)) == len(values)
    assert [value_of(handle) for handle in handles] == values
    changed = handles[0] ^ 1 << bit
    assert value_of(changed) == -1 or changed in handles
    assert all(end(handle) for handle in handles)
    assert not any(end(handle) for handle in handles)
    assert {value_of(handle) for handle in handles} == {-1}
    again = LIBRARY.make(7)
    assert again not in handles
    assert again & 0xFFFFFF in {handle & 0xFFFFFF for handle in handles}
    assert end(again)


@given(st.integers(0, (1 << 64) - 1))
def test_any_bits_are_safe(handle: int) -> None:
    assert value_of(handle) == -1
    assert not end(handle)


def test_threads_take_different_handles() -> None:
    taken: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        for i in range(3000):
            mine.append(LIBRARY.make(i))
            if i % 3 == 0:
                assert end(mine.pop())

    threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [handle for mine in taken for handle in mine]
    assert len(set(everything)) == len(everything)
    assert all(end(handle) for handle in everything)


def make_owned(value: int, owner: int) -> int:
    return int(LIBRARY.make_owned(value, ctypes.c_uint64(owner)))


@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=200))
def test_what_is_owned_ends_with_its_owner_and_nothing_else_does(parents: list[int]) -> None:
    """A random tree: object i + 1 belongs to one of those before it."""
    other, made, above = LIBRARY.make(1), [LIBRARY.make(1)], [-1]
    for parent in parents:
        above.append(parent % len(made))
        made.append(make_owned(1, made[above[-1]]))
    first = parents[0] % len(made)
    below = {first}
    for i, parent in enumerate(above):
        if parent in below:
            below.add(i)
    assert int(LIBRARY.end(ctypes.c_uint64(made[first]))) == len(below)
    assert {i for i, handle in enumerate(made) if value_of(handle) == -1} == below
    left = len(made) - len(below)
    if left:
        assert int(LIBRARY.end_owned(ctypes.c_uint64(made[0]))) == left - 1
        assert value_of(made[0]) == 1
        assert end(made[0])
    assert value_of(other) == 1
    assert end(other)


def test_an_owner_that_has_ended_takes_nothing_along() -> None:
    owner = LIBRARY.make(1)
    assert end(owner)
    late = make_owned(2, owner)
    assert value_of(late) == 2
    again = LIBRARY.make(1)
    assert int(LIBRARY.end(ctypes.c_uint64(again))) == 1
    assert end(late)
