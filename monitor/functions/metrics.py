"""Figures of functions, in Prometheus' terms."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric

from .fleet import Function
from .invocation import Code
from .job import Job
from .memory import Where
from .replica import Replica

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RESULTS = ("ok", *(code.value for code in Code))
NEWS_SECONDS = 1.0  # that the GPU server takes at most to say where a replica's first memory is
STATES = ("starting", "idle", "busy", "ending")


@dataclass
class Spent:
    """Seconds of a function's invocations."""

    run: float = 0.0  # on a replica
    gpu: float = 0.0  # of those: on one that has memory on a GPU


class Untold(NamedTuple):
    """An invocation that ended before it was known whether its replica has memory on a GPU."""

    program: bytes
    function: Function
    seconds: float
    ended: float


class Metrics:
    """Counts what happens to invocations; shows it with what there is at the moment."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._functions: Callable[[], Iterable[Function]] = tuple
        self._where: Callable[[Replica], Where | None] = lambda _: None
        self._gpus_of: dict[int, tuple[int, ...]] = {}  # of an invocation, when it began
        self._untold = deque[Untold]()  # oldest first
        self._gpus: set[int] = set()  # of which there are series
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._results = Counter(
            "gpuferry_function_invocations",
            "Invocations that are over, by how they ended",
            ("function", "result"),
            registry=self._registry,
        )
        self._starts = Counter(
            "gpuferry_function_starts",
            "Invocations that reached a replica: one that was there, or one that was started for them",
            ("function", "kind"),
            registry=self._registry,
        )
        self._run = Histogram(
            "gpuferry_function_run_seconds",
            "From the hand-over to a replica to its answer",
            ("function",),
            registry=self._registry,
            buckets=BUCKETS,
        )
        self._wait = Histogram(
            "gpuferry_function_wait_seconds",
            "From the arrival to the hand-over to a replica",
            ("function",),
            registry=self._registry,
            buckets=BUCKETS,
        )
        self._held = Counter(
            "gpuferry_function_gpu_seconds",
            "Time for which invocations ran on replicas with memory on this GPU",
            ("function", "gpu"),
            registry=self._registry,
        )
        self.tallies: dict[str, Tally[str]] = {}
        self.spent: dict[str, Spent] = {}

    def show(
        self, functions: Callable[[], Iterable[Function]], where: Callable[[Replica], Where | None]
    ) -> None:
        """Show what these functions have at the moment, too. `where`: the memory of a replica is."""
        self._functions = functions
        self._where = where

    def begun(self, job: Job) -> None:
        """An invocation is on its way to a replica."""
        if job.function.removed:  # its series are gone
            return
        name, kind = job.function.name, "cold" if job.cold else "warm"
        self._starts.labels(name, kind).inc()
        self._wait.labels(name).observe(job.began - job.arrived)
        self._tally(name)[kind] += 1
        if job.place and (where := self._where(job.place.unit.replica)):
            self._gpus_of[job.number] = where.gpus

    def ended(self, job: Job, result: str, seconds: float) -> None:
        """An invocation is over."""
        gpus = self._gpus_of.pop(job.number, ())
        if job.function.removed:
            return
        name = job.function.name
        self._results.labels(name, result).inc()
        self._tally(name)["ok" if result == "ok" else "failed"] += 1
        if seconds:
            self._run.labels(name).observe(seconds)
            spent = self.spent.setdefault(name, Spent())
            spent.run += seconds
            # Its memory may have come during its first one, and is gone where that ended its replica.
            if job.place and (where := self._where(job.place.unit.replica)):
                gpus = where.gpus
            elif job.place and not gpus and (program := job.place.unit.replica.program):
                self._untold.append(Untold(program, job.function, seconds, time.monotonic()))
            self._hold(name, gpus, seconds)
        self._drop_old()

    def _hold(self, name: str, gpus: Collection[int], seconds: float) -> None:
        for gpu in gpus:
            self._gpus.add(gpu)
            self._held.labels(name, str(gpu)).inc(seconds)
            self.spent[name].gpu += seconds

    def _drop_old(self) -> None:
        while self._untold and self._untold[0].ended < time.monotonic() - NEWS_SECONDS:
            self._untold.popleft()

    def placed(self, program: bytes, where: Where) -> None:
        """A replica's memory is there: what it just did, did it there."""
        self._drop_old()
        for one in [one for one in self._untold if one.program == program]:
            self._untold.remove(one)
            if not one.function.removed:
                self._hold(one.function.name, where.gpus, one.seconds)

    def refused(self, function: Function, code: Code) -> None:
        """An invocation was not accepted."""
        if function.removed:
            return
        name = function.name
        self._results.labels(name, code.value).inc()
        self._tally(name)["failed"] += 1

    def _tally(self, name: str) -> Tally[str]:
        return self.tallies.setdefault(name, Tally())

    def forget(self, name: str) -> None:
        """A function is gone: so are its series."""
        self.tallies.pop(name, None)
        self.spent.pop(name, None)
        for gpu in self._gpus:
            _remove(self._held, name, str(gpu))
        for result in RESULTS:
            _remove(self._results, name, result)
        for kind in ("cold", "warm"):
            _remove(self._starts, name, kind)
        for histogram in (self._run, self._wait):
            _remove(histogram, name)

    def expose(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What there is at the moment, when Prometheus' library asks."""
        waiting = GaugeMetricFamily(
            "gpuferry_function_waiting", "Invocations that wait for a replica", labels=("function",)
        )
        running = GaugeMetricFamily(
            "gpuferry_function_running", "Invocations on a replica", labels=("function",)
        )
        replicas = GaugeMetricFamily(
            "gpuferry_function_replicas", "Processes of a function", labels=("function", "state")
        )
        for function in self._functions():
            waiting.add_metric((function.name,), function.waiting)
            running.add_metric((function.name,), function.running)
            states = Tally(unit.state for unit in function.units)
            for state in STATES:
                replicas.add_metric((function.name, state), states[state])
        yield from (waiting, running, replicas)


def _remove(metric: Counter | Histogram, *labels: str) -> None:
    try:
        metric.remove(*labels)
    except KeyError:  # nothing was counted
        return
