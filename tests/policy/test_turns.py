"""Turns between tenants: what one piles up delays no other, and limits hold nobody else up."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from gpuferry.monitor.policy import Gpu, Migrate, Place, Refuse, Request, Scheduler, Share, build, turns
from hypothesis import given
from hypothesis import strategies as st

QUEUES = ("fcfs", "backfill")


class Server:
    """One GPU, workers, and everything that was decided."""

    def __init__(self, queue: str = "fcfs", workers: int = 1, memory: int = 100, **shares: Share) -> None:
        self.shares = shares
        self.policy: Scheduler = build("best-fit", queue, "off", lambda name: self.shares.get(name, Share()))
        self.policy.add_gpu(Gpu(0, memory))
        for worker in range(workers):
            self.policy.on_idle(0, worker)
        self.live: dict[int, Place] = {}
        self.placed: list[Request] = []
        self.refused: list[Refuse] = []
        self.count = 0

    def arrive(self, tenant: str, memory: int = 1) -> int:
        self.count += 1
        self.policy.on_arrival(Request(self.count, memory, tenant=tenant), 0.0)
        self.settle()
        return self.count

    def settle(self) -> None:
        while decision := self.policy.next():
            assert not isinstance(decision, Migrate)
            if isinstance(decision, Place):
                self.live[decision.request.id] = decision
                self.placed.append(decision.request)
            else:
                self.refused.append(decision)

    def end(self, session: int | None = None) -> None:
        """A session ends, the oldest by default, and its worker is idle again."""
        place = self.live.pop(next(iter(self.live)) if session is None else session)
        self.policy.on_complete(place.request.id, 0.0)
        self.policy.on_idle(place.gpu, place.worker)
        self.settle()

    def waiting(self, tenant: str) -> int:
        return self.policy.standing(tenant).waiting


@pytest.mark.parametrize("queue", QUEUES)
def test_a_thousand_that_wait_delay_anothers_first_by_no_more_than_one(queue: str) -> None:
    server = Server(queue)
    for _ in range(1001):
        server.arrive("crowd")
    first = server.arrive("other")
    before = len(server.placed)
    while first not in server.live:
        server.end()
    assert len(server.placed) - before <= 2  # itself, and one before it at most


@pytest.mark.parametrize("queue", QUEUES)
def test_turns_go_by_weight(queue: str) -> None:
    server = Server(queue, heavy=Share(weight=3.0))
    server.arrive("blocker")
    for _ in range(40):
        server.arrive("heavy")
        server.arrive("light")
    server.placed.clear()
    for _ in range(40):
        server.end()
    turns = Counter(request.tenant for request in server.placed)
    assert turns == {"heavy": 30, "light": 10}


def test_within_a_tenant_the_order_stays() -> None:
    server = Server()
    server.arrive("blocker")
    mine = [server.arrive(tenant) for _ in range(5) for tenant in ("a", "b")]
    server.placed.clear()
    for _ in range(10):
        server.end()
    for remainder in (0, 1):
        order = [request.id for request in server.placed if request.id % 2 == remainder]
        assert order == sorted(order)
    assert {request.id for request in server.placed} == set(mine)


def test_yesterdays_rest_is_no_credit() -> None:
    """Who had nothing for long does not go before others again and again when it comes."""
    server = Server()
    for _ in range(50):
        server.arrive("busy")
    for _ in range(30):
        server.end()
    for _ in range(10):
        server.arrive("late")
    server.placed.clear()
    for _ in range(10):
        server.end()
    assert Counter(request.tenant for request in server.placed) == {"busy": 5, "late": 5}


@pytest.mark.parametrize("queue", QUEUES)
def test_who_reached_its_limit_waits_and_holds_nobody_up(queue: str) -> None:
    server = Server(queue, workers=4, few=Share(sessions=1), small=Share(memory=10))
    one = server.arrive("few")
    two = server.arrive("few")
    ten = server.arrive("small", 10)
    more = server.arrive("small", 1)
    other = server.arrive("other", 50)
    assert {one, ten, other} == set(server.live)
    server.end(one)
    assert two in server.live
    server.end(ten)
    assert more in server.live


def test_what_the_limits_never_allow_is_refused_with_the_limit_and_the_next_step() -> None:
    server = Server(small=Share(memory=10), none=Share(sessions=0))
    server.arrive("small", 11)
    server.arrive("none")
    much, never = server.refused
    assert much.memory
    assert "11 bytes" in much.reason
    assert "10 (limit memory)" in much.reason
    assert "gpuferry tenant set small --memory" in much.reason
    assert not never.memory
    assert "limit sessions=0" in never.reason


def test_a_higher_limit_lets_those_go_that_wait() -> None:
    server = Server(workers=2, few=Share(sessions=1))
    server.arrive("few")
    second = server.arrive("few")
    server.shares["few"] = Share(sessions=2)
    server.settle()
    assert second in server.live


@pytest.mark.parametrize("queue", QUEUES)
def test_who_waits_for_its_own_sessions_to_end_is_waited_for_by_nobody(queue: str) -> None:
    """One that sits on most of a GPU, and asks for as much again, would else close it to all others."""
    server = Server(queue, workers=100)
    server.arrive("hog", 60)
    server.arrive("hog", 60)
    for _ in range(40):
        server.arrive("other", 1)
    assert Counter(request.tenant for request in server.placed) == {"hog": 1, "other": 40}


@pytest.mark.parametrize("queue", QUEUES)
def test_who_needs_room_that_others_have_is_passed_over_so_often_and_then_waited_for(queue: str) -> None:
    server = Server(queue, workers=100)
    server.arrive("other", 10)
    large = server.arrive("large", 100)
    small = [server.arrive("other", 1) for _ in range(40)]
    assert sum(one in server.live for one in small) == 25
    while large not in server.live:
        server.end()
    server.end(large)
    assert server.waiting("other") == 0


def test_who_leaves_and_comes_again_is_passed_over_as_often_again() -> None:
    """Else one could have all others wait for it again and again, and never take what they left free."""
    server = Server(workers=100)
    server.arrive("other", 10)
    for _ in range(2):
        large = server.arrive("large", 100)
        small = [server.arrive("other", 1) for _ in range(30)]
        assert sum(one in server.live for one in small) == 25
        server.policy.on_leave(large)
        server.settle()
        assert all(one in server.live for one in small)


def test_a_session_that_moves_is_held_once_and_sits_on_both() -> None:
    server = Server(workers=2, few=Share(sessions=1, memory=60))
    server.policy.add_gpu(Gpu(1, 100))
    server.policy.on_idle(1, 9)
    moving = server.arrive("few", 60)
    server.policy.request_migration(moving, 1)
    assert isinstance(server.policy.next(), Migrate)
    assert server.policy.standing("few")[1:4] == (1, 60, 1)
    server.policy.on_migrated(moving, done=True)
    assert server.policy.standing("few")[1:4] == (1, 60, 1)
    server.policy.on_complete(moving, 0.0)
    assert server.policy.standing("few")[1:4] == (0, 0, 0)


def test_one_that_lost_its_worker_has_its_turn_again() -> None:
    server = Server(workers=1)
    first = server.arrive("a")
    for _ in range(3):
        server.arrive("b")
    place = server.live.pop(first)
    server.policy.on_worker_lost(0, place.worker)
    server.policy.on_complete(first, 0.0)
    server.policy.on_arrival(place.request, 0.0, first=True)
    server.policy.on_idle(0, 7)
    server.settle()
    assert first in server.live


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.integers(0, 3)), max_size=60),
    st.sampled_from(QUEUES),
    st.integers(1, 3),
    st.integers(20, 100),
)
def test_limits_hold_nothing_is_lost_and_nobody_starves(
    steps: list[tuple[str, int, int]], queue: str, sessions: int, memory: int
) -> None:
    """Whatever comes in whatever order."""
    limited = Share(sessions, memory)
    server = Server(queue, workers=3, a=limited, b=Share(weight=0.5))
    for tenant, asked, ending in steps:
        for _ in range(min(ending, len(server.live))):
            server.end()
        server.arrive(tenant, asked)
        mine = [place.request for place in server.live.values() if place.request.tenant == "a"]
        assert len(mine) <= limited.sessions
        assert sum(request.memory for request in mine) <= limited.memory
        for name in "abc":
            held = [place.request for place in server.live.values() if place.request.tenant == name]
            granted = sum(one.memory for one in held)
            assert server.policy.standing(name)[1:4] == (len(held), granted, len(held))
        assert len(server.policy.waiting()) == len(server.policy)
    while server.live:
        server.end()
    assert not len(server.policy)
    assert len(server.placed) + len(server.refused) == server.count


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=80))
def test_the_order_that_is_told_is_the_order_that_comes(tenants: list[str]) -> None:
    server = Server(b=Share(weight=2.0))
    server.arrive("blocker")
    for tenant in tenants:
        server.arrive(tenant)
    told = [request.id for request in server.policy.waiting()]
    server.placed.clear()
    for _ in tenants:
        server.end()
    assert [request.id for request in server.placed] == told


def gpus(count: int, **shares: Any) -> Server:
    """So many of them, with two workers each."""
    made = Server(workers=2, **shares)
    for number in range(1, count):
        made.policy.add_gpu(Gpu(number, 100))
        for worker in (10 * number, 10 * number + 1):
            made.policy.on_idle(number, worker)
    return made


def test_gpus_count_with_each_session() -> None:
    """Of its limit, who has all waits, and holds nobody up; who asks for more than that is refused."""
    made = gpus(3, a=Share(gpus=3))
    made.policy.on_arrival(Request(1, 10, devices=2, tenant="a"), 0.0)
    made.policy.on_arrival(Request(2, 10, devices=2, tenant="a"), 0.0)
    made.policy.on_arrival(Request(3, 10, devices=2, tenant="b"), 0.0)
    made.policy.on_arrival(Request(4, 10, devices=4, tenant="a"), 0.0)
    made.settle()
    assert [request.id for request in made.placed] == [1, 3]
    assert [(refuse.request.id, "limit gpus" in refuse.reason) for refuse in made.refused] == [(4, True)]
    assert made.policy.standing("a").gpus == 2
    made.policy.on_complete(1, 1.0)
    del made.live[1]
    for number, worker in ((0, 0), (1, 10), (2, 20)):
        made.policy.on_idle(number, worker)
    made.settle()
    assert [request.id for request in made.placed] == [1, 3, 2]


def test_a_move_takes_no_gpu_more() -> None:
    made = gpus(2, a=Share(gpus=1))
    made.policy.on_arrival(Request(1, 10, tenant="a"), 0.0)
    made.settle()
    made.policy.request_migration(1, 1)
    assert made.policy.standing("a").gpus == 1
    assert isinstance(made.policy.next(), Migrate)
    made.policy.on_migrated(1, done=True)
    assert made.policy.standing("a").gpus == 1
    made.policy.on_complete(1, 1.0)
    assert made.policy.standing("a").gpus == 0


def story(queue: str, rng: random.Random) -> list[Any]:
    """What becomes of requests that come, leave and end, some before anything was decided."""
    server = Server(queue, workers=3, memory=20, few=Share(sessions=1), little=Share(memory=9))
    tenants = rng.choice([("one",), ("few",), ("little",), ("one", "few", "little")])
    seen: list[Any] = []
    for _ in range(30):
        step = rng.choice(["come", "come", "come", "settle", "settle", "end", "leave", "again", "look"])
        if step == "come":
            server.count += 1
            request = Request(server.count, rng.choice([1, 8, 12]), tenant=rng.choice(tenants))
            server.policy.on_arrival(request, 0.0)
        elif step == "again" and server.live:
            over = server.live.pop(max(server.live))
            server.policy.on_complete(over.request.id, 0.0)
            server.policy.on_arrival(over.request, 0.0, first=True)
            server.policy.on_idle(over.gpu, over.worker)
        elif step == "leave":
            server.policy.on_leave(server.count - rng.randrange(3))
        elif step == "end" and server.live:
            server.end()
        elif step == "settle":
            server.settle()
        elif step == "look":
            seen.append([request.id for request in server.policy.waiting()])
        seen.append((list(server.live), len(server.policy), *map(server.waiting, tenants)))
    return [*seen, server.placed, server.refused]


@pytest.mark.parametrize("queue", QUEUES)
def test_nobody_has_another_turn_for_want_of_a_queue(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that come when nobody waits stand in none as long as they find room."""
    stories = [story(queue, random.Random(seed)) for seed in range(150)]
    monkeypatch.setattr(turns, "FRESH_MOST", 0)
    for seed, told in enumerate(stories):
        assert told == story(queue, random.Random(seed)), seed
