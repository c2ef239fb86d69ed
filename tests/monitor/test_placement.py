"""Between sessions and policy: who waits, what is free, and devices that come and go."""

from __future__ import annotations

import pytest
from gpuferry.monitor.policy import build
from gpuferry.monitor.policy.interface import Declined
from gpuferry.monitor.sessions.decision import Impossible, Placement
from gpuferry.monitor.sessions.placement import Placer
from hypothesis import given
from hypothesis import strategies as st

GRANTABLE = 100
NO_LABELS = frozenset[str]()


def placer(devices: int = 1, servers: int = 2, fit: str = "first-fit") -> Placer:
    made = Placer(build(fit))
    for ordinal in range(devices):
        made.add_device(ordinal, GRANTABLE, GRANTABLE // servers, frozenset({f"gpu={ordinal}"}))
        for number in range(servers):
            made.on_idle(ordinal, ordinal * 10 + number)
    return made


def arrive(made: Placer, session: int, memory: int = 0, labels: frozenset[str] = NO_LABELS) -> None:
    made.arrive(session, memory, labels, 0.0)


def test_who_asks_for_nothing_gets_what_is_usual() -> None:
    made = placer(devices=2)
    for session in range(1, 6):
        arrive(made, session)
    placed = [made.next() for _ in range(5)]
    assert placed == [
        Placement(1, 0, 0, 50),
        Placement(2, 0, 1, 50),
        Placement(3, 1, 10, 50),
        Placement(4, 1, 11, 50),
        None,
    ]
    assert made.waiting() == [5]


def test_what_is_withheld_is_granted_later() -> None:
    made = placer()
    made.withhold(0, 40)
    arrive(made, 1, 50)
    arrive(made, 2, 20)
    assert made.next() == Placement(1, 0, 0, 50)
    assert made.next() is None
    assert (made.devices[0].granted, made.devices[0].gpu.free) == (50, 10)
    made.withhold(0, 20)
    assert made.next() == Placement(2, 0, 1, 20)
    made.withhold(0, 0)
    assert (made.devices[0].granted, made.devices[0].gpu.free) == (70, 30)


def test_a_request_for_all_waits_for_what_is_withheld() -> None:
    made = placer()
    made.withhold(0, 40)
    arrive(made, 1, GRANTABLE)
    assert made.next() is None
    assert made.waiting() == [1]
    made.withhold(0, 0)
    assert made.next() == Placement(1, 0, 0, GRANTABLE)


def test_before_any_device_is_known_everybody_waits() -> None:
    made = Placer(build())
    arrive(made, 1, 10**9)
    arrive(made, 2)
    assert made.next() is None
    assert made.waiting() == [1, 2]
    assert len(made) == 2
    made.on_leave(2)
    arrive(made, 3)
    assert made.add_device(0, GRANTABLE, 50, NO_LABELS)
    made.let_in_early(0.0)
    made.on_idle(0, 7)
    refused = made.next()
    assert isinstance(refused, Impossible)
    assert (refused.session, "at most 100" in refused.reason, refused.memory) == (1, True, True)
    assert made.next() == Placement(3, 0, 7, 50)


def test_a_device_that_failed_gets_nothing_until_it_is_back() -> None:
    made = placer()
    arrive(made, 1)
    assert made.next() == Placement(1, 0, 0, 50)
    assert made.remove_device(0)
    assert not made.remove_device(0)
    arrive(made, 2)
    assert made.next() is None
    assert made.add_device(0, GRANTABLE, 50, NO_LABELS)
    assert not made.add_device(0, GRANTABLE, 50, NO_LABELS)
    assert made.devices[0].granted == 50, "the session that runs there still has its memory"
    assert made.next() is None, "its API servers of before do not count"
    made.on_idle(0, 5)
    assert made.next() == Placement(2, 0, 5, 50)
    made.on_complete(1, 0.0)
    made.on_complete(2, 0.0)
    assert made.devices[0].granted == 0


def test_adopted_sessions_count_even_beyond_the_room() -> None:
    made = placer()
    made.adopt(1, (0,), 80)
    made.adopt(2, (0,), 80)
    assert made.devices[0].granted == 160
    arrive(made, 3, 10)
    assert made.next() is None
    made.on_complete(1, 0.0)
    assert made.next() == Placement(3, 0, 0, 10)


def test_labels() -> None:
    made = placer(devices=2)
    arrive(made, 1, 10, frozenset({"gpu=1"}))
    assert made.next() == Placement(1, 1, 10, 10)
    arrive(made, 2, 10, frozenset({"zone=a"}))
    refused = made.next()
    assert isinstance(refused, Impossible)
    assert ("zone=a" in refused.reason, refused.memory) == (True, False)


def test_a_session_of_an_earlier_monitor_asks_for_where_it_is() -> None:
    made = placer(devices=2)
    made.adopt(1, [1], 10, frozenset({"gpu=0"}))  # a function server took it from there
    with pytest.raises(Declined, match="GPU 0 lacks a label"):
        made.request_migration(1, 0)


@given(st.lists(st.tuples(st.integers(0, 120), st.booleans()), max_size=40))
def test_no_device_is_promised_more_than_it_has(steps: list[tuple[int, bool]]) -> None:
    made = placer(devices=2)
    running: list[Placement] = []
    for session, (memory, end_one) in enumerate(steps, 1):
        arrive(made, session, memory)
        if end_one and running:
            over = running.pop(0)
            made.on_complete(over.session, 0.0)
            made.on_idle(over.device, over.server)
        while decision := made.next():
            if isinstance(decision, Placement):
                running.append(decision)
        for room in made.devices.values():
            assert room.granted == sum(p.quota for p in running if p.device == room.ordinal) <= GRANTABLE
