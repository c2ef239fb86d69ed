"""What a decision of a policy over invocations costs with many functions, GPUs and a long queue.

`python -m bench.invocations` shows cost and memory as the queue grows to a million.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from itertools import count
from mmap import PAGESIZE
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from time import thread_time

from gpuferry.monitor.policy.invocations import POLICIES, Function, Invocation, Run, build
from gpuferry.monitor.policy.invocations.books import Books

from .decision import scan
from .rows import Row, cost

GIB = 1 << 30
GPUS, FUNCTIONS, WAITING, EVENTS = 64, 1_000, 10_000, 1_500
ROUNDS = 2  # the best one counts: the machine is shared, and what disturbs only ever adds


def rows() -> list[Row]:
    """Median and 99th percentile of a decision of the slowest policy; an event counts with all it brings."""
    floor = min(scan() for _ in range(ROUNDS)) * 1e6
    middle, high = zip(*(best(name) for name in POLICIES), strict=True)
    return [
        cost("decision_invocation", max(middle), floor, "µs"),
        cost("decision_invocation_p99", max(high), floor, "µs"),
    ]


def best(name: str, waiting: int = WAITING, functions: int = FUNCTIONS) -> tuple[float, float]:
    """Median and 99th percentile in µs, each of its best round."""
    found = [list(decisions(build(name), waiting, functions)) for _ in range(ROUNDS)]
    return min(median(one) for one in found) * 1e6, min(quantiles(one, n=100)[98] for one in found) * 1e6


def decisions(policy: Books, waiting: int, functions: int) -> Iterator[float]:
    """Seconds of each event with its decisions, in the thread's own time: arrivals, begins and ends."""
    chance = random.Random(0)
    ids, replicas = count(), count()
    now = 0.0
    for number in range(functions):
        size = chance.randrange(1, 20) * GIB
        policy.on_function(Function(f"f{number}", size, load=3.0, run=chance.uniform(0.1, 2.0)), now)
    for number in range(GPUS):
        policy.on_gpu(number, 80 * GIB, now)
    live: list[Run] = []

    def settle() -> None:
        while decision := policy.next():
            if isinstance(decision, Run):
                live.append(decision)

    def begin() -> None:
        for run in live[-GPUS:]:
            policy.on_begin(run.invocation.id, now, next(replicas) if run.replica is None else run.replica)

    def arrive() -> None:
        name = f"f{min(functions - 1, int(chance.paretovariate(0.5)) - 1)}"
        policy.on_arrival(Invocation(next(ids), name, now), now)

    while len(policy) < waiting:
        arrive()
        settle()
        begin()
    for _ in range(EVENTS):
        now += 0.02
        while not live:
            policy.on_tick(now, {})
            settle()
        run = live.pop(chance.randrange(len(live)))
        replica = next(replicas) if run.replica is None else run.replica
        policy.on_begin(run.invocation.id, now, replica)
        began = thread_time()
        policy.on_complete(run.invocation.id, now)
        settle()
        yield thread_time() - began
        while len(policy) < waiting:
            began = thread_time()
            arrive()
            settle()
            yield thread_time() - began


def growth(name: str, waiting: int) -> int:
    """Bytes by which this process grows while a policy comes to have so many waiting: for a fresh process, in
    which nothing was freed before.
    """
    before = _resident()
    policy = build(name)
    for _ in decisions(policy, waiting, FUNCTIONS):
        break
    return _resident() - before


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE


def main() -> None:
    """Show how cost and memory grow, for the policies that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench.invocations", description=__doc__)
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=", ".join(POLICIES))
    named = parser.parse_args().policies
    for name in named:
        if name not in POLICIES:
            parser.error(f"there is no policy {name!r}: {', '.join(POLICIES)}")
    for name in named or POLICIES:
        for waiting in (1_000, 10_000, 100_000, 1_000_000):
            middle, high = best(name, waiting)
            with get_context("spawn").Pool(1) as fresh:
                size = fresh.apply(growth, (name, waiting)) / waiting
            cost_of_one = f"{middle:7.1f} µs {high:7.1f} µs at 99 %"
            print(f"{name:15} {waiting:9} waiting {cost_of_one} {size:6.0f} bytes each", flush=True)


if __name__ == "__main__":
    main()
