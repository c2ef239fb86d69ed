"""Azure's trace as calls of functions: read from a user's file, or made in its published shape."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from numpy import arange, pi, sin
from numpy.random import RandomState

from ...policy.invocations import Function
from ..azure import CALLS, MINUTES, Slice, read
from ..models import LARGE, MEDIUM, SMALL, spread
from .workload import Calls, Profile, Server

SHORTEST = 1e-3  # seconds of a run: the trace has zeros


def replay(
    path: Path, part: Slice, server: Server, durations: Path | None = None, memory: Path | None = None
) -> Calls:
    """The calls of a file in the format of 2019. Functions whose run time or memory the two other files do
    not give, get those of image models; what a cold start takes is of image models always. One that
    needs more than a GPU has will be refused, as by a server. Raises TraceError.
    """
    jobs = read(path, part, durations=durations, memory=memory).jobs
    by_work = {model.load + model.inference: model for model in (*SMALL, *MEDIUM, *LARGE)}
    profiles: dict[str, Profile] = {}
    counts = Counter(job.function for job in jobs)
    first = {job.function: job for job in reversed(jobs)}
    for rank, name in enumerate(sorted(counts, key=lambda one: (-counts[one], one))):
        job = first[name]
        model = by_work.get(job.work)
        run = model.inference if model else max(SHORTEST, job.work)
        profiles[name] = Profile(Function(name, job.memory), run, (model or spread(rank)).load)
    arrivals = [(job.launch, job.function) for job in jobs]
    return Calls(f"{path.name}, minutes {part.first}–{part.last}", profiles, arrivals, server=server)


def generate(path: Path, functions: int = 200, seed: int = 0) -> None:
    """Write a day in the trace's format and its published shape: calls of functions fall as 1/rank^1.5, most
    are called at random, some by a timer every few minutes, and the day has a wave of a third.
    """
    random = RandomState(seed)
    day = 1.0 + 0.33 * sin(2 * pi * (arange(MINUTES) + random.randint(MINUTES)) / MINUTES)
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow([*CALLS, *(str(minute) for minute in range(1, MINUTES + 1))])
        for rank in range(functions):
            rate = 400.0 / (rank + 1) ** 1.5
            timer = rank % 4 == 3
            if timer:
                every = int(random.choice([1, 5, 15, 60]))
                counts = [int(minute % every == rank % every) for minute in range(MINUTES)]
            else:
                counts = [int(count) for count in random.poisson(rate * day)]
            name = f"{rank:08x}" + f"{random.randint(1 << 30):08x}" * 7
            writer.writerow([f"o{rank % 17}", f"a{rank % 61}", name, "timer" if timer else "http", *counts])
