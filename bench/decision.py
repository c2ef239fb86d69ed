"""What a scheduling decision costs with a long queue and many GPUs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count
from operator import attrgetter
from statistics import quantiles
from time import perf_counter

from gpuferry.monitor.policy import FITS, PLAIN, Gpu, Place, Portion, Request, Scheduler, build

from .rows import Row, cost

GIB = 1 << 30
GPUS, WORKERS, WAITING, EVENTS = 64, 8, 10_000, 2_000
ZONES = (frozenset[str](), frozenset({"zone=a"}), frozenset({"zone=b"}))
QUEUES = ("fcfs", "backfill")
PORTIONS = (
    Portion(1),
    Portion(1),
    Portion(1, affinity="red"),
    Portion(1, anti_affinity="noisy"),
    Portion(1, exclusion="team"),
    Portion(1, affinity="blue", anti_affinity="loud"),
)
ROUNDS = (
    5  # the same events: the least of each counts, for the machine is shared, and what disturbs only adds
)


def rows() -> list[Row]:
    """Rows of the 99th percentile of a decision, of the slowest of all fits; an event counts with the
    decision that it brings.
    """
    floor = min(scan() for _ in range(ROUNDS)) * 1e6
    fcfs, backfill = (max(best(fit, queue) for fit in FITS) * 1e6 for queue in QUEUES)
    shared = max(best("kubeshare", queue, PORTIONS) for queue in QUEUES) * 1e6
    return [
        cost("decision_fcfs", fcfs, floor, "µs"),
        cost("decision_backfill", backfill, floor, "µs"),
        cost("decision_kubeshare", shared, floor, "µs"),
    ]


def best(fit: str, queue: str, portions: Sequence[Portion] = (PLAIN,)) -> float:
    """Return the 99th percentile of a decision in seconds, each the fastest of ROUNDS."""
    rounds = [decisions(build(fit, queue, "dgsf"), portions) for _ in range(ROUNDS)]
    return float(quantiles([min(same) for same in zip(*rounds, strict=True)], n=100)[98])


def scan() -> float:
    """Seconds to find the roomiest of the GPUs once: the floor."""
    gpus = [Gpu(index, index * GIB) for index in range(GPUS)]
    began = perf_counter()
    for _ in range(1000):
        max(gpus, key=attrgetter("free"))
    return (perf_counter() - began) / 1000


def decisions(policy: Scheduler, portions: Sequence[Portion] = (PLAIN,)) -> Iterator[float]:
    """Seconds of each decision. Sessions end and requests arrive, so that the
    queue keeps its length. Each request has one of these portions; of those, whoever asks for time asks for
    any.
    """
    chance = random.Random(0)
    numbers = count()
    for index in range(GPUS):
        policy.add_gpu(Gpu(index, 80 * GIB, ZONES[index % len(ZONES)]))
        for worker in range(WORKERS):
            policy.on_idle(index, index * WORKERS + worker)

    def request() -> Request:
        size = chance.randrange(1, 40 * GIB)
        portion = chance.choice(portions)
        if portion.request:
            portion = portion._replace(request=chance.randrange(1, 1001))
        zone = chance.choice(ZONES) if portion is PLAIN else ZONES[0]
        return Request(next(numbers), size, labels=zone, deadline=1e9, portion=portion)

    live: list[Place] = []
    while len(policy) < WAITING:
        policy.on_arrival(request(), 0.0)
        live += placed(policy)
    for _ in range(EVENTS):
        ending = live.pop(chance.randrange(len(live)))
        began = perf_counter()
        policy.on_complete(ending.request.id, 1.0)
        policy.on_idle(ending.gpu, ending.worker)
        decision = policy.next()
        yield perf_counter() - began
        live += placed(policy, decision)
        while len(policy) < WAITING:
            arriving = request()
            began = perf_counter()
            policy.on_arrival(arriving, 1.0)
            decision = policy.next()
            yield perf_counter() - began
            live += placed(policy, decision)


def placed(policy: Scheduler, decision: object = None) -> Iterator[Place]:
    """Take this decision and those that follow, as far as they place someone."""
    decision = decision or policy.next()
    while decision:
        if isinstance(decision, Place):
            yield decision
        decision = policy.next()
