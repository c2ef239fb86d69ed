"""Backfill: who may be placed before whom, and how often."""

from __future__ import annotations

from gpuferry.monitor.policy import Gpu, Place, Request, Scheduler, build

from .asking import ask, drain, server


def test_backfill_lets_them_pass() -> None:
    policy = server(build("best-fit", "backfill"), [100], workers=3)
    assert ask(policy, 60, 60, 50, 10) == [(0, 0), None, None, (0, 1)]
    assert [request.id for request in policy.waiting()] == [2, 3]


def test_backfill_stops_when_the_head_was_overtaken_often_enough() -> None:
    policy = server(build("best-fit", "backfill"), [100], workers=100)
    placed = ask(policy, 60, 60, *[1] * 40)
    assert sum(place is not None for place in placed) == 1 + 25
    policy.on_complete(1, 1.0)
    assert len(drain(policy)) == 1 + 15


def test_backfill_keeps_the_order_of_those_who_came_back() -> None:
    policy = build("best-fit", "backfill")
    policy.add_gpu(Gpu(0, 100, frozenset({"zone=a"})))
    policy.on_arrival(Request(1, 10), 0.0)
    policy.on_arrival(Request(2, 10, labels=frozenset({"zone=a"})), 0.0, first=True)
    policy.on_arrival(Request(3, 10), 0.0, first=True)
    assert [request.id for request in policy.waiting()] == [3, 2, 1]
    for worker in range(3):
        policy.on_idle(0, worker)
    assert [d.request.id for d in drain(policy) if isinstance(d, Place)] == [3, 2, 1]


def blocked(overtakers: int) -> Scheduler:
    """Request 1 has 60 of 100 bytes, request 2 wants as many and was overtaken so often by requests of 1."""
    policy = server(build("best-fit", "backfill"), [100], workers=100)
    placed = ask(policy, 60, 60, *[1] * overtakers)
    assert [request.id for request in policy.waiting()] == [2]
    assert placed.count(None) == 1
    return policy


def come_back(policy: Scheduler, number: int) -> None:
    """The worker of this session died before it began, and now there is no room for it any more."""
    policy.on_worker_lost(0, 0)
    policy.on_complete(number, 1.0)
    policy.withhold(0, 60)
    policy.on_arrival(Request(number, 60), 1.0, first=True)
    assert drain(policy) == []


def passing(policy: Scheduler) -> int:
    """How many of forty that need little are placed at once."""
    return sum(place is not None for place in ask(policy, *[1] * 40, first=100))


def test_who_comes_back_was_overtaken_as_often_as_before() -> None:
    policy = blocked(overtakers=24)
    policy.on_complete(1, 1.0)
    assert [decision.request.id for decision in drain(policy) if isinstance(decision, Place)] == [2]
    come_back(policy, 2)
    assert passing(policy) == 1


def test_who_comes_back_was_not_overtaken_by_those_who_were_placed_meanwhile() -> None:
    policy = blocked(overtakers=24)
    come_back(policy, 1)
    policy.on_leave(2)
    assert passing(policy) == 16  # as many as there is room for


def test_those_behind_one_that_came_back_were_overtaken_as_often_as_before() -> None:
    policy = blocked(overtakers=24)
    come_back(policy, 1)
    assert passing(policy) == 1
