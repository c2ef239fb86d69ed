"""The policy alone: whatever happens, no device is promised more than it has, and nobody overtakes."""

from __future__ import annotations

from gpuferry.monitor.placement import DeviceRoom, FirstCome, Placement, Request
from hypothesis import given
from hypothesis import strategies as st

GRANTABLE = 100


def policy(devices: int = 1, servers: int = 2) -> FirstCome:
    made = FirstCome()
    for ordinal in range(devices):
        made.add_device(DeviceRoom(ordinal, GRANTABLE, GRANTABLE // servers))
        for number in range(servers):
            made.on_idle(ordinal, ordinal * 10 + number)
    return made


def test_lowest_device_and_longest_idle_server_first() -> None:
    chosen = policy(devices=2)
    for session in range(1, 5):
        chosen.on_arrival(Request(session, 0))
    placed = [chosen.next() for _ in range(5)]
    assert [(p.device, p.server, p.quota) for p in placed if p] == [
        (0, 0, 50),
        (0, 1, 50),
        (1, 10, 50),
        (1, 11, 50),
    ]
    assert placed[4] is None


def test_a_device_without_room_is_passed_over() -> None:
    chosen = policy(devices=2)
    chosen.on_arrival(Request(1, 80))
    chosen.on_arrival(Request(2, 30))
    assert chosen.next() == Placement(1, 0, 0, 80)
    assert chosen.next() == Placement(2, 1, 10, 30)


def test_refusal_is_for_what_can_never_be() -> None:
    chosen = policy()
    assert chosen.refusal(GRANTABLE) is None
    assert chosen.refusal(GRANTABLE + 1)
    assert FirstCome().refusal(GRANTABLE) is None  # nothing is known yet


def test_a_lost_server_is_not_given_away() -> None:
    chosen = policy()
    chosen.on_server_lost(0, 0)
    chosen.on_server_lost(7, 0)
    chosen.on_arrival(Request(1, 0))
    placed = chosen.next()
    assert placed
    assert placed.server == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("arrive"), st.integers(0, GRANTABLE)),
            st.tuples(st.just("end"), st.integers(0, 20)),
            st.tuples(st.just("leave"), st.integers(0, 20)),
        ),
        max_size=60,
    )
)
def test_any_history(events: list[tuple[str, int]]) -> None:
    chosen = policy(devices=2)
    arrived = 0
    running: list[Placement] = []
    expected: list[int] = []
    for kind, number in events:
        if kind == "arrive":
            arrived += 1
            chosen.on_arrival(Request(arrived, number))
            expected.append(arrived)
        elif kind == "end" and running:
            over = running.pop(number % len(running))
            chosen.on_complete(over)
            chosen.on_idle(over.device, over.server)
        elif kind == "leave" and expected:
            session = expected.pop(number % len(expected))
            chosen.on_leave(session)
        while placed := chosen.next():
            assert placed.session == expected.pop(0)
            running.append(placed)
        assert list(chosen.waiting()) == expected
        for room in chosen.devices.values():
            mine = [placed for placed in running if placed.device == room.ordinal]
            assert room.granted == sum(placed.quota for placed in mine) <= GRANTABLE
            assert {placed.server for placed in mine}.isdisjoint(room.idle)
            assert len(mine) + len(room.idle) == 2
    for over in running:
        chosen.on_complete(over)
    assert all(room.granted == 0 for room in chosen.devices.values())
