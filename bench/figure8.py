"""DGSF's figure 8 for real: two BERT and two ResNet per two GPUs, on four simulated devices, by policy.

    python -m bench.figure8 [--record]

The simulated devices share this machine's cores, so the functions' kernels occupy a device without computing
(workloads/function), and the devices let processes take turns (GPUFERRY_SIM_TURNS), as a GPU does. What each
function needs is what the simulator says of it (bench/sim/dgsf.py), five times as fast.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuferry.monitor.policy import build
from gpuferry.sim import dgsf
from gpuferry.sim.engine import Simulation
from gpuferry.sim.workload import MIB, Job, Server, Workload
from rich.console import Console
from rich.table import Table

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import GPUFERRY, ROOT
from tests.helpers.running import run

SOURCE = ROOT / "bench" / "workloads" / "function" / "function.cu"
RESULTS = ROOT / "bench" / "results" / "policy" / "figure8.json"
GPUS, WORKERS = 4, 2
FASTER = 5.0
SMALLER = 50  # host memory holds all of it
MIX = ("bert",) * GPUS + ("resnet",) * GPUS
PUBLISHED = {
    ("worst-fit", "off"): 38.9,
    ("best-fit", "dgsf"): 42.6,
    ("exclusive", "off"): 43.6,
    ("best-fit", "off"): 50.6,
}
CONFIGURATIONS = (*PUBLISHED, ("best-fit", "auto"))


@dataclass(frozen=True)
class Outcome:
    """Seconds from the first launch to the last end; `total` is the sum over all functions."""

    policy: str
    migration: str
    end_to_end: float
    total: float
    migrations: int
    simulated: float


def main() -> int:
    progress = Console(stderr=True)
    program = toolchain.program(SOURCE)
    outcomes = []
    for fit, migration in CONFIGURATIONS:
        with progress.status(f"{fit}, migration {migration} …"):
            outcomes.append(measure(program, fit, migration))
    show(outcomes)
    if "--record" in sys.argv[1:]:
        RESULTS.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) + "\n")
    ends = [outcome.end_to_end for outcome in outcomes[: len(PUBLISHED)]]
    return 0 if ends == sorted(ends) else 1


def jobs() -> list[Job]:
    """The mix, in the order of its launches."""
    return [dgsf.job(name, 0.0) for name in MIX]


def measure(program: Path, fit: str, migration: str) -> Outcome:
    """All functions at once, under one policy."""
    options = ("--policy", fit, "--migration", migration, "--pool", str(WORKERS), "--headroom", "0")
    with tempfile.TemporaryDirectory() as turns:
        environment = {
            "GPUFERRY_SIM_DEVICES": str(GPUS),
            "GPUFERRY_SIM_MEMORY": "14000MiB",
            "GPUFERRY_SIM_TURNS": turns,
        }
        with monitor(*options, "--log-level", "warning", environment=environment) as server:
            one_after_other(server, program)
            begin = time.monotonic()
            with ThreadPoolExecutor(len(MIX)) as threads:
                ends = list(threads.map(lambda job: function(server, program, job) - begin, jobs()))
            moves = server.status().get("migrations", [])
    server_model = Server(gpus=GPUS, memory=14000 * MIB, workers=WORKERS)
    simulated = Simulation(build(fit, migration=migration), Workload("", jobs()), server_model).run()
    return Outcome(fit, migration, max(ends), sum(ends), len(moves), simulated.summary().end_to_end)


def one_after_other(server: Monitor, program: Path) -> None:
    """So that no run pays for compiling the kernel."""
    run_function(server, program, "warm", 0, 0.0, 0.02, 0.5, 1)


def function(server: Monitor, program: Path, job: Job) -> float:
    """Runs one; when it was done."""
    content = (job.content or job.memory) / MIB / SMALLER
    memory = job.memory // MIB
    run_function(
        server, program, job.function, memory, job.before / FASTER, job.work / FASTER, job.load, content
    )
    return time.monotonic()


def run_function(
    server: Monitor,
    program: Path,
    name: str,
    memory: int,
    before: float,
    work: float,
    load: float,
    megabytes: float,
) -> None:
    wishes = ["--function", name, *(["--memory", f"{memory}MiB"] if memory else [])]
    command = [GPUFERRY, "run", *wishes, "--", program, *(str(x) for x in (before, work, load, megabytes))]
    done = run([str(word) for word in command], {**os.environ, **server.settings()})
    if done.status != 0:
        raise RuntimeError(f"{name}: exit status {done.status}: {done.stderr}")


def show(outcomes: list[Outcome]) -> None:
    table = Table(title="Figure 8, seconds", title_justify="left", box=None)
    table.add_column("policy", no_wrap=True)
    for column in ("published", f"simulated (÷ {FASTER:g})", "measured", "sum", "migrations"):
        table.add_column(column, justify="right")
    for one in outcomes:
        published = PUBLISHED.get((one.policy, one.migration))
        table.add_row(
            f"{one.policy}, migration {one.migration}",
            f"{published:.1f}" if published else "",
            f"{one.simulated / FASTER:.2f}",
            f"{one.end_to_end:.2f}",
            f"{one.total:.1f}",
            str(one.migrations),
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
