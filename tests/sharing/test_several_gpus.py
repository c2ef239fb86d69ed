"""Sessions of several GPUs among those of one, all of them always busy, with a clock of the test's own."""

from __future__ import annotations

import pytest
from gpuferry.monitor.arbiter.words import Word
from gpuferry.monitor.policy.tokens import RoundRobin
from hypothesis import given
from hypothesis import strategies as st

from .test_arbiter import QUOTA, House
from .world import MS, S


class Crowd:
    """Sessions that always have work, by key: their GPUs, and how far their kernels go beyond a quota."""

    def __init__(self, house: House, sessions: dict[int, tuple[tuple[int, ...], int]]) -> None:
        self.house, self.sessions, self.now = house, sessions, 0
        self.works: dict[int, int] = {}  # since when they work
        self.worked = dict.fromkeys(sessions, 0)
        self.ends: dict[int, int] = {}  # when the device of one that was told to stop is at rest
        self.asked: dict[int, int] = {}
        self.longest = 0  # nanoseconds that somebody waited
        for key, (devices, _) in sessions.items():
            house.add(key, devices=devices)
        for key in sessions:
            self.ask(key)

    def ask(self, key: int) -> None:
        self.asked[key] = self.now
        self.house.ask(key, self.now)

    def end(self, key: int) -> None:
        self.worked[key] += self.now - self.works.pop(key)
        self.ends.pop(key, None)

    def listen(self) -> None:
        for key, (_, overrun) in self.sessions.items():
            for word in self.house.words(key):
                if word is Word.GO:
                    self.longest = max(self.longest, self.now - self.asked.pop(key))
                    self.works[key] = self.now
                elif word is Word.STOP:
                    self.ends[key] = self.now + overrun
                elif word is Word.TAKEN:
                    self.end(key)
                    self.house.say(key, Word.REST, self.now)
                    self.ask(key)

    def run(self, until: int) -> None:
        while True:
            self.listen()
            at = min([*self.ends.values(), self.house.gpus.deadline() or until])
            if at >= until:
                break
            self.now = max(self.now, at)
            for key in [key for key, end in self.ends.items() if end <= self.now]:
                self.end(key)
                self.house.say(key, Word.BACK, self.now)
                self.ask(key)
            self.house.gpus.tick(self.now)
        self.now = until
        for key in list(self.works):
            self.end(key)
        waits = (until - since for since in self.asked.values())
        self.longest = max(self.longest, *waits, 0)

    def share(self, key: int) -> float:
        return self.worked[key] / self.now


PAIR, ZERO, ONE, TWO, THREE = 1, 2, 3, 4, 5


@pytest.mark.parametrize("robin", [False, True])
def test_a_gpu_is_not_kept_idle_for_another_ones_turn(robin: bool) -> None:
    """Three take turns on GPU 1, so that one of both GPUs waits for long; who has the rest of GPU 0 works."""
    both, one = ((0, 1), 0), ((1,), 0)
    house = House((lambda: RoundRobin(10 * S, QUOTA, 0)) if robin else None)
    crowd = Crowd(house, {PAIR: both, ZERO: ((0,), 0), ONE: one, TWO: one, THREE: one})
    crowd.run(120 * S)
    assert crowd.share(PAIR) + crowd.share(ZERO) >= 0.98
    assert crowd.share(PAIR) >= 0.12  # it waits for GPU 0 with the turn of GPU 1, and is charged for that


def test_who_gave_its_turns_up_often_keeps_them() -> None:
    """Turns of both GPUs end seldom at nearly the same time."""
    crowd = Crowd(House(), {PAIR: ((0, 1), 0), ZERO: ((0,), 400 * MS), ONE: ((1,), 450 * MS)})
    crowd.run(60 * S)
    assert crowd.longest <= 4 * S
    assert min(crowd.share(key) for key in crowd.sessions) >= 0.25


def test_turns_that_nobody_else_wants_are_kept() -> None:
    house = House()
    house.add(PAIR, devices=(0, 1))
    house.add(ONE, devices=(1,))
    house.ask(ONE, 0)
    house.ask(PAIR, 1)
    house.gpus.tick(2 * QUOTA)
    assert house.use(PAIR, 2 * QUOTA, device=0).holds
    house.add(ZERO)
    house.ask(ZERO, 2 * QUOTA + 1)
    assert house.words(ZERO) == []
    now = house.gpus.deadline() or 0
    house.gpus.tick(now)
    while house.words(ZERO) != [Word.GO]:
        now = house.gpus.deadline() or 0
        assert 0 < now <= 4 * QUOTA
        house.gpus.tick(now)
    house.say(ONE, Word.BACK, now)  # what it lacked: it waited on for that
    assert house.use(PAIR, now, device=1).holds
    house.say(ZERO, Word.BACK, now)
    assert house.words(PAIR) == [Word.GO]


def test_who_gave_its_turns_up_and_is_gone_leaves_nothing() -> None:
    for ending in ("remove", "free"):
        house = House()
        house.add(PAIR, devices=(0, 1))
        house.add(ZERO)
        house.add(ONE, devices=(1,))
        for key in (ONE, PAIR, ZERO):
            house.ask(key, key)
        house.gpus.tick(3 * QUOTA // 2 + PAIR)
        assert house.words(ZERO) == [Word.GO]
        getattr(house.gpus, ending)(PAIR, 2 * QUOTA)
        house.say(ONE, Word.BACK, 2 * QUOTA)
        house.say(ZERO, Word.BACK, 2 * QUOTA)
        assert house.words(PAIR) == []
        assert house.gpus.deadline() is None


@given(
    st.lists(
        st.tuples(st.permutations([0, 1, 2]), st.integers(1, 3), st.integers(0, 600 * MS)),
        min_size=1,
        max_size=7,
    ),
    st.booleans(),
)
@pytest.mark.slow
def test_nobody_starves_whichever_gpus_they_want(
    wanted: list[tuple[list[int], int, int]], robin: bool
) -> None:
    sessions = {
        key: (tuple(gpus[:count]), overrun) for key, (gpus, count, overrun) in enumerate(wanted, start=1)
    }
    crowd = Crowd(House((lambda: RoundRobin(10 * S, QUOTA, 0)) if robin else None), sessions)
    crowd.run(60 * S)
    assert crowd.longest <= 30 * S
