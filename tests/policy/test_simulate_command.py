"""`gpuferry simulate`: statuses, and what goes where."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from gpuferry.monitor.simulator.paper import interval

from tests.helpers.warm import CLI
from tests.monitor.harness import run

NEGATIVE = "negative.csv"  # a trace that no day ever had


def written(path: Path, **calls: int) -> Path:
    """A day on which functions are called so often in each minute."""
    head = ["HashOwner", "HashApp", "HashFunction", "Trigger", *(str(minute) for minute in range(1, 1441))]
    rows = [["o", "a", name, "http", *[count] * 1440] for name, count in calls.items()]
    with path.open("w", newline="") as lines:
        csv.writer(lines).writerows([head, *rows])
    return path


def simulate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run([*CLI, "simulate", *map(str, arguments)], dict(os.environ))


def report(*arguments: str | Path) -> Any:
    done = simulate(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.system
def test_it_compares_sharing_with_none_by_itself() -> None:
    done = simulate()
    assert done.returncode == 0, done.stderr
    title, head, *rows = done.stdout.splitlines()
    assert title.strip() == "DGSF, Table III: 60 jobs on 4 GPUs"
    assert head.split()[:4] == ["policy", "end", "to", "end"]
    assert [row.split(",")[0].strip() for row in rows] == ["exclusive", "best-fit", "worst-fit"]
    assert not done.stderr


@pytest.mark.system
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
    day = written(tmp_path / "day.csv", f=4, g=2)
    shown = report("--azure", day, "--minutes", "7-8", "--per-minute", "30", "--policy", "best-fit")
    assert shown["workload"] == {"name": "day.csv, minutes 7–8", "jobs": 60}
    assert shown["runs"][0]["refused"] == 0


@pytest.mark.system
def test_a_trace_with_options_is_a_page_with_means_and_intervals(tmp_path: Path) -> None:
    day = written(tmp_path / "day.csv", f=4, g=2)
    few = ["--minutes", "7", "--per-minute", "20", "--gpus", "1", "--seeds", "5", "--policy", "lalbo3,mqfq"]
    shown = report("--trace", day, *few, "--option", "skips=3", "--option", "overrun=2", "--page", tmp_path)
    assert shown["schema"] == "gpuferry.simulate.trace/1"
    assert {name: len(runs) for name, runs in shown["runs"].items()} == {"lalbo3": 5, "mqfq": 5}
    assert all(one["invocations"] == 20 for runs in shown["runs"].values() for one in runs)
    text = (tmp_path / "index.html").read_text()
    assert "Mean of 5 seeds" in text
    means = [one["mean"] for one in shown["runs"]["mqfq"]]
    assert f"<td>{fmean(means):.3f} ± {interval(means):.3f}</td>" in text
    assert text.count("data:image/png;base64,") == 4


@pytest.mark.system
def test_a_paper_s_numbers_with_pictures(tmp_path: Path) -> None:
    shown = report("--paper", "dgsf", "--page", tmp_path)
    assert shown["schema"] == "gpuferry.simulate.paper/1"
    rows = {one["name"]: one for one in shown["rows"]}
    for part in ("Table III", "Table IV, 3 GPUs", "four small functions", "bursts", "figure 8"):
        assert any(part in name for name in rows), part
    out = [name for name, one in rows.items() if not one["holds"]]
    text = (tmp_path / "index.html").read_text()
    assert text.count("data:image/png;base64,") == 7
    why = [line.rpartition("<td>")[2] for line in text.splitlines() if 'class="no"' in line]
    assert len(why) == len(out)
    assert "</td></tr>" not in why  # each row that is out of tolerance says why


def test_a_bandwidth_is_given_or_measured() -> None:
    """A session that moves slowly holds the others up."""
    arguments = ("dgsf-fig8", "--policy", "best-fit", "--migration", "dgsf")
    slow, measured = (report(*arguments, "--bandwidth", given)["runs"][0] for given in ("16MiB", "measured"))
    assert slow["end_to_end"] > measured["end_to_end"]


@pytest.mark.some(5)
@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["--paper", ""], 2, "--paper '': no such paper"),
        (["--paper", "lalbo"], 2, "--paper lalbo: no such paper; did you mean lalb?"),
        (["--trace", "x.csv", "--policy", "FCFS"], 2, "--policy FCFS: no such thing; did you mean fcfs?"),
        (["--trace", "x.csv", "--policy", "fcfs,"], 2, "--policy '': no such thing"),
        (["--paper", "nothing"], 2, "choose from lalb, mqfq, kaas, dgsf, kubeshare"),
        (["--paper", "dgsf", "--seeds", "4"], 2, "--seeds"),
        (["--trace", "x.csv", "--policy", "nothing"], 2, "--policy nothing: no such thing"),
        (["--trace", "x.csv", "--option", "skips"], 2, "--option skips: NAME=VALUE is wanted"),
        (["--trace", "x.csv", "--option", "skip=3"], 2, "mqfq: overrun, tokens, alpha"),
        (
            ["--trace", "x.csv", "--policy", "lalb", "--option", "x=3"],
            2,
            "lalb has no option x: it has",
        ),
        (["--trace", "x.csv", "--option", "skips=few"], 2, "--policy lalbo3: skips is a whole number"),
        (["--trace", "x.csv", "--policy", "kaas-exclusive", "--tokens", "2"], 2, "one invocation at a time"),
        (["nothing"], 2, "nothing: no such recipe"),
        (["--policy", "nothing"], 2, "--policy nothing: no such thing"),
        (["--queue", "nothing"], 2, "choose from fcfs, backfill"),
        (["--memory", "much"], 2, "no size"),
        (["--memory", "0"], 2, "--memory 0: more than 0 is wanted"),
        (["--bandwidth", "0"], 2, "--bandwidth 0: more than 0 is wanted"),
        (["--bandwidth", "fast"], 2, "--bandwidth: "),
        (["dgsf-heavy", "--azure", "x.csv"], 2, "exclude each other"),
        (["--paper", "dgsf", "--gpus", "2"], 2, "--gpus means nothing with --paper"),
        (["--trace", "x.csv", "--max-wait", "1"], 2, "--max-wait means nothing with --trace"),
        (["dgsf-fig8", "--seed", "1"], 2, "--seed means nothing with a recipe"),
        (["--azure", "x.csv", "--tokens", "2"], 2, "--tokens means nothing with --azure"),
        (["--azure", "x.csv", "--minutes", "0-5"], 2, "minutes 1 to 1440"),
        (["--azure", "x.csv", "--minutes", "early"], 2, "write 1-6"),
        (["--azure", "/nowhere/x.csv"], 1, "cannot read the trace: /nowhere/x.csv: No such file"),
        (["--trace", "/nowhere/x.csv"], 1, "cannot read the trace: /nowhere/x.csv: No such file"),
        (["--trace", NEGATIVE], 1, ":2: -1 calls in a minute"),
        (["dgsf-fig8", "--plot", "/nowhere/x.png"], 1, "cannot write the plot"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], status: int, complaint: str) -> None:
    if NEGATIVE in arguments:
        path = written(tmp_path / NEGATIVE, f=-1)
        arguments = [str(path) if one == NEGATIVE else one for one in arguments]
    done = simulate(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
