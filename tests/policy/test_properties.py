"""Whatever happens to a server, in any order, its policy keeps the rules (world.py says which)."""

from __future__ import annotations

import contextlib
import math
import os
import random
from typing import Any

import pytest
from gpuferry.monitor.policy import (
    FITS,
    MOVERS,
    QUEUES,
    Decision,
    Gpu,
    Migrate,
    Place,
    Policy,
    Portion,
    Request,
    Scheduler,
    build,
)
from gpuferry.monitor.policy.fit import BEST
from gpuferry.monitor.policy.interface import Declined
from gpuferry.monitor.policy.least import Line
from gpuferry.monitor.policy.queues import Backfill, Fcfs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from .world import LIMIT, World

PORTIONS = st.builds(
    lambda request, affinity, anti, exclusion, scope: Portion(
        request, 1000, affinity, anti, exclusion, scope
    ),
    st.sampled_from([0, 0, 300, 400, 500, 1000]),
    st.sampled_from(["", "", "red", "blue"]),
    st.sampled_from(["", "", "noisy"]),
    st.sampled_from(["", "", "", "team"]),
    st.sampled_from(["", "", "acme"]),
)
LABELS = st.frozensets(st.sampled_from(["zone=a", "kind=x"]), max_size=2)


class ServerMachine(RuleBasedStateMachine):
    """Hypothesis plays the guests, the functions and bad luck."""

    world: World

    def __init__(self, fit: str, queue: str, migration: str) -> None:
        super().__init__()
        self.fit = fit
        self.queue = queue
        self.migration = migration

    @initialize(
        cards=st.lists(st.tuples(st.sampled_from([60, 80, 100]), LABELS), min_size=2, max_size=5),
        workers=st.integers(2, 4),
    )
    def start(self, cards: list[tuple[int, frozenset[str]]], workers: int) -> None:
        self.world = World(self.fit, self.queue, cards, workers, self.migration)

    @rule(memory=st.integers(1, 50))
    def arrive(self, memory: int) -> None:
        self.world.arrive(memory, 1, frozenset(), math.inf)

    @rule(
        memory=st.integers(0, 110),
        devices=st.sampled_from([1, 1, 2, 3]),
        labels=LABELS,
        patience=st.sampled_from([math.inf, 1.0]),
    )
    def arrive_with_wishes(self, memory: int, devices: int, labels: frozenset[str], patience: float) -> None:
        self.world.arrive(memory, devices, labels, patience)

    @rule(memory=st.integers(0, 50), portion=PORTIONS, devices=st.sampled_from([1, 1, 1, 2]))
    def arrive_with_a_portion(self, memory: int, portion: Portion, devices: int) -> None:
        devices = 1 if portion.affinity else devices
        if devices <= len(self.world.cards):
            self.world.arrive(memory, devices, frozenset(), math.inf, portion)

    @rule(data=st.data(), portion=PORTIONS)
    def crowd_of_a_kind(self, data: st.DataObject, portion: Portion) -> None:
        """Several with the same labels, so that one of them often stands in another's way."""
        for _ in range(3):
            request = data.draw(st.sampled_from([0, 200, 500]))
            self.world.arrive(5, 1, frozenset(), math.inf, portion._replace(request=request))
        self.world.why_each_waits()

    @rule(blocker=st.integers(50, 100), memory=st.integers(0, 2))
    def stream(self, blocker: int, memory: int) -> None:
        """One that may have to wait, and many that need hardly anything and go at once."""
        self.world.arrive(blocker, 1, frozenset(), math.inf)
        for _ in range(LIMIT + 5):
            before = set(self.world.live)
            self.world.arrive(memory, 1, frozenset(), math.inf)
            for session in sorted(set(self.world.live) - before):
                if self.world.live[session].request.memory == memory:
                    self.world.complete(session)

    @precondition(lambda self: self.world.live)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        self.world.complete(data.draw(st.sampled_from(sorted(self.world.live))))

    @precondition(lambda self: self.world.live)
    @rule(data=st.data())
    def lose_worker(self, data: st.DataObject) -> None:
        fresh = [session for session in sorted(self.world.live) if session not in self.world.moved]
        if fresh:
            self.world.lose_worker(data.draw(st.sampled_from(fresh)))

    @precondition(lambda self: self.world.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.world.leave(data.draw(st.sampled_from(self.world.waiting)))

    @rule(data=st.data())
    def imbalance(self, data: st.DataObject) -> None:
        """One GPU crowded, another empty."""
        self.world.now += 5.0  # any pause after the last migration is over
        for memory in (5, 5, 5, 5):
            self.world.arrive(memory, 1, frozenset(), math.inf)
        gpu = data.draw(st.sampled_from(sorted(self.world.cards)))
        for session in [session for session, gpus in self.world.on.items() if gpu in gpus]:
            self.world.complete(session)
        self.tick(data)

    @rule(data=st.data())
    def tick(self, data: st.DataObject) -> None:
        self.world.tick({gpu: data.draw(st.floats(0, 1)) for gpu in self.world.cards})
        if imbalance := self.world.policy.imbalance():
            crowd = [session for session, gpus in self.world.on.items() if imbalance[0] in gpus]
            self.world.launch(data.draw(st.sampled_from(sorted(crowd))))

    @precondition(lambda self: self.world.moving)
    @rule(data=st.data(), done=st.booleans())
    def arrive_moved(self, data: st.DataObject, done: bool) -> None:
        self.world.arrive_moved(data.draw(st.sampled_from(sorted(self.world.moving))), done)

    @precondition(lambda self: len(self.world.cards) > 1 and self.world.arrived > 20)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gpu = data.draw(st.sampled_from(sorted(self.world.cards)))
        self.world.remove(gpu)
        for session in [session for session, gpus in self.world.on.items() if gpu in gpus]:
            self.world.complete(session)

    def teardown(self) -> None:
        """Nobody starves: when everything that runs ends, and what follows, all were served."""
        if not hasattr(self, "world"):
            return
        while self.world.live:
            self.world.complete(min(self.world.live))
        assert not self.world.waiting
        assert all(not card.held and not card.here for card in self.world.cards.values())


EXAMPLES = 40 if os.environ.get("GPUFERRY_FUZZ") else 3  # of each of twenty policies


@pytest.mark.some(8)
@pytest.mark.parametrize("migration", sorted(MOVERS.keys() - {"off"}))
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("fit", FITS)
def test_the_rules_hold_whatever_happens(fit: str, queue: str, migration: str) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: ServerMachine(fit, queue, migration),
        settings=settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None),
    )


# -- what is remembered between decisions


class Forgetful(Scheduler):
    """Looks at everything again before each decision."""

    def next(self) -> Decision | None:
        self._other_gpus()
        return super().next()


def decided(policy: Scheduler, seed: int) -> list[Any]:
    """Sessions arrive, the oldest end, bytes are withheld, the first that can move does. What was decided."""
    chance = random.Random(seed)
    for gpu in range(4):
        policy.add_gpu(Gpu(gpu, 60 + gpu, frozenset({"zone=a"} if gpu % 2 else ())))
        for worker in range(6):
            policy.on_idle(gpu, 6 * gpu + worker)
    decisions: list[Any] = []
    live: list[Place] = []

    def settle(done: bool) -> None:
        while decision := policy.next():
            decisions.append(decision)
            if isinstance(decision, Place):
                live.append(decision)
            elif isinstance(decision, Migrate):
                policy.on_migrated(decision.session, done)

    for number in range(150):
        affinity = chance.choice(["", "", "", "red", "blue"])
        portion = Portion(
            chance.choice([0, 0, 300, 500]),
            1000,
            affinity,
            chance.choice(["", "", "", "noisy"]),
            chance.choice(["", "", "", "", "team"]),
        )
        devices = 1 if affinity else chance.choice([1, 1, 1, 2])
        memory, ending = chance.choice([chance.randrange(61), chance.randrange(8)]), chance.randrange(4)
        labels = frozenset({"zone=a"} if chance.random() < 0.2 else ())
        policy.on_arrival(Request(number, memory, "f", devices, labels, portion=portion), number)
        if ending == 3 and live:
            policy.withhold(number % 4, memory // 4)
            with contextlib.suppress(Declined):
                policy.request_migration(live[0].request.id, number % 4)
        for place in [live.pop(0) for _ in live[:ending]]:
            policy.on_complete(place.request.id, float(number))
            settle(done=True)  # what is idle again is idle later
            for seat in place.seats:
                policy.on_idle(seat.gpu, seat.worker)
        settle(memory % 2 == 0)
    return decisions


@pytest.mark.some(3)
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("fit", ["best-fit", "exclusive", "kubeshare"])
def test_what_is_remembered_changes_no_decision(fit: str, queue: str) -> None:
    for seed in range(5 * EXAMPLES):
        forgetful = Forgetful(QUEUES[queue], FITS[fit])
        assert decided(build(fit, queue), seed) == decided(forgetful, seed), seed


# -- determinism, and what the queues have in common

EVENTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=60)


def replay(policy: Scheduler, events: list[tuple[int, int]]) -> list[Any]:
    """Arrivals; before each, some of the oldest sessions end. Everything that was decided."""
    for gpu in range(3):
        policy.add_gpu(Gpu(gpu, 60))
        for worker in range(3):
            policy.on_idle(gpu, 3 * gpu + worker)
    decisions: list[Any] = []
    live: list[Place] = []

    def settle() -> None:
        while decision := policy.next():
            decisions.append(decision)
            if isinstance(decision, Place):
                live.append(decision)

    for number, (memory, ending) in enumerate(events):
        for place in live[:ending]:
            policy.on_complete(place.request.id, float(number))
            policy.on_idle(place.gpu, place.worker)
        del live[:ending]
        policy.on_arrival(Request(number, memory), float(number))
        settle()
    return decisions


@given(st.sampled_from(sorted(FITS)), st.sampled_from(sorted(QUEUES)), EVENTS)
def test_the_same_events_bring_the_same_decisions(
    fit: str, queue: str, events: list[tuple[int, int]]
) -> None:
    assert replay(build(fit, queue), events) == replay(build(fit, queue), events)


@given(EVENTS)
def test_backfill_with_no_overtaking_is_first_come_first_served(events: list[tuple[int, int]]) -> None:
    assert replay(Scheduler(lambda: Backfill(0), BEST), events) == replay(Scheduler(Fcfs, BEST), events)


def test_a_scheduler_is_a_policy() -> None:
    policy: Policy = build()
    assert policy.next() is None
    assert LIMIT == 25


# -- the line that finds the first small enough


OFFERS = st.lists(st.tuples(st.integers(-1, 60), st.integers(0, 6)), max_size=3).map(
    lambda pairs: sorted(pairs, reverse=True)
)


def timed(number: int, memory: int) -> Request:
    """Some ask for time, and now and then nobody does."""
    return Request(number, memory, portion=Portion(max(memory % 7 - 1, 0)))


@given(st.lists(st.one_of(st.integers(0, 50), st.just("remove"), st.just("prepend")), max_size=80), st.data())
def test_a_line_finds_what_a_search_finds(steps: list[Any], data: st.DataObject) -> None:
    line, reference = Line(), list[Request]()
    for number, step in enumerate(steps):
        if step == "remove" and reference:
            gone = data.draw(st.sampled_from(reference))
            reference.remove(gone)
            line.remove(gone.id)
        elif step == "prepend":
            reference.insert(0, timed(number, number))
            line.prepend(reference[0])
        elif isinstance(step, int):
            reference.append(timed(number, step))
            line.append(reference[-1])
        offers = data.draw(OFFERS)
        fitting = (
            one
            for one in reference
            if any(one.memory <= memory and one.portion.request <= time for memory, time in offers)
        )
        assert line.first(offers) == next(fitting, None)
        assert list(line) == reference
        assert len(line) == len(reference)
