"""What became of each job of a simulation, and the numbers that are made of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from .workload import Job


@dataclass
class Record:
    """What became of one job. Times in seconds from the start of the simulation."""

    job: Job
    asked: float = math.nan
    started: float = math.nan
    finished: float = math.nan
    gpu: int = -1
    migrations: int = 0
    refused: str = ""


@dataclass(frozen=True)
class Sample:
    """What one tick found, and what happened since the tick before."""

    time: float
    utilisation: Sequence[float]  # of each GPU
    waiting: int


@dataclass(frozen=True)
class Summary:
    """The numbers of one run. Seconds; utilisation from 0 to 1."""

    jobs: int
    refused: int
    end_to_end: float  # from the first launch to the last end
    total: float  # each job from its launch to its end, added up
    wait_mean: float
    wait_p95: float
    utilisation: float
    migrations: int

    def as_json(self) -> dict[str, Any]:
        """Return the numbers by name, as `--json` prints them."""
        return asdict(self)


@dataclass(frozen=True)
class Result:
    """All that a simulation recorded: every job, every tick."""

    records: Sequence[Record]
    samples: Sequence[Sample]

    def summary(self) -> Summary:
        """The run in a few numbers."""
        done = [record for record in self.records if not record.refused]
        waits = sorted(record.started - record.asked for record in done)
        first = min((record.job.launch for record in self.records), default=0.0)
        return Summary(
            jobs=len(self.records),
            refused=len(self.records) - len(done),
            end_to_end=max((record.finished for record in done), default=first) - first,
            total=math.fsum(record.finished - record.job.launch for record in done),
            wait_mean=mean(waits) if waits else 0.0,
            wait_p95=waits[math.ceil(0.95 * len(waits)) - 1] if waits else 0.0,
            utilisation=self._utilisation(),
            migrations=sum(record.migrations for record in self.records),
        )

    def _utilisation(self) -> float:
        """Over time and over all GPUs."""
        area, last = 0.0, 0.0
        for sample in self.samples:
            area += (sample.time - last) * mean(sample.utilisation)
            last = sample.time
        return area / last if last else 0.0
