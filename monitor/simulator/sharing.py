"""Jobs that each use a part of a GPU, under a policy: who shares, who waits, how many GPUs are active. Jobs
have nothing but time, so there is one event for each that comes or ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from ..policy.gpu import Gpu
from ..policy.interface import Place, Policy, Request
from ..policy.portion import Portion

Slowdown = Callable[[Sequence[str]], float]


@dataclass(frozen=True)
class Share:
    """One job: when it comes (seconds), how long it takes where nothing slows it down, and its portion."""

    arrival: float
    seconds: float
    portion: Portion
    kind: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of the jobs. Seconds."""

    finished: Sequence[float]  # when each ended, in the order of the ends
    active: Sequence[tuple[float, int]]  # from when on so many GPUs had a job

    @property
    def per_minute(self) -> float:
        """Jobs in a minute, over all the time until the last ended."""
        return 60 * len(self.finished) / self.finished[-1] if self.finished else 0.0

    def active_between(self, begin: float, end: float) -> float:
        """How many GPUs had a job, on average over this time."""
        area = 0.0
        later = [*self.active[1:], (end, 0)]
        for (since, gpus), (until, _) in zip(self.active, later, strict=True):
            area += gpus * max(0.0, min(until, end) - max(since, begin))
        return area / (end - begin)


@dataclass
class _Running:
    job: Share
    place: Place
    left: float  # seconds, where nothing slows it down
    since: float
    rate: float = 1.0
    edition: int = 0


@dataclass
class SharedGpus:
    """GPUs of one kind, a policy, and jobs; `run` may be called once. `slowdown`: of each job on a GPU, by
    the kinds of all that are there.
    """

    policy: Policy
    gpus: int
    workers: int
    slowdown: Slowdown = lambda kinds: 1.0
    _events: list[tuple[float, int, int, int]] = field(default_factory=list)
    _count: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._on: list[set[int]] = [set() for _ in range(self.gpus)]
        self._running: dict[int, _Running] = {}
        self._finished: list[float] = []
        self._active: list[tuple[float, int]] = [(0.0, 0)]
        for index in range(self.gpus):
            self.policy.add_gpu(Gpu(index, 1))
            for worker in range(self.workers):
                self.policy.on_idle(index, index * self.workers + worker)

    def run(self, jobs: Sequence[Share]) -> Outcome:
        """All jobs to their end."""
        for number, job in enumerate(jobs):
            heapq.heappush(self._events, (job.arrival, next(self._count), number, -1))
        while self._events:
            now, _, number, edition = heapq.heappop(self._events)
            if edition < 0:
                self.policy.on_arrival(Request(number, 0, portion=jobs[number].portion, arrival=now), now)
            elif number not in self._running or self._running[number].edition != edition:
                continue  # something changed meanwhile, and it ends at another time
            else:
                self._end(number, now)
            while decision := self.policy.next():
                assert isinstance(decision, Place), decision
                self._begin(jobs[decision.request.id], decision, now)
            active = sum(map(bool, self._on))
            if active != self._active[-1][1]:
                self._active.append((now, active))
        assert not len(self.policy), "somebody was never placed"
        return Outcome(self._finished, self._active)

    def _begin(self, job: Share, place: Place, now: float) -> None:
        number = place.request.id
        self._running[number] = _Running(job, place, job.seconds, now)
        self._on[place.gpu].add(number)
        self._replan(place.gpu, now)

    def _end(self, number: int, now: float) -> None:
        place = self._running.pop(number).place
        self._on[place.gpu].remove(number)
        self._finished.append(now)
        self.policy.on_complete(number, now)
        self.policy.on_idle(place.gpu, place.worker)
        self._replan(place.gpu, now)

    def _replan(self, gpu: int, now: float) -> None:
        """When those on a GPU end, now that somebody came or went."""
        here = sorted(self._on[gpu])
        rate = 1.0 / self.slowdown([self._running[number].job.kind for number in here])
        for number in here:
            one = self._running[number]
            one.left -= (now - one.since) * one.rate
            one.since, one.rate = now, rate
            one.edition += 1
            end = now + max(one.left, 0.0) / rate
            heapq.heappush(self._events, (end, next(self._count), number, one.edition))
