"""KubeShare's experiments (policies.md §3.4): shares of a GPU, jobs per minute, active GPUs, interference."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

from ..policy.build import build
from ..policy.portion import FULL, Portion
from ..policy.quota import Fixed
from ..policy.sharing import SECOND
from ..policy.timeshare import TimeSharing
from ..policy.tokens import Client
from .paper import Row, row
from .residency import Memory, measured_bandwidth
from .sharing import Outcome, Share, SharedGpus
from .tokens import Busy, shares

GPUS, JOB_SECONDS = 32, 38.4  # 32 GPUs that finish 50 jobs a minute
MEANS, DEVIATION = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), 0.1
RATIOS = (5.7, 4.6, 3.0, 2.2, 1.7, 1.15, 1.0)  # of jobs a minute with and without sharing (0.6: 1.0 to 1.3)
RATIO_TOLERANCE = 0.10
ARRIVALS = 300.0  # jobs a minute: six times what is done without sharing
JOBS = 3600
HALF_LOAD = 50.0  # jobs a minute
SHARE_TOLERANCE = 0.03
QUOTA, WINDOW = SECOND // 10, 10 * SECOND
GIB = 1 << 30
# Sessions of 1 GiB that are always busy for a minute, and how many of them fit on the GPU.
CROWDS = ((3, 2.0), (3, 1.5), (4, 2.0), (16, 10.0))

# Figure 6: sessions A, B and C of one GPU, and what they had of it in the spans between.
FIGURE_6 = (
    Busy(Client(1, 300, 600), 0, 800),
    Busy(Client(2, 400, 600), 200, 800),
    Busy(Client(3, 300, 500), 400, 660),
)
SPANS = ((20.0, 200.0), (220.0, 400.0), (420.0, 660.0), (680.0, 800.0))  # two windows to settle in
PUBLISHED = ((0.6, 0, 0), (0.5, 0.5, 0), (0.3, 0.4, 0.3), (0.5, 0.5, 0))


def demand(chance: random.Random, mean: float, deviation: float) -> int:
    """The part of a GPU that a job uses, in thousandths: normal, drawn again outside of 0 to 1."""
    while not 0 < (drawn := chance.gauss(mean, deviation)) <= 1:
        pass
    return math.ceil(drawn * FULL)


def jobs(seed: int, per_minute: float, number: int, mean: float, deviation: float) -> Iterator[Share]:
    """Poisson arrivals of jobs that take JOB_SECONDS each."""
    chance = random.Random(seed)
    now = 0.0
    for _ in range(number):
        now += chance.expovariate(per_minute / 60)
        yield Share(now, JOB_SECONDS, Portion(demand(chance, mean, deviation)))


def run(fit: str, work: Sequence[Share], slowdown: Callable[[Sequence[str]], float] | None = None) -> Outcome:
    """The work on KubeShare's GPUs. `exclusive` is Kubernetes alone: each job has its GPU."""
    policy = build(fit, "backfill")
    most = 1 if fit == "exclusive" else 64
    return SharedGpus(policy, GPUS, most, slowdown or (lambda kinds: 1.0)).run(work)


def shares_of_figure_6() -> list[Row]:
    """Figure 6 by the arbiter and policy that GPU servers run. Nothing in it is random."""
    found = shares(TimeSharing(WINDOW, Fixed(QUOTA), 0), FIGURE_6, SPANS)
    rows = []
    for (begin, end), had, wanted in zip(SPANS, found, PUBLISHED, strict=True):
        for name, part, published in zip("ABC", had, wanted, strict=True):
            if published:
                what = f"figure 6, {begin:g} to {end:g} s, share of {name}"
                low, high = published - SHARE_TOLERANCE, published + SHARE_TOLERANCE
                rows.append(row(what, published, [part], low, high))
    return rows


def residency(bandwidth: float) -> Iterator[Row]:
    """What is left of a GPU's time for work where memory comes and goes at so many bytes a second. Beyond the
    paper, whose sessions always fit.
    """
    for sessions, fitting in CROWDS:
        crowd = [Busy(Client(number), 0, 60, GIB) for number in range(1, sessions + 1)]
        memory = Memory(int(fitting * GIB), bandwidth)
        (had,) = shares(TimeSharing(WINDOW, Fixed(QUOTA), 0), crowd, [(0.0, 60.0)], memory)
        name = f"part of the time at work, {sessions} sessions of 1 GiB of which {fitting:g} fit"
        yield row(name, math.nan, [sum(had)], 0.0, math.inf)


def throughput(mean: float, seeds: Sequence[int], deviation: float = DEVIATION, number: int = JOBS) -> Row:
    """How many times as many jobs a minute are done with sharing as without, more coming than can be done."""
    ratios = []
    for seed in seeds:
        work = list(jobs(seed, ARRIVALS, number, mean, deviation))
        ratios.append(run("kubeshare", work).per_minute / run("exclusive", work).per_minute)
    published = RATIOS[MEANS.index(mean)]
    low, high = published * (1 - RATIO_TOLERANCE), published * (1 + RATIO_TOLERANCE)
    if mean == 0.6:
        low, high = 1.0, 1.3
    return row(f"jobs per minute with sharing / without, mean demand {mean:g}", published, ratios, low, high)


def alone(seeds: Sequence[int], number: int = JOBS) -> Row:
    """Jobs a minute without sharing, when more come than can be done."""
    rates = [run("exclusive", list(jobs(s, ARRIVALS, number, 0.3, DEVIATION))).per_minute for s in seeds]
    return row("jobs per minute without sharing", 49.8, rates, 49.8 * 0.9, 49.8 * 1.1)


def active(seeds: Sequence[int], number: int = 2000) -> list[Row]:
    """Active GPUs at 50 jobs a minute and mean demand 0.3, which without sharing is nearly all."""
    found: dict[str, list[float]] = {"kubeshare": [], "exclusive": []}
    for seed in seeds:
        work = list(jobs(seed, HALF_LOAD, number, 0.3, DEVIATION))
        begin, end = work[number // 10].arrival, work[-1].arrival
        for fit, numbers in found.items():
            numbers.append(run(fit, work).active_between(begin, end))
    halves = [one / other for one, other in zip(found["kubeshare"], found["exclusive"], strict=True)]
    return [
        row("active GPUs without sharing, 50 jobs a minute", 30.7, found["exclusive"], 30.7 * 0.9, 32),
        row("active GPUs with sharing", 11.7, found["kubeshare"], 11.7 * 0.9, 11.7 * 1.1),
        row("active GPUs, with / without", 11.7 / 30.7, halves, 0.0, 0.5),
    ]


def interfering(kinds: Sequence[str]) -> float:
    """Two of B slow each other by half, whoever shares with an A by less than a tenth."""
    if kinds.count("B") > 1:
        return 1.5
    return 1.05 if len(kinds) > 1 else 1.0


def mixed(seed: int, part_of_a: float, labelled: bool, number: int) -> list[Share]:
    """Jobs of which two share a GPU, all there from the beginning; a part of them is A, the others are B."""
    chance = random.Random(seed)
    made = []
    for _ in range(number):
        kind = "A" if chance.random() < part_of_a else "B"
        portion = Portion(450, anti_affinity="B" if labelled and kind == "B" else "")
        made.append(Share(0.0, chance.expovariate(1 / JOB_SECONDS), portion, kind))
    return made


def interference(part_of_a: float, seeds: Sequence[int], number: int = 1500) -> dict[str, list[float]]:
    """Jobs a minute with this part of A: without sharing, without labels, and with anti-affinity of B. The
    last jobs, with which GPUs run empty, do not count.
    """
    found: dict[str, list[float]] = {"exclusive": [], "no labels": [], "anti-affinity": []}
    for seed in seeds:
        for name, numbers in found.items():
            work = mixed(seed, part_of_a, name == "anti-affinity", number)
            done = run("exclusive" if name == "exclusive" else "kubeshare", work, interfering)
            numbers.append(60 * 0.8 * number / done.finished[int(0.8 * number) - 1])
    return found


def interference_rows(seeds: Sequence[int], parts: Sequence[float] = (0.0, 0.25, 0.75, 1.0)) -> list[Row]:
    """What anti-affinity of those that disturb each other is worth. The paper says which wins, not by how
    much.
    """
    rows = []
    for part in parts:
        found = interference(part, seeds)
        against = "exclusive" if part == 0 else "no labels"
        ratios = [mine / theirs for mine, theirs in zip(found["anti-affinity"], found[against], strict=True)]
        name = f"anti-affinity / {against}, {part:.0%} of A"
        low, high = (0.95, 1.05) if part in (0, 1) else (1.0, math.inf) if part > 0.5 else (0.0, 1.0)
        rows.append(row(name, 1.0, ratios, low, high))
    return rows


def everything(seeds: Sequence[int]) -> Iterator[Row]:
    """All rows, one after the other: this takes minutes."""
    yield from shares_of_figure_6()
    yield from residency(measured_bandwidth())
    yield alone(seeds)
    for mean in MEANS:
        yield throughput(mean, seeds)
    yield from active(seeds)
    yield from interference_rows(seeds)
