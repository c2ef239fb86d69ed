"""What came of a simulation of invocations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, pvariance
from typing import Any

from ...policy.invocations import Start


@dataclass(slots=True)
class Record:
    """What became of one invocation. Seconds from the start of the simulation."""

    function: str
    arrived: float
    decided: float = math.nan
    began: float = math.nan
    finished: float = math.nan
    gpu: int = -1
    start: Start = Start.WARM
    false_miss: bool = False  # not warm, though a replica was resident on another GPU
    refused: str = ""

    @property
    def latency(self) -> float:
        """Seconds from arrival to the answer."""
        return self.finished - self.arrived


@dataclass(frozen=True)
class Summary:
    """The numbers of one run: seconds, and ratios from 0 to 1."""

    invocations: int
    refused: int
    mean: float  # of latencies, as the next ones
    p50: float
    p90: float
    p99: float
    variance: float
    between: float  # variance of the functions' mean latencies
    miss: float  # not warm, of all
    cold: float  # a replica was started, of all
    false_miss: float  # of all misses
    throughput: float  # answers a second
    utilisation: float  # time that GPUs executed

    def as_json(self) -> dict[str, Any]:
        """Return the numbers by name, as `--json` prints them."""
        return asdict(self)


@dataclass
class Result:
    """All that a simulation recorded."""

    records: list[Record]
    gpus: int
    ended: float = 0.0
    copies: dict[str, list[int]] = field(default_factory=dict)  # GPUs with the function, at each decision

    def done(self) -> list[Record]:
        """Records of the invocations that were answered."""
        return [record for record in self.records if not math.isnan(record.finished)]

    def latencies(self) -> list[float]:
        """The latencies in seconds of all answered invocations, ascending."""
        return sorted(record.latency for record in self.done())

    def by_function(self) -> dict[str, list[Record]]:
        """Return the records of answered invocations by function."""
        found: dict[str, list[Record]] = {}
        for record in self.done():
            found.setdefault(record.function, []).append(record)
        return found

    def summary(self) -> Summary:
        """The run in a few numbers."""
        done = self.done()
        latencies = sorted(record.latency for record in done)
        missed = [record for record in done if record.start is not Start.WARM]
        means = [fmean(one.latency for one in records) for records in self.by_function().values()]
        span = self.ended or 1.0
        return Summary(
            invocations=len(self.records),
            refused=sum(bool(record.refused) for record in self.records),
            mean=fmean(latencies) if latencies else 0.0,
            p50=quantile(latencies, 0.5),
            p90=quantile(latencies, 0.9),
            p99=quantile(latencies, 0.99),
            variance=pvariance(latencies) if latencies else 0.0,
            between=pvariance(means) if means else 0.0,
            miss=len(missed) / (len(done) or 1),
            cold=sum(record.start is Start.COLD for record in done) / (len(done) or 1),
            false_miss=sum(record.false_miss for record in missed) / (len(missed) or 1),
            throughput=len(done) / span,
            utilisation=math.fsum(record.finished - record.began for record in done) / (span * self.gpus),
        )

    def service(self, function: str, since: float, until: float) -> float:
        """Seconds of execution that the function had in this interval."""
        return math.fsum(
            max(0.0, min(record.finished, until) - max(record.began, since))
            for record in self.by_function().get(function, ())
        )

    def spans(self) -> Iterator[tuple[int, float, float, float, str]]:
        """(GPU, decided, began, finished, function) of all that was answered: the timeline."""
        for record in self.done():
            yield record.gpu, record.decided, record.began, record.finished, record.function


def quantile(ascending: Sequence[float], part: float) -> float:
    """The least value that so large a part of them does not exceed."""
    return ascending[max(0, math.ceil(part * len(ascending)) - 1)] if ascending else 0.0
