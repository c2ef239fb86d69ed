"""Runs of several policies side by side, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from ..policy.build import build
from .engine import Simulation
from .result import Result
from .workload import Server, Workload

SCHEMA = "gpuferry.simulate/1"


@dataclass(frozen=True)
class Run:
    """One policy's result on a workload."""

    fit: str
    queue: str
    migration: str
    result: Result

    @property
    def name(self) -> str:
        """The policy's parts, as a table's first column."""
        return f"{self.fit}, {self.queue}{'' if self.migration == 'off' else f', migration {self.migration}'}"


def run(workload: Workload, server: Server, fit: str, queue: str, migration: str, max_wait: float) -> Run:
    """Simulate the workload under the policy with these names. `max_wait` in seconds."""
    policy = build(fit, queue, migration)
    return Run(fit, queue, migration, Simulation(policy, workload, server, max_wait).run())


def table(workload: Workload, server: Server, runs: Sequence[Run]) -> Table:
    """The runs as a table for a terminal, one row each."""
    title = f"{workload.name}: {len(workload.jobs)} jobs on {server.gpus} GPUs"
    shown = Table(title=title, title_justify="left", box=None)
    shown.add_column("policy", no_wrap=True)
    columns = ("end to end", "sum of jobs", "mean wait", "p95 wait", "utilisation", "migrations", "refused")
    for column in columns:
        shown.add_column(column, justify="right", no_wrap=True)
    for each in runs:
        summary = each.result.summary()
        shown.add_row(
            each.name,
            f"{summary.end_to_end:.1f} s",
            f"{summary.total:.1f} s",
            f"{summary.wait_mean:.2f} s",
            f"{summary.wait_p95:.2f} s",
            f"{summary.utilisation:.1%}",
            str(summary.migrations),
            str(summary.refused),
        )
    return shown


def as_json(workload: Workload, server: Server, runs: Sequence[Run]) -> dict[str, Any]:
    """The runs as JSON, for scripts."""
    return {
        "schema": SCHEMA,
        "workload": {"name": workload.name, "jobs": len(workload.jobs)},
        "server": asdict(server),
        "runs": [
            {
                "policy": each.fit,
                "queue": each.queue,
                "migration": each.migration,
                **each.result.summary().as_json(),
            }
            for each in runs
        ],
    }
