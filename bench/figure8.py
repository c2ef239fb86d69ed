"""DGSF's figure 8 for real: two BERT and two ResNet per two GPUs, on four simulated devices, by policy.

    python -m bench.figure8 [--rounds N] [--record]

The simulated devices share this machine's cores, so the functions' kernels occupy a device without computing
(workloads/function), and the devices let processes take turns (GPUFERRY_SIM_TURNS), as a GPU does. What each
function needs is what the simulator says of it (sim/dgsf.py). Time is not scaled: the monitor's tick, its
cooldown and the price of a migration are to a function's length what they are in production. Every round
runs every configuration, so that whatever disturbs the machine for a while disturbs all of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gpuferry.monitor.policy import build
from gpuferry.monitor.simulator import dgsf
from gpuferry.monitor.simulator.engine import Simulation
from gpuferry.monitor.simulator.workload import MIB, Job, Server, Workload
from rich.console import Console
from rich.table import Table

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import GPUFERRY, ROOT
from tests.helpers.running import run

from .timeline import Control, control

SOURCE = ROOT / "bench" / "workloads" / "function" / "function.cu"
RESULTS = ROOT / "bench" / "results" / "policy" / "figure8.json"
GPUS, WORKERS, MEMORY = 4, 2, 14000 * MIB
SMALLER = 50  # host memory holds all of it: what is promised is as published, what is there is less
ROUNDS = 3
MIX = ("bert",) * GPUS + ("resnet",) * GPUS
PUBLISHED = {
    ("worst-fit", "off"): 38.9,
    ("best-fit", "dgsf"): 42.6,
    ("exclusive", "off"): 43.6,
    ("best-fit", "off"): 50.6,
}
CONFIGURATIONS = (*PUBLISHED, ("best-fit", "auto"))


@dataclass(frozen=True)
class Lived:
    """One function's run. Times in seconds from the first launch of the mix, but for `waited`."""

    name: str
    process: int
    placed: float
    done: float
    waited: float  # how much longer its kernels took than on a GPU of its own
    devices: list[tuple[float, int]]  # since when on which

    def kept(self) -> dict[str, Any]:
        """The fields for the results file: all but the process."""
        return {name: value for name, value in asdict(self).items() if name != "process"}


@dataclass(frozen=True)
class Run:
    """One run of a configuration. Seconds from the first launch to the last end; `total` is the sum over
    all functions.
    """

    end_to_end: float
    total: float
    pauses: list[float]  # of each migration
    cores: float  # that it all kept busy, guests, monitor and API servers together
    functions: list[Lived]


@dataclass(frozen=True)
class Spread:
    """Median, least and most of a figure over some rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(*(round(value, 2) for value in (median(values), min(values), max(values))))

    def __str__(self) -> str:
        return f"{self.median:.1f} ({self.least:.1f} to {self.most:.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.figure8", description="DGSF's figure 8 for real")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--record", action="store_true", help=f"keep the result in {RESULTS.name}")
    options = parser.parse_args()
    progress = Console(stderr=True)
    program = toolchain.program(SOURCE)
    rounds: list[list[Run]] = []
    for number in range(options.rounds):
        rounds.append([])
        for fit, migration in CONFIGURATIONS:
            with progress.status(f"round {number + 1}: {fit}, migration {migration} …"):
                rounds[-1].append(measure(program, fit, migration))
    result = summary(rounds)
    show(result)
    if options.record:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(result["in_order"]) else 1


def jobs() -> list[Job]:
    """The functions of the mix, in the order of their launches."""
    return [dgsf.job(name, 0.0) for name in MIX]


def simulated(fit: str, migration: str) -> float:
    """Seconds from the first launch to the last end, as the simulator foretells them for this
    configuration.
    """
    workload = Workload("", jobs(), Server(gpus=GPUS, memory=MEMORY, workers=WORKERS))
    return Simulation(build(fit, migration=migration), workload, workload.server).run().summary().end_to_end


# -- one run


def measure(program: Path, fit: str, migration: str) -> Run:
    """Run all functions of the mix at once under one policy."""
    options = ("--policy", fit, "--migration", migration, "--pool", str(WORKERS), "--headroom", "0")
    with tempfile.TemporaryDirectory() as turns:
        environment = {
            "GPUFERRY_SIM_DEVICES": str(GPUS),
            "GPUFERRY_SIM_MEMORY": f"{MEMORY // MIB}MiB",
            "GPUFERRY_SIM_TURNS": turns,
        }
        with monitor(*options, "--jail", "off", "--log-level", "warning", environment=environment) as server:
            warm(server, program)
            with whereabouts(server) as places:
                used = processor_seconds()
                begin = time.monotonic()
                with ThreadPoolExecutor(len(MIX)) as threads:
                    lives = list(threads.map(lambda job: function(server, program, job, begin), jobs()))
                length = max(life.done for life in lives)
                used = processor_seconds() - used
            moves = server.status().get("migrations", [])
    for life in lives:
        been = places.get(life.process, [])
        life.devices.extend((round(when - begin, 1), device) for when, device in been)
    return Run(
        end_to_end=length,
        total=sum(life.done for life in lives),
        pauses=[move["downtime_seconds"] for move in moves],
        cores=used / length,
        functions=lives,
    )


def warm(server: Monitor, program: Path) -> None:
    """Run one function before the others, so that no run pays for compiling the kernel."""
    run_function(server, program, "warm", 0, 0.0, 0.02, 0.5, 1)


def function(server: Monitor, program: Path, job: Job, begin: float) -> Lived:
    """Run one function to its end. Its download includes what it takes to start the program."""
    content = (job.content or job.memory) / MIB / SMALLER
    ready, memory = begin + job.before, job.memory // MIB
    said = run_function(server, program, job.function, memory, ready, job.work, job.load, content)
    process, placed, done, waited = said.split()
    return Lived(
        job.function,
        int(process),
        placed=round(float(placed) - begin, 2),
        done=round(float(done) - begin, 2),
        waited=round(float(waited), 2),
        devices=[],
    )


def run_function(
    server: Monitor,
    program: Path,
    name: str,
    memory: int,
    ready: float,
    work: float,
    load: float,
    megabytes: float,
) -> str:
    wishes = ["--function", name, *(["--memory", f"{memory}MiB"] if memory else [])]
    command = [GPUFERRY, "run", *wishes, "--", program, *(str(x) for x in (ready, work, load, megabytes))]
    done = run([str(word) for word in command], {**os.environ, **server.settings()})
    if done.status != 0:
        raise RuntimeError(f"{name}: exit status {done.status}: {done.stderr}")
    return done.stdout


@contextmanager
def whereabouts(server: Monitor) -> Iterator[dict[int, list[tuple[float, int]]]]:
    """Within this context, note where sessions are: by process, since when it was on which device.
    Complete when the context ends.
    """
    places: dict[int, list[tuple[float, int]]] = {}

    def watch(port: Control) -> None:
        for status in port.watch():
            for session in status.sessions:
                been = places.setdefault(session.guest_pid, [])
                if session.HasField("device") and (not been or been[-1][1] != session.device):
                    been.append((time.monotonic(), session.device))

    with ThreadPoolExecutor(1) as threads:
        with control(server) as port:
            watching = threads.submit(watch, port)
            yield places
        watching.result()


def processor_seconds() -> float:
    """Seconds of processor time that this machine's cores spent on anything since it started."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, interrupt, soft, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + interrupt + soft + steal) / os.sysconf("SC_CLK_TCK")


# -- what came of it


def summary(rounds: Sequence[Sequence[Run]]) -> dict[str, Any]:
    """The result as it is recorded."""
    rows = []
    for (fit, migration), runs in zip(CONFIGURATIONS, zip(*rounds, strict=True), strict=True):
        middle = sorted(runs, key=lambda run: run.end_to_end)[len(runs) // 2]
        rows.append(
            {
                "policy": fit,
                "migration": migration,
                "published": PUBLISHED.get((fit, migration)),
                "simulated": round(simulated(fit, migration), 2),
                "end_to_end": asdict(Spread.of([run.end_to_end for run in runs])),
                "total": asdict(Spread.of([run.total for run in runs])),
                "rounds": [round(run.end_to_end, 2) for run in runs],
                "migrations": [len(run.pauses) for run in runs],
                "pauses": [round(pause, 3) for run in runs for pause in run.pauses],
                "cores_busy": asdict(Spread.of([run.cores for run in runs])),
                "functions_of_the_median": [life.kept() for life in middle.functions],
            }
        )
    published = [[run.end_to_end for run in runs[: len(PUBLISHED)]] for runs in rounds]
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "rounds": len(rounds),
        "memory": f"1/{SMALLER} of the published size",
        "in_order": [ends == sorted(ends) for ends in published],
        "configurations": rows,
    }


def show(result: dict[str, Any]) -> None:
    table = Table(title="Figure 8, seconds: median (least to most)", title_justify="left", box=None)
    table.add_column("fit, migration", no_wrap=True)
    for column in ("published", "simulated", "measured", "sum", "moves", "cores"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in result["configurations"]:
        table.add_row(
            f"{row['policy']}, {row['migration']}",
            f"{row['published'] or ''}",
            f"{row['simulated']:.1f}",
            str(Spread(**row["end_to_end"])),
            f"{row['total']['median']:.1f}",
            " ".join(map(str, row["migrations"])),
            f"{row['cores_busy']['median']:.2f}",
        )
    Console().print(table)
    print(f"in the published order: {sum(result['in_order'])} of {result['rounds']} rounds")


if __name__ == "__main__":
    sys.exit(main())
