"""Memory that processes share: how long it lives, what it counts, and who is refused."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import guest_environment, native_environment

from .members import ALL, INVALID_VALUE, OUT_OF_MEMORY, Member, program

DEADLINE = 120.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def test_it_counts_once_until_nobody_has_it(three: list[Member]) -> None:
    maker, opener, another = three
    memory = maker.allocate(4608)  # more pieces than descriptors beside one message
    assert maker.write(memory + (4607 << 20), 7) == 0
    handle = maker.handle(memory + 12345)
    opened = opener.open(handle)
    assert opener.read(opened + (4607 << 20)) == 7
    assert another.open(handle) > 0
    assert [one.left() for one in three] == [ALL - 4608] * 3
    assert opener.allocate(2048) == -OUT_OF_MEMORY
    assert maker.free(memory) == 0
    assert opener.read(opened + (4607 << 20)) == 7
    assert [one.left() for one in three] == [ALL - 4608] * 3, "the openers have it"
    assert maker.allocate(2048) == -OUT_OF_MEMORY
    assert opener.close(opened) == 0
    assert maker.left() == ALL - 4608
    another.kill()
    wait_for(lambda: maker.left() == ALL, "the last one that had it is gone")
    assert opener.open(handle) == -INVALID_VALUE


def test_it_outlives_the_process_that_made_it(three: list[Member]) -> None:
    maker, opener, another = three
    memory, unopened = maker.allocate(1024), maker.allocate(512)
    assert maker.write(memory, 9) == 0
    handle = maker.handle(memory)
    opened = opener.open(handle)
    late = maker.handle(unopened)
    maker.kill()
    wait_for(lambda: opener.left() == ALL - 1024, "what the dead one had alone is free")
    assert opener.read(opened) == 9
    assert opener.write(opened, 8) == 0
    assert opener.read(opened) == 8
    for stale in (handle, late):
        assert another.open(stale) == -INVALID_VALUE
    assert opener.close(opened) == 0
    assert another.left() == ALL


def test_it_outlives_the_processes_that_opened_it(three: list[Member]) -> None:
    maker, opener, another = three
    memory = maker.allocate(1024)
    handle = maker.handle(memory)
    assert opener.open(handle) > 0
    opened = opener.open(handle)
    assert opener.write(opened, 5) == 0
    opener.kill()
    wait_for(lambda: maker.read(memory) == 5, "what was written is there")
    assert another.read(another.open(handle)) == 5
    assert maker.free(memory) == 0
    assert maker.left() == ALL - 1024
    another.kill()
    wait_for(lambda: maker.left() == ALL, "nobody has it")


def test_small_ones_that_lie_in_one_piece(three: list[Member]) -> None:
    """One is freed, and another goes on; a piece is opened twice for two allocations."""
    maker, opener, _ = three
    first, second = maker.allocate(1), maker.allocate(1)
    handles = [maker.handle(one) for one in (first, second)]
    assert maker.write(first, 1) == maker.write(second, 2) == 0
    opened = [opener.open(one) for one in handles]
    assert [opener.read(one) for one in opened] == [1, 2]
    assert opener.close(opened[0]) == 0
    assert opener.read(opened[1]) == 2
    assert maker.free(first) == 0
    assert opener.open(handles[0]) == -INVALID_VALUE
    assert opener.read(opened[1]) == 2


def test_nobody_beyond_the_program_opens_it(server: Monitor, three: list[Member]) -> None:
    """Another program of the same user, with all that was seen; and with what was made up."""
    maker, opener, another = three
    memory = maker.allocate(64)
    seen = maker.handle(memory)
    assert opener.open(seen) > 0
    with program(guest_environment(server.settings()), 2) as strangers:
        own = strangers[0].handle(strangers[0].allocate(64))
        for handle in (seen, own[:32] + seen[32:], seen[:32] + own[32:]):
            assert strangers[1].open(handle) == -INVALID_VALUE
        assert strangers[1].open(own) > 0, "what is theirs they open"
    for bit in range(0, 512, 7):  # each field is changed
        forged = bytearray.fromhex(seen)
        forged[bit // 8] ^= 1 << bit % 8
        changes = bit // 8 < 16 or 24 <= bit // 8 < 56
        assert (another.open(forged.hex()) < 0) == changes, bit
        if not changes:
            assert another.close(another.open(seen)) == another.close(another.open(seen)) == 0
    assert opener.open(seen) > 0


def test_on_the_device_itself() -> None:
    """Whoever is killed, the other one goes on."""
    environment = native_environment()
    with program(environment, 3) as (maker, opener, another):
        memory = maker.allocate(4)
        assert maker.write(memory, 3) == 0
        handle = maker.handle(memory)
        opened = opener.open(handle)
        assert another.open(handle) > 0
        another.kill()
        assert maker.write(memory, 4) == 0
        maker.kill()
        assert opener.read(opened) == 4
        assert opener.open(handle) == -INVALID_VALUE
        assert opener.close(opened) == 0


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("fills", [0, 8])
def test_what_one_frees_another_may_have_at_once(three: list[Member], fills: int) -> None:
    """When the call that frees it has returned, though a stream was at work behind it."""
    one, other, _ = three
    for _ in range(10 if fills == 0 else 2):
        assert one.free_behind(one.allocate(4608), fills) == 0
        memory = other.allocate(4608)
        assert memory > 0
        assert other.free_behind(memory, 0) == 0
        assert one.drop_spare() == 0


@pytest.mark.system
def test_what_is_freed_behind_work_another_may_have_when_that_was_waited_for(three: list[Member]) -> None:
    """By a stream, and by the end of a context."""
    one, other, _ = three
    assert one.left() == ALL
    for _ in range(2):
        assert one.use_in_stream(1024, 2) == 0
        assert other.left() == ALL
        assert one.use_in_context(1024, 2) == 0
        assert other.left() == ALL


@pytest.mark.system
def test_what_was_waited_for_is_given_back_though_the_driver_s_streams_begin_late() -> None:
    """That which gives it back, behind the one that was waited for, may not have begun by then."""
    varied = {"GPUFERRY_SIM_MEMORY": "16GiB", "GPUFERRY_SIM_VARIANCE": "1"}
    with (
        monitor("--pool", "2", "--memory", f"{ALL}MiB", environment=varied) as server,
        program(guest_environment(server.settings()), 2) as (one, other),
    ):
        for _ in range(2):
            assert one.use_in_stream(1024, 2) == 0
            assert other.left() == ALL


def test_giving_back_waits_for_no_stream_that_waits_for_the_program(three: list[Member]) -> None:
    one, other, _ = three
    event, gate = one.event(), one.allocate(4)
    assert one.write(gate, 0) == other.left() - (ALL - 4) == 0
    assert one.record_behind(event, gate) == 0
    assert one.use_in_stream(64, 1) == one.trim() == 0
    assert one.set_word(gate, 1) == one.synchronize(event) == 0
    assert other.left() == ALL - 4


def test_what_one_closes_last_another_may_have_at_once(three: list[Member]) -> None:
    maker, opener, _ = three
    for _ in range(10):
        memory = maker.allocate(4608)
        opened = opener.open(maker.handle(memory))
        assert maker.free_behind(memory, 0) == opener.close(opened) == 0
        memory = maker.allocate(4608)
        assert memory > 0
        assert maker.free_behind(memory, 0) == 0


def test_what_an_ended_process_had_another_may_have_at_once(three: list[Member]) -> None:
    one, other, _ = three
    assert other.allocate(4608) > 0
    other.end()
    assert one.allocate(4608) > 0


def test_what_a_killed_process_had_another_may_have(three: list[Member]) -> None:
    """Its API server hears of it a moment later than whoever has waited for its end."""
    one, other, _ = three
    assert other.allocate(4608) > 0
    other.kill()
    wait_for(lambda: one.allocate(4608) > 0, "room for what it had")
