"""All processes of a program move together, with what they share, or all stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.running import guest_environment
from tests.monitor import harness

from .members import NOT_READY, OUT_OF_MEMORY, Member, program

ALL = 256  # MiB of a lease


@pytest.fixture(scope="module")
def shared() -> Iterator[harness.Monitor]:
    changes: dict[str, Any] = {
        "GPUFERRY_SIM_DEVICES": "3",
        "GPUFERRY_SIM_MEMORY": "768MiB",
        "GPUFERRY_SIM_DIRTY": "1",
    }
    with harness.monitor("--pool", "1", "--memory", f"{ALL}MiB", server=None, **changes) as running:
        running.wait_idle(3)
        yield running


def settings(monitor: harness.Monitor) -> dict[str, str]:
    return {"GPUFERRY_MONITOR": monitor.address, "GPUFERRY_TOKEN": monitor.token}


@pytest.fixture
def monitor(shared: harness.Monitor) -> Iterator[harness.Monitor]:
    """Nothing is left of a program, wherever it ended."""
    yield shared
    status = shared.wait_for(lambda status: not status.sessions, "all of them have ended")
    assert [device.memory_granted for device in status.devices] == [0, 0, 0]


@pytest.fixture
def three(monitor: harness.Monitor) -> Iterator[list[Member]]:
    with program(guest_environment(settings(monitor)), 3) as members:
        yield members


def sessions(monitor: harness.Monitor) -> list[Any]:
    return sorted(monitor.status().sessions, key=lambda one: one.id)


def move(monitor: harness.Monitor, device: int, which: int = 0) -> None:
    number = sessions(monitor)[which].id
    moved = monitor.run("migrate", str(number), "--to", f"gpu:{device}")
    assert moved.returncode == 0, moved.stderr
    assert {one.device for one in sessions(monitor)} == {device}
    granted = [each.memory_granted >> 20 for each in monitor.status().devices]
    assert granted == [ALL * (each == device) for each in range(3)]


@pytest.fixture
def two(monitor: harness.Monitor) -> Iterator[list[Member]]:
    """Processes of a program with two devices."""
    with program(guest_environment({**settings(monitor), "GPUFERRY_GPUS": "2"}), 2) as members:
        yield members


def move_both(monitor: harness.Monitor, target: str, devices: list[int], which: int = 0) -> None:
    number = sessions(monitor)[which].id
    moved = monitor.run("migrate", str(number), "--to", target)
    assert moved.returncode == 0, moved.stderr
    assert [list(one.devices) for one in sessions(monitor)] == [devices] * 2
    granted = [each.memory_granted >> 20 for each in monitor.status().devices]
    assert granted == [ALL * (each in devices) for each in range(3)]


@pytest.mark.system
def test_a_program_of_two_devices(monitor: harness.Monitor, two: list[Member]) -> None:
    """Its processes go to the same two others, with what they share of either, and their claims on each."""
    maker, opener = two
    first = maker.allocate(16)
    assert maker.use(1) == maker.write(first, 7) == 0
    second = maker.allocate(128)
    assert maker.write(second, 8) == opener.use(1) == 0
    opened = [opener.open(maker.handle(one)) for one in (first, second)]  # both for the second device
    own = opener.allocate(64)
    assert opener.write(own, 9) == 0
    event = maker.event()
    seen = opener.open_event(maker.event_handle(event))
    for target, devices, which in (("gpu:1,2", [1, 2], 0), ("gpu:0,2", [0, 2], 1), ("gpu:0,1", [0, 1], 0)):
        move_both(monitor, target, devices, which)
        assert [opener.read(one) for one in (*opened, own)] == [7, 8, 9]
        assert (
            opener.write(opened[0], devices[1] + 20) == maker.record(event) == opener.synchronize(seen) == 0
        )
        assert maker.read(first) == devices[1] + 20
        assert maker.write(first, 7) == 0
        assert maker.left() == opener.left() == ALL - 128 - 64
        assert opener.allocate(128) == -OUT_OF_MEMORY
    assert maker.free(second) == 0
    assert maker.left() == ALL - 128 - 64, "one has it open"
    move_both(monitor, "gpu:1,2", [1, 2])
    assert opener.read(opened[1]) == 8
    assert opener.close(opened[1]) == 0
    assert maker.left() == ALL - 64
    assert opener.use(0) == 0
    assert opener.left() == ALL - 16


@pytest.mark.system
def test_a_texture_of_another_process(monitor: harness.Monitor, three: list[Member]) -> None:
    """It is made before that memory is there."""
    maker, opener, _ = three
    memory = maker.allocate(16)
    assert maker.write(memory, 7) == 0
    opened, own = opener.open(maker.handle(memory)), opener.allocate(16)
    texture = opener.texture(opened)
    assert opener.fetch(texture, own) == 7
    for device, value in ((1, 8), (2, 9)):
        move(monitor, device)
        assert opener.fetch(texture, own) == value - 1
        assert maker.write(memory, value) == 0
        assert opener.fetch(texture, own) == value


@pytest.mark.system
def test_two_devices_or_none(monitor: harness.Monitor, two: list[Member]) -> None:
    maker, opener = two
    event = maker.event()
    opened = opener.open_event(maker.event_handle(event))
    assert maker.destroy(event) == 0
    refused = monitor.run("migrate", str(sessions(monitor)[1].id), "--to", "gpu:1,2")
    assert "an event open that another process of its program has made and has destroyed" in refused.stderr
    assert [list(one.devices) for one in sessions(monitor)] == [[0, 1]] * 2
    assert opener.destroy(opened) == 0
    move_both(monitor, "gpu:1,2", [1, 2])


@pytest.mark.system
def test_memory_is_the_same_for_all(monitor: harness.Monitor, three: list[Member]) -> None:
    """At the same addresses, with what was written, and still one: what one writes then, the others read."""
    maker, opener, another = three
    memory, small, own = maker.allocate(16), maker.allocate(1), opener.allocate(32)
    for address, value in ((memory, 7), (memory + (15 << 20), 8), (small, 9)):
        assert maker.write(address, value) == 0
    assert opener.write(own, 10) == 0
    handle = maker.handle(memory)
    opened, opened_small = opener.open(handle), opener.open(maker.handle(small))
    for device, which in ((1, 0), (2, 1), (0, 2)):
        move(monitor, device, which)
        assert [opener.read(one) for one in (opened, opened + (15 << 20), opened_small, own)] == [7, 8, 9, 10]
        assert opener.write(opened, device + 20) == 0
        assert maker.read(memory) == device + 20
        late = another.open(handle)
        assert another.read(late) == device + 20
        assert another.close(late) == 0
        assert opener.write(opened, 7) == 0
    assert opener.close(opened) == 0
    assert opener.read(opened) < 0
    assert maker.read(memory) == 7


def test_a_graph_that_fills_what_another_has_made(monitor: harness.Monitor, three: list[Member]) -> None:
    """Its node is made when that memory is there, which comes behind all else."""
    maker, opener, _ = three
    memory = maker.allocate(16)
    graph = opener.graph(opener.open(maker.handle(memory)), 5)
    for device in (1, 2):
        move(monitor, device)
        assert maker.write(memory, 0) == opener.launch(graph) == 0
        assert maker.read(memory) == 5


@pytest.mark.system
def test_the_lease_counts_once_where_it_goes(monitor: harness.Monitor, three: list[Member]) -> None:
    maker, opener, another = three
    memory = maker.allocate(128)
    opened = opener.open(maker.handle(memory))
    before = [one.left() for one in three]
    move(monitor, 1)
    assert [one.left() for one in three] == before == [ALL - 128] * 3
    assert another.allocate(160) == -OUT_OF_MEMORY
    assert maker.free(memory) == 0
    assert another.left() == ALL - 128, "one has it open"
    assert opener.close(opened) == 0
    assert another.allocate(160) > 0


@pytest.mark.system
def test_what_its_maker_has_left_behind(monitor: harness.Monitor, three: list[Member]) -> None:
    """Freed, or of a process that is gone: the first one that has it open takes it along."""
    maker, opener, another = three
    freed, left = maker.allocate(32), maker.allocate(32)
    handles = [maker.handle(one) for one in (freed, left)]
    ours, theirs = [opener.open(one) for one in handles], [another.open(one) for one in handles]
    assert maker.write(freed, 3) == maker.write(left, 4) == maker.free(freed) == 0
    move(monitor, 1)
    maker.kill()
    monitor.wait_for(lambda status: len(status.sessions) == 2, "the maker is gone")
    move(monitor, 2)
    assert [opener.read(one) for one in ours] == [another.read(one) for one in theirs] == [3, 4]
    assert opener.write(ours[1], 5) == 0
    assert another.read(theirs[1]) == 5
    assert opener.left() == another.left() == ALL - 64
    for one, addresses in ((opener, ours), (another, theirs)):
        assert [one.close(address) for address in addresses] == [0, 0]
    assert another.left() == ALL


def test_events(monitor: harness.Monitor, three: list[Member]) -> None:
    maker, opener, another = three
    event = maker.event()
    handle = maker.event_handle(event)
    opened = opener.open_event(handle)
    assert maker.record(event) == opener.synchronize(opened) == 0
    for device in (1, 2):
        move(monitor, device)
        assert opener.query(opened) == maker.query(event) == 0
        gate = maker.allocate(2)
        assert maker.write(gate, 0) == maker.record_behind(event, gate) == 0
        memory = opener.allocate(2)
        assert opener.query(opened) == -NOT_READY
        assert opener.await_and_write(opened, memory, 6) == 0
        assert another.open_event(handle) > 0
        assert maker.set_word(gate, 1) == maker.synchronize(event) == opener.synchronize(opened) == 0


@pytest.mark.system
def test_an_event_whose_maker_has_destroyed_it(monitor: harness.Monitor, three: list[Member]) -> None:
    """Nobody could make it again: all stay, with the reason, until it is closed."""
    maker, opener, _ = three
    event = maker.event()
    opened = opener.open_event(maker.event_handle(event))
    memory = maker.allocate(8)
    assert maker.destroy(event) == maker.write(memory, 3) == 0
    refused = monitor.run("migrate", str(sessions(monitor)[0].id), "--to", "gpu:1")
    assert "an event open that another process of its program has made and has destroyed" in refused.stderr
    assert {one.device for one in sessions(monitor)} == {0}
    assert maker.read(memory) == 3
    assert opener.query(opened) == opener.destroy(opened) == 0
    move(monitor, 1)
    assert maker.read(memory) == 3
