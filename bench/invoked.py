"""The headlines of three papers for real: functions that are invoked through `functions serve`, by policy.

    python -m bench.invoked [--record] [--only lalb|mqfq|kaas]

Four simulated devices, and models whose loading and computing take real memory and time: loading copies the
model to its device and waits, computing writes over it and waits, so that the devices are busy and this
machine's cores are not. The simulator is given the same calls, and its numbers stand beside.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from gpuferry.monitor.policy.invocations import Function, build
from gpuferry.monitor.simulator.invocations.engine import Simulation
from gpuferry.monitor.simulator.invocations.lalb import models
from gpuferry.monitor.simulator.invocations.workload import Calls, Profile
from gpuferry.monitor.simulator.invocations.workload import Server as Gpus
from numpy.random import RandomState
from rich.console import Console
from rich.table import Table

from tests.functions.serving import Server, serving
from tests.helpers.monitor import monitor
from tests.helpers.paths import ROOT

RESULTS = ROOT / "bench" / "results" / "policy" / "invoked.json"
MIB = 1 << 20
GPUS, SIZE = 4, 32 * MIB  # of a model
START = 0.6  # seconds of a replica's start, its session's included, on a machine with nothing else to do
SOURCE = """
import ctypes, os, time
SIZE, LOAD, RUN = int(os.environ["SIZE"]), float(os.environ["LOAD"]), float(os.environ["RUN"])

def check(status):
    if status: raise RuntimeError(f"CUDA error {status}")

if "GPUFERRY_MONITOR" in os.environ:
    cuda = ctypes.CDLL("libcuda.so.1")
    context, model = ctypes.c_void_p(), ctypes.c_uint64()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuMemAlloc_v2(ctypes.byref(model), SIZE))
    check(cuda.cuMemcpyHtoD_v2(model, bytes(SIZE), SIZE))
    time.sleep(LOAD)

def handle(request):
    began = time.monotonic()
    check(cuda.cuMemsetD8_v2(model, 7, SIZE))
    check(cuda.cuCtxSynchronize())
    time.sleep(max(began + RUN - time.monotonic(), 0))
    return b""
"""


@dataclass(frozen=True)
class Case:
    """One policy over one workload."""

    paper: str
    what: str
    policy: str
    calls: Calls
    load: float
    slots: int  # models that a device holds
    most: int  # replicas of a function
    flags: tuple[str, ...] = ("--tokens", "1")
    options: Mapping[str, Any] = field(default_factory=lambda: {"tokens": 1})
    elastic: bool = False  # who makes room only leaves its device


@dataclass(frozen=True)
class Done:
    """One invocation that was answered. Seconds since the first."""

    function: str
    asked: float
    answered: float
    cold: bool


@dataclass(frozen=True)
class Figures:
    """What came of a case, for real or simulated."""

    calls: int
    latency: float  # seconds, the mean
    cold: float  # of all
    rate: float  # a second
    uneven: float  # most service of a function, against the least


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.invoked")
    parser.add_argument("--record", action="store_true", help=f"keep the result in {RESULTS.name}")
    parser.add_argument("--only", choices=("lalb", "mqfq", "kaas"))
    options = parser.parse_args()
    progress = Console(stderr=True)
    rows = []
    for case in (case for case in cases() if options.only in (None, case.paper)):
        with progress.status(f"{case.paper}: {case.what}, {case.policy} …"):
            done, failed = measured(case)
        rows.append(
            {
                "paper": case.paper,
                "what": case.what,
                "policy": case.policy,
                "measured": vars(figures(case, done)),
                "simulated": vars(figures(case, simulated(case))),
                "failed": failed,
                "timeline": [[one.function, round(one.asked, 2), round(one.answered, 2)] for one in done],
            }
        )
        show(rows[-1:])
    show(rows)
    if options.record:
        result = {
            "date": datetime.date.today().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "rows": rows,
        }
        RESULTS.write_text(json.dumps(result) + "\n")
    return 0


def cases() -> Iterator[Case]:
    """LALBO3 against LB; MQFQ-Sticky against FCFS; CFS-Affinity against Exclusive. And our own."""
    thesis = trace(functions=12, seconds=40.0, run=0.5, load=1.0)
    for policy in ("lb", "lalbo3", "auto"):
        options = {"tokens": 1, "evict": "end"}
        yield Case("lalb", "12 functions", policy, thesis, 1.0, slots=3, most=4, options=options)
    busy = clients((8, 4, 4, 4), seconds=25.0, run=0.2, load=0.2)
    for policy in ("fcfs", "mqfq", "auto"):
        flags: tuple[str, ...] = ("--tokens", "1")
        given: dict[str, Any] = {"tokens": 1}
        if policy != "fcfs":
            flags, given = (*flags, "--overrun", "0.5"), {**given, "overrun": 0.5}
        what = "4 busy, one calls twice as often"
        yield Case("mqfq", what, policy, busy, 0.2, 8, most=4, flags=flags, options=given, elastic=True)
    for policy in ("kaas-affinity", "kaas-exclusive"):
        for number in (GPUS, GPUS + 1):
            flat_out = clients((2,) * number, seconds=25.0, run=0.1, load=1.0)
            own = policy == "kaas-affinity"
            yield Case(
                "kaas",
                f"{number} clients",
                policy,
                flat_out,
                1.0,
                slots=4,
                most=4,
                flags=("--tokens", "1") if own else (),
                options={"tokens": 1} if own else {},
                elastic=own,
            )


def profiles(names: Sequence[str], run: float, load: float) -> dict[str, Profile]:
    return {
        name: Profile(Function(name, SIZE, replicas=4), run, START + load, back=SIZE / (2 << 30))
        for name in names
    }


def trace(functions: int, seconds: float, run: float, load: float) -> Calls:
    """The thesis's popularity, at a rate that asks for 0.59 of the devices if nothing is ever loaded."""
    random = RandomState(1)
    shares = [share for _, share in models(functions)]
    names = [f"f{rank:02}" for rank in range(functions)]
    number = round(0.59 * GPUS / run * seconds)
    chosen = random.choice(names, size=number, p=[share / sum(shares) for share in shares])
    moments = sorted(random.uniform(0.0, seconds, size=number))
    arrivals = [(float(moment), str(name)) for moment, name in zip(moments, chosen, strict=True)]
    return Calls("", profiles(names, run, load), arrivals, server=Gpus(gpus=GPUS))


def clients(open_calls: Sequence[int], seconds: float, run: float, load: float) -> Calls:
    """Functions that always have so many calls open."""
    names = [f"f{number:02}" for number in range(len(open_calls))]
    closed = dict(zip(names, open_calls, strict=True))
    return Calls("", profiles(names, run, load), closed=closed, until=seconds, server=Gpus(gpus=GPUS))


# -- one case


def simulated(case: Case) -> list[Done]:
    """The same calls in the simulator."""
    calls = Calls(
        case.calls.name,
        case.calls.profiles,
        case.calls.arrivals,
        closed=case.calls.closed,
        until=case.calls.until,
        server=Gpus(gpus=GPUS, memory=case.slots * SIZE),
    )
    result = Simulation(build(case.policy, **case.options), calls).run()
    return [
        Done(one.function, one.arrived, one.finished, one.start.value == "cold")
        for one in result.done()
        if one.start
    ]


def measured(case: Case) -> tuple[list[Done], int]:
    """Run it. What was answered, and how many were not."""
    with servers(case) as server:
        begin = time.monotonic()
        done: list[Done] = []
        failed: Counter[str] = Counter()

        def call(function: str) -> None:
            asked = time.monotonic()
            answer = _invoke(server, function)
            if answer is None:
                failed[function] += 1
            else:
                done.append(Done(function, asked - begin, time.monotonic() - begin, answer))

        def repeat(function: str) -> None:
            while time.monotonic() < begin + case.calls.until:
                call(function)

        threads = [
            threading.Thread(target=repeat, args=(function,))
            for function, number in case.calls.closed.items()
            for _ in range(number)
        ]
        for thread in threads:
            thread.start()
        for moment, function in case.calls.arrivals:
            time.sleep(max(begin + moment - time.monotonic(), 0.0))
            threads.append(threading.Thread(target=call, args=(function,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
    return sorted(done, key=lambda one: one.answered), failed.total()


def _invoke(server: Server, function: str) -> bool | None:
    """Whether it was a cold start; None: it failed."""
    connection: http.client.HTTPConnection = server.connection()
    try:
        connection.request("POST", f"/function/{function}")
        answer = connection.getresponse()
        answer.read()
        return answer.headers["X-Gpuferry-Start"] == "cold" if answer.status == 200 else None
    finally:
        connection.close()


@contextmanager
def servers(case: Case) -> Iterator[Server]:
    """A function server beside a monitor. The functions are there, and none has a replica."""
    folder = Path(tempfile.mkdtemp(prefix="gf-invoked-", dir="/tmp"))
    devices = {
        "GPUFERRY_DEVICE": "sim",
        "GPUFERRY_SIM_DEVICES": str(GPUS),
        "GPUFERRY_SIM_MEMORY": f"{case.slots * SIZE // MIB}MiB",
    }
    pool = ("--pool", str(min(case.slots, 4) + 1), "--oversubscribe", "4" if case.elastic else "1")
    try:
        with serving("--driver", "none", folder=folder) as server:
            for name, profile in case.calls.profiles.items():
                said = {"SIZE": str(SIZE), "LOAD": str(case.load), "RUN": str(profile.run)}
                server.deploy(
                    name,
                    SOURCE,
                    environment=said,
                    most=case.most,
                    idle=3600,
                    queue=10_000,
                    wait=600,
                    start=120,
                    gpu_memory=SIZE,
                )
        with monitor(*pool, "--headroom", "0", "--log-level", "warning", environment=devices) as gpus:
            settings = gpus.settings() | {"GPUFERRY_CONTROL": gpus.control}
            flags = ("--policy", case.policy, *case.flags, "--log-level", "warning")
            with serving(*flags, folder=folder, environment=settings) as server:
                yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- what came of it


def figures(case: Case, done: Sequence[Done]) -> Figures:
    """Service and rates are of the middle of closed workloads: neither while all starts, nor the end."""
    first, last = 0.3 * case.calls.until, case.calls.until
    inside = [one for one in done if not case.calls.closed or first <= one.answered <= last]
    of_each = Counter(dict.fromkeys(case.calls.profiles, 0))
    of_each.update(one.function for one in inside)
    span = last - first if case.calls.closed else max(one.answered for one in done)
    return Figures(
        calls=len(inside),
        latency=round(mean(one.answered - one.asked for one in inside), 3),
        cold=round(mean(one.cold for one in inside), 3),
        rate=round(len(inside) / span, 2),
        uneven=round(max(of_each.values()) / max(min(of_each.values()), 1), 2),
    )


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="measured (simulated)", title_justify="left", box=None)
    for column in ("paper", "what", "policy", "latency s", "cold", "calls/s", "most / least", "failed"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        both: Callable[[str], str] = lambda key, row=row: f"{row['measured'][key]} ({row['simulated'][key]})"  # type: ignore[misc]  # noqa: E731
        figures = [both(key) for key in ("latency", "cold", "rate", "uneven")]
        table.add_row(row["paper"], row["what"], row["policy"], *figures, str(row["failed"]))
    Console(width=130).print(table)


if __name__ == "__main__":
    sys.exit(main())
