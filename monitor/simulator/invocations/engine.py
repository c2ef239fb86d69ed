"""The simulation of invocations: time, replicas, GPUs that are shared, and the policy that decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import simpy

from ...policy.invocations import Bring, End, Invocation, Policy, Refuse, Run, Send, Start
from .result import Record, Result
from .workload import Calls, Profile

ALMOST = 1e-9  # seconds of work that rounding may leave


@dataclass(eq=False, slots=True)
class _Job:
    """An invocation from its Run on."""

    number: int
    profile: Profile
    replica: int
    left: float


@dataclass(eq=False, slots=True)
class _Gpu:
    """Who executes on a GPU, and when what left it has left."""

    jobs: list[_Job] = field(default_factory=list)
    since: float = 0.0  # when `left` of the jobs was right
    plan: int = 0
    clear: float = 0.0
    busy: float = 0.0  # seconds since the last tick
    homes: dict[str, int] = field(default_factory=dict)  # replicas that are resident

    @property
    def rate(self) -> float:
        """How fast each goes that executes here, against having it for itself."""
        return 1.0 / max(1.0, math.fsum(job.profile.share for job in self.jobs))


class Simulation:
    """One policy and one workload; `run` may be called once."""

    def __init__(self, policy: Policy, calls: Calls, *, watched: str | None = None) -> None:
        self._policy = policy
        self._calls = calls
        self._server = calls.server
        self._watched = watched  # a function whose copies are counted at each decision
        self._env = simpy.Environment()
        self._records: list[Record] = []
        self._result = Result(self._records, self._server.gpus)
        self._open = 0
        self._ids = count()
        self._replica_ids = count()
        self._gpus = [_Gpu() for _ in range(self._server.gpus)]
        self._place: dict[int, int | None] = {}  # where each replica is resident
        self._name: dict[int, str] = {}
        self._ready: dict[int, float] = {}  # when it is there, of those that are on their way
        for profile in calls.profiles.values():
            policy.on_function(profile.function, 0.0)
        for gpu in range(self._server.gpus):
            policy.on_gpu(gpu, self._server.memory, 0.0)

    def run(self) -> Result:
        """Run everything to its end, in simulated time."""
        for moment, function in self._calls.arrivals:
            self._at(moment, partial(self._arrive, function))
        for function, calls in self._calls.closed.items():
            for _ in range(calls):
                self._at(0.0, partial(self._arrive, function))
        self._at(self._server.tick, self._tick)
        self._env.run()
        self._result.ended = max((one.finished for one in self._result.done()), default=0.0)
        return self._result

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        event = self._env.timeout(max(0.0, moment - self._env.now))
        assert event.callbacks is not None
        event.callbacks.append(lambda _: act())

    # -- what happens

    def _arrive(self, function: str) -> None:
        number = next(self._ids)
        self._open += 1
        now = self._env.now
        self._records.append(Record(function, now))
        self._policy.on_arrival(Invocation(number, function, now), now)
        self._decide()

    def _tick(self) -> None:
        used = {}
        for number, gpu in enumerate(self._gpus):
            self._account(gpu)
            used[number] = min(1.0, gpu.busy / self._server.tick)
            gpu.busy = 0.0
        self._policy.on_tick(self._env.now, used)
        self._decide()
        if self._open or self._env.peek() < math.inf:
            self._at(self._env.now + self._server.tick, self._tick)

    def _decide(self) -> None:
        while decision := self._policy.next():
            if isinstance(decision, Run):
                self._start(decision)
            elif isinstance(decision, Refuse):
                self._records[decision.invocation.id].refused = decision.reason
                self._open -= 1
            elif isinstance(decision, Bring):
                self._move(decision.replica, decision.gpu)
                self._ready[decision.replica] = self._env.now + self._back(decision.function)
            elif isinstance(decision, Send):
                gpu = self._gpus[decision.gpu]
                self._move(decision.replica, None)
                memory = self._calls.profiles[decision.function].function.memory
                gpu.clear = max(gpu.clear, self._env.now) + memory / self._server.write_back
            elif isinstance(decision, End):
                self._move(decision.replica, None)
                del self._place[decision.replica], self._name[decision.replica]

    def _start(self, run: Run) -> None:
        number, now = run.invocation.id, self._env.now
        record = self._records[number]
        profile = self._calls.profiles[record.function]
        record.decided, record.gpu, record.start = now, run.gpu, run.start
        replica = next(self._replica_ids) if run.replica is None else run.replica
        gpu = self._gpus[run.gpu]
        elsewhere = any(record.function in one.homes for one in self._gpus if one is not gpu)
        record.false_miss = run.start is not Start.WARM and elsewhere
        if run.start is Start.WARM:
            ready = self._ready.pop(replica, now)
        else:
            self._ready.pop(replica, None)
            delay = profile.cold if run.start is Start.COLD else self._back(record.function)
            ready = max(now, gpu.clear) + delay
            self._name[replica] = record.function
            self._move(replica, run.gpu)
        if self._watched:
            copies = sum(self._watched in one.homes for one in self._gpus)
            self._result.copies.setdefault(self._watched, []).append(copies)
        job = _Job(number, profile, replica, profile.run)
        self._at(ready, lambda: self._begin(gpu, job))

    def _back(self, function: str) -> float:
        profile = self._calls.profiles[function]
        if profile.back is not None:
            return profile.back
        return profile.function.memory / self._server.bandwidth

    def _move(self, replica: int, gpu: int | None) -> None:
        old, name = self._place.get(replica), self._name[replica]
        if old is not None:
            homes = self._gpus[old].homes
            homes[name] -= 1
            if not homes[name]:
                del homes[name]
        self._place[replica] = gpu
        if gpu is not None:
            homes = self._gpus[gpu].homes
            homes[name] = homes.get(name, 0) + 1

    # -- execution

    def _begin(self, gpu: _Gpu, job: _Job) -> None:
        now = self._env.now
        self._records[job.number].began = now
        self._account(gpu)
        gpu.jobs.append(job)
        self._replan(gpu)
        self._policy.on_begin(job.number, now, job.replica)
        self._decide()

    def _account(self, gpu: _Gpu) -> None:
        elapsed, gpu.since = self._env.now - gpu.since, self._env.now
        if not gpu.jobs:
            return
        rate = gpu.rate
        gpu.busy += elapsed * min(1.0, math.fsum(job.profile.share for job in gpu.jobs))
        for job in gpu.jobs:
            job.left -= elapsed * rate

    def _replan(self, gpu: _Gpu) -> None:
        gpu.plan += 1
        if gpu.jobs:
            plan = gpu.plan
            soonest = max(0.0, min(job.left for job in gpu.jobs)) / gpu.rate
            self._at(self._env.now + soonest, lambda: self._progress(gpu, plan))

    def _progress(self, gpu: _Gpu, plan: int) -> None:
        if plan != gpu.plan:
            return
        self._account(gpu)
        over = [job for job in gpu.jobs if job.left <= ALMOST]
        gpu.jobs = [job for job in gpu.jobs if job.left > ALMOST]
        self._replan(gpu)
        now = self._env.now
        for job in over:
            self._open -= 1
            record = self._records[job.number]
            record.finished = now
            self._policy.on_complete(job.number, now)
            if self._calls.closed.get(record.function) and now < self._calls.until:
                self._arrive(record.function)
        self._decide()
