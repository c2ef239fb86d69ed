"""The simulation itself: time, functions that share GPUs, and the policy that places them."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field

import simpy

from ..policy.gpu import Gpu
from ..policy.interface import Migrate, Place, Policy, Refuse, Request, Seat
from .result import Record, Result, Sample
from .workload import Job, Server, Workload

ALMOST = 1e-6  # seconds of work that rounding may leave
Events = Generator[simpy.Event, None, None]


@dataclass(eq=False)
class _Session:
    """A job that has GPUs, and how much of it is left."""

    job: Job
    place: Place
    gpus: list[int]
    left: float
    since: float
    moving: bool = False
    rate: float = 0.0


@dataclass
class Simulation:
    """One policy, one server, one workload; `run` may be called once."""

    policy: Policy
    workload: Workload
    server: Server
    max_wait: float = math.inf
    _env: simpy.Environment = field(default_factory=simpy.Environment)

    def __post_init__(self) -> None:
        self._records = [Record(job) for job in self.workload.jobs]
        self._running: dict[int, _Session] = {}
        self._load = [
            0.0
        ] * self.server.gpus  # of each: what its sessions would use if each had it for itself
        self._used = [0.0] * self.server.gpus  # seconds of full utilisation since the last tick
        self._samples: list[Sample] = []
        self._accounted = 0.0
        self._plan = 0
        self._waiting = 0
        self._open = len(self._records)
        self._over = self._env.event()
        for gpu in range(self.server.gpus):
            self.policy.add_gpu(Gpu(gpu, self.server.memory))
            for worker in range(self.server.workers):
                self.policy.on_idle(gpu, gpu * self.server.workers + worker)

    def run(self) -> Result:
        """Run all jobs to their end, in simulated time."""
        if self._records:
            self._env.process(self._launches())
            self._env.process(self._ticks())
            self._env.run(until=self._over)
            self._sample()
        return Result(self._records, self._samples)

    # -- what happens by itself

    def _launches(self) -> Events:
        by_launch = sorted(range(len(self._records)), key=lambda number: self._records[number].job.launch)
        for number in by_launch:
            yield self._env.timeout(max(0.0, self._records[number].job.launch - self._env.now))
            self._env.process(self._ask(number))

    def _ask(self, number: int) -> Events:
        record = self._records[number]
        job = record.job
        yield self._env.timeout(job.before)
        record.asked = now = self._env.now
        self._waiting += 1
        self.policy.on_arrival(
            Request(number, job.memory, job.function, job.devices, job.labels, now, now + self.max_wait), now
        )
        self._decide()

    def _ticks(self) -> Events:
        while True:
            yield self._env.timeout(self.server.tick)
            utilisation = self._sample()
            self.policy.on_tick(self._env.now, dict(enumerate(utilisation)))
            self._decide()
            if imbalance := self.policy.imbalance():
                for number, session in self._running.items():
                    if session.gpus == [imbalance[0]]:
                        self._env.process(self._launch_kernel(number, session))

    def _launch_kernel(self, number: int, session: _Session) -> Events:
        """Its next launch, at a whole number of gaps after its start."""
        gap = self.server.launch_gap
        yield self._env.timeout(gap - (self._env.now - session.since) % gap)
        if number in self._running:
            self.policy.on_launch(number, self._env.now)
            self._decide()

    def _move(self, number: int, move: Migrate) -> Events:
        session = self._running[number]
        session.moving, session.gpus = True, [move.target]
        self._replan()
        content = session.job.memory if session.job.content is None else session.job.content
        pause = content / self.server.bandwidth
        yield self._env.timeout(pause)
        self._account()
        session.moving = False
        self._replan()
        self.policy.on_migrated(number, done=True, seconds=pause)
        (left,) = session.place.seats
        session.place = Place(session.place.request, (Seat(move.target, move.worker),))
        self.policy.on_idle(left.gpu, left.worker)
        self._decide()

    # -- decisions

    def _decide(self) -> None:
        """Carries out whatever the policy decided."""
        while decision := self.policy.next():
            if isinstance(decision, Migrate):
                self._account()
                self._records[decision.session].migrations += 1
                self._env.process(self._move(decision.session, decision))
            elif isinstance(decision, Refuse):
                self._waiting -= 1
                self._records[decision.request.id].refused = decision.reason
                self._close()
            else:
                self._waiting -= 1
                self._start(decision)

    def _start(self, place: Place) -> None:
        number, now = place.request.id, self._env.now
        record = self._records[number]
        record.started, record.gpu = now, place.gpu
        self._account()
        gpus = [seat.gpu for seat in place.seats]
        self._running[number] = _Session(record.job, place, gpus, record.job.work, now)
        self._replan()

    def _finish(self, number: int) -> None:
        session = self._running.pop(number)
        self._records[number].finished = self._env.now
        self.policy.on_complete(number, self._env.now)
        for seat in session.place.seats:
            self.policy.on_idle(seat.gpu, seat.worker)
        self._close()

    def _close(self) -> None:
        self._open -= 1
        if not self._open:
            self._over.succeed()

    # -- progress

    def _account(self) -> None:
        """Enters what was done since the last time; to be called before anything changes."""
        elapsed = self._env.now - self._accounted
        self._accounted = self._env.now
        for session in self._running.values():
            session.left -= elapsed * session.rate
        for gpu, load in enumerate(self._load):
            self._used[gpu] += elapsed * self.server.intensity * min(1.0, load)

    def _rate(self, gpu: int) -> float:
        """How fast each goes that is there, against having it for itself."""
        return 1.0 / max(1.0, self._load[gpu])

    def _replan(self) -> None:
        """Works out how fast each goes now, and waits for the first that will be done."""
        self._load = [0.0] * self.server.gpus
        active = [session for session in self._running.values() if not session.moving]
        for session in active:
            for gpu in session.gpus:
                self._load[gpu] += session.job.load
        for session in self._running.values():
            session.rate = 0.0 if session.moving else min(self._rate(gpu) for gpu in session.gpus)
        self._plan += 1
        if active:
            soonest = min(max(0.0, session.left) / session.rate for session in active)
            self._env.process(self._reap(soonest, self._plan))

    def _reap(self, delay: float, plan: int) -> Events:
        yield self._env.timeout(delay)
        if plan != self._plan:
            return  # something changed meanwhile, and another one waits
        self._account()
        for number, session in list(self._running.items()):
            if session.left <= ALMOST and not session.moving:
                self._finish(number)
        self._replan()
        self._decide()

    def _sample(self) -> list[float]:
        """Each GPU's utilisation since the last one."""
        self._account()
        last = self._samples[-1].time if self._samples else 0.0
        span = self._env.now - last
        utilisation = [used / span if span else 0.0 for used in self._used]
        self._used = [0.0] * self.server.gpus
        if span:
            self._samples.append(Sample(self._env.now, utilisation, self._waiting))
        return utilisation
