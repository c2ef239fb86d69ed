"""Events that processes share: whoever dies, nobody waits for ever, and who is refused."""

from __future__ import annotations

import pytest

from tests.helpers.monitor import Monitor
from tests.helpers.running import guest_environment, native_environment

from .members import INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, Member, program


def gated(maker: Member, opener: Member) -> tuple[int, int, int]:
    """An event as its maker and as its opener has it, and the gate that its record, under way, waits for."""
    gate, event = maker.allocate(4), maker.event()
    opened = opener.open_event(maker.event_handle(event))
    assert maker.write(gate, 0) == 0
    assert opener.query(opened) == opener.synchronize(opened) == 0, "it was never recorded"
    assert maker.record_behind(event, gate) == 0
    assert opener.query(opened) == maker.query(event) == -NOT_READY
    return event, opened, gate


@pytest.mark.system
def test_who_waits_for_a_process_that_is_killed_goes_on(three: list[Member]) -> None:
    maker, opener, _ = three
    _, opened, _ = gated(maker, opener)
    memory = opener.allocate(2)
    assert opener.await_and_write(opened, memory, 6) == 0
    maker.kill()
    assert opener.synchronize(opened) == 0
    while opener.read(memory) != 6:  # its stream goes on too
        pass
    assert opener.record(opened) == opener.synchronize(opened) == 0


@pytest.mark.system
def test_the_maker_goes_on_when_the_opener_is_killed(three: list[Member]) -> None:
    maker, opener, another = three
    event = maker.event()
    handle = maker.event_handle(event)
    opened, gate = opener.open_event(handle), opener.allocate(4)
    assert opener.write(gate, 0) == 0
    assert opener.record_behind(opened, gate) == 0
    assert maker.query(event) == -NOT_READY
    opener.kill()
    assert maker.synchronize(event) == 0
    assert another.query(another.open_event(handle)) == 0


def test_many_records_of_one_event(three: list[Member]) -> None:
    """More than it has slots, in both processes; then as many events as one may have."""
    maker, opener, _ = three
    event = maker.event()
    opened = opener.open_event(maker.event_handle(event))
    for _ in range(100):
        assert maker.record(event) == opener.record(opened) == 0
    assert maker.synchronize(event) == opener.synchronize(opened) == 0


def test_what_is_no_handle_of_an_event(server: Monitor, three: list[Member]) -> None:
    maker, opener, another = three
    event, memory = maker.event(), maker.allocate(2)
    seen, of_memory = maker.event_handle(event), maker.handle(memory)
    assert maker.event_handle(event) == seen
    assert maker.open_event(seen) == -INVALID_CONTEXT
    opened = opener.open_event(seen)
    assert opened > 0
    assert opener.event_handle(opened) == -INVALID_HANDLE, "it is not its own to give"
    assert opener.open(seen) == opener.open_event(of_memory) == -INVALID_VALUE
    for mixed in (
        of_memory[:16] + seen[16:],
        seen[:16] + of_memory[16:],
    ):  # the one's kind, the other's token
        assert opener.open(mixed) < 0
        assert opener.open_event(mixed) < 0
    with program(guest_environment(server.settings()), 1) as (stranger,):
        assert stranger.open_event(seen) == -INVALID_VALUE
    assert maker.destroy(event) == 0
    maker.read(memory)  # its answer says that the API server knows it, too
    assert another.open_event(seen) == -INVALID_VALUE
    assert opener.query(opened) == 0


@pytest.mark.parametrize("killed", ["maker", "opener"])
def test_on_the_device_itself(killed: str) -> None:
    with program(native_environment(), 2) as (maker, opener):
        if killed == "maker":
            _, opened, _ = gated(maker, opener)
            maker.kill()
            assert opener.synchronize(opened) == 0
        else:
            event = maker.event()
            opened, gate = opener.open_event(maker.event_handle(event)), opener.allocate(4)
            assert opener.write(gate, 0) == 0
            assert opener.record_behind(opened, gate) == 0
            assert maker.query(event) == -NOT_READY
            opener.kill()
            assert maker.synchronize(event) == 0
