"""`gpuferry simulate`: statuses, and what goes where."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.warm import CLI
from tests.monitor.harness import run


def simulate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run([*CLI, "simulate", *map(str, arguments)], dict(os.environ))


def report(*arguments: str | Path) -> Any:
    done = simulate(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_compares_sharing_with_none_by_itself() -> None:
    done = simulate()
    assert done.returncode == 0, done.stderr
    title, head, *rows = done.stdout.splitlines()
    assert title.strip() == "DGSF, Table III: 60 jobs on 4 GPUs"
    assert head.split()[:4] == ["policy", "end", "to", "end"]
    assert [row.split(",")[0].strip() for row in rows] == ["exclusive", "best-fit", "worst-fit"]
    assert not done.stderr


def test_json_and_every_option(tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    many = ["--policy", "worst-fit", "--policy", "first-fit", "--queue", "fcfs", "--queue", "backfill"]
    server = ["--gpus", "3", "--memory", "13GiB", "--workers", "3"]
    shown = report("dgsf-light", *many, *server, "--migration", "dgsf", "--max-wait", "60", "--plot", plot)
    assert shown["schema"] == "gpuferry.simulate/1"
    assert shown["workload"] == {"name": "DGSF, Table IV", "jobs": 60}
    assert (shown["server"]["gpus"], shown["server"]["memory"], shown["server"]["workers"]) == (
        3,
        13 << 30,
        3,
    )
    assert [(run["policy"], run["queue"]) for run in shown["runs"]] == [
        ("worst-fit", "fcfs"),
        ("first-fit", "fcfs"),
        ("worst-fit", "backfill"),
        ("first-fit", "backfill"),
    ]
    assert all(run["migration"] and run["end_to_end"] > 200 for run in shown["runs"])
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_an_azure_trace(tmp_path: Path) -> None:
    day = tmp_path / "day.csv"
    minutes = [str(minute) for minute in range(1, 1441)]
    with day.open("w", newline="") as lines:
        csv.writer(lines).writerows(
            [
                ["HashOwner", "HashApp", "HashFunction", "Trigger", *minutes],
                ["o", "a", "f", "http", *[4] * 1440],
                ["o", "a", "g", "http", *[2] * 1440],
            ]
        )
    shown = report("--azure", day, "--minutes", "7-8", "--per-minute", "30", "--policy", "best-fit")
    assert shown["workload"] == {"name": "day.csv, minutes 7–8", "jobs": 60}
    assert shown["runs"][0]["refused"] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["nothing"], 2, "nothing: no such recipe"),
        (["--policy", "nothing"], 2, "--policy nothing: no such thing"),
        (["--queue", "nothing"], 2, "choose from fcfs, backfill"),
        (["--memory", "much"], 2, "no size"),
        (["dgsf-heavy", "--azure", "x.csv"], 2, "exclude each other"),
        (["--azure", "x.csv", "--minutes", "0-5"], 2, "minutes 1 to 1440"),
        (["--azure", "x.csv", "--minutes", "early"], 2, "write 1-6"),
        (["--azure", "/nowhere/x.csv"], 1, "cannot read the trace: /nowhere/x.csv: No such file"),
        (["--trace", "/nowhere/x.csv"], 1, "cannot read the trace: /nowhere/x.csv: No such file"),
        (["dgsf-fig8", "--plot", "/nowhere/x.png"], 1, "cannot write the plot"),
    ],
)
def test_mistakes(arguments: list[str], status: int, complaint: str) -> None:
    done = simulate(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
