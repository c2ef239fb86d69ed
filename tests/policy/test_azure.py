"""The Azure Functions 2019 trace, in small files of the same columns."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from gpuferry.monitor.policy import MOVERS, build
from gpuferry.monitor.simulator.azure import MINUTES, Slice, TraceError, read, scaled
from gpuferry.monitor.simulator.engine import Simulation
from gpuferry.monitor.simulator.invocations.trace import replay
from gpuferry.monitor.simulator.invocations.workload import Server
from gpuferry.monitor.simulator.models import LARGE, MEDIUM, SMALL, spread
from gpuferry.monitor.simulator.workload import MIB
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import RandomState

HEADER = ["HashOwner", "HashApp", "HashFunction", "Trigger", *(str(n) for n in range(1, MINUTES + 1))]


def write(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="") as lines:
        csv.writer(lines).writerows(rows)
    return path


def function(name: str, *calls: int) -> list[object]:
    return ["owner", "app-" + name, name * 64, "http", *calls, *[0] * (MINUTES - len(calls))]


@pytest.fixture
def day(tmp_path: Path) -> Path:
    rows = [function("a", 1, 1), function("b", 30, 60), function("c", 10, 20), function("d", 0, 0, 500)]
    return write(tmp_path / "invocations_per_function_md.anon.d01.csv", [HEADER, *rows])


def test_the_most_called_functions_as_they_were(day: Path) -> None:
    jobs = read(day, Slice(1, 2, functions=2, per_minute=None)).jobs
    assert Counter((job.function, job.launch >= 60) for job in jobs) == {
        ("b" * 64, False): 30,
        ("b" * 64, True): 60,
        ("c" * 64, False): 10,
        ("c" * 64, True): 20,
    }
    assert [job.launch for job in jobs] == sorted(job.launch for job in jobs)
    assert jobs[-1].launch < 120


def test_every_minute_is_scaled_to_the_same_number(day: Path) -> None:
    jobs = read(day, Slice(1, 2, functions=2, per_minute=325)).jobs
    assert Counter(job.launch >= 60 for job in jobs) == {False: 325, True: 325}
    assert Counter(job.function for job in jobs) == {"b" * 64: 488, "c" * 64: 162}


def test_minutes_in_the_middle_of_the_day_start_at_zero(day: Path) -> None:
    jobs = read(day, Slice(3, 3, functions=1, per_minute=None)).jobs
    assert len(jobs) == 500
    assert 0 <= jobs[0].launch < jobs[-1].launch < 60


def test_the_seed_decides(day: Path) -> None:
    assert read(day, Slice(seed=1)).jobs == read(day, Slice(seed=1)).jobs
    assert read(day, Slice(seed=1)).jobs != read(day, Slice(seed=2)).jobs


def test_functions_become_models_evenly_small_medium_and_large(day: Path) -> None:
    assert [spread(rank) for rank in range(4)] == [SMALL[0], MEDIUM[0], LARGE[0], SMALL[1]]
    assert {spread(rank) for rank in range(27)} == {*SMALL, *MEDIUM, *LARGE}
    jobs = {job.function[0]: job for job in read(day, Slice(1, 2, functions=3)).jobs}
    assert jobs["b"].memory == SMALL[0].megabytes * MIB
    assert jobs["c"].work == MEDIUM[0].load + MEDIUM[0].inference
    assert len({job.memory for job in jobs.values()}) == 3


def test_durations_and_memory_of_the_trace_go_first(day: Path, tmp_path: Path) -> None:
    durations = write(
        tmp_path / "durations.csv",
        [
            ["HashOwner", "HashApp", "HashFunction", "Average", "Count", "Minimum", "Maximum"],
            ["owner", "app-b", "b" * 64, "1500", 3, 1, 2],
        ],
    )
    memory = write(
        tmp_path / "memory.csv",
        [["HashOwner", "HashApp", "SampleCount", "AverageAllocatedMb"], ["owner", "app-c", 7, "256"]],
    )
    jobs = {job.function[0]: job for job in read(day, Slice(1, 2), durations=durations, memory=memory).jobs}
    assert (jobs["b"].work, jobs["b"].memory) == (1.5, SMALL[0].megabytes * MIB)
    assert (jobs["c"].work, jobs["c"].memory) == (MEDIUM[0].load + MEDIUM[0].inference, 256 * MIB)


def test_memory_is_of_the_app_whatever_the_sample_count(day: Path, tmp_path: Path) -> None:
    rows = [["HashOwner", "HashApp", "SampleCount", "AverageAllocatedMb"], ["owner", "app-b", "7", "x"]]
    with pytest.raises(TraceError, match=r"memory\.csv:2: "):
        read(day, Slice(), memory=write(tmp_path / "memory.csv", rows))


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], r"calls\.csv: it is empty"),
        ([["x"]], r":1: column 1 should be HashOwner"),
        ([HEADER[:-1]], r":1: column 1444 should be 1440"),
        ([HEADER, ["owner", "app", "f", "http", 1]], r":2: 5 columns instead of 1444"),
        ([HEADER, ["owner", "app", "f", "http", "x", *[0] * 1439]], r":2: 'x' is no number of calls"),
        ([HEADER, ["owner", "app", "f", "http", -3, *[0] * 1439]], r":2: -3 calls in a minute"),
        ([HEADER], r"calls\.csv, minutes 1–6: no calls"),
        ([HEADER, ["owner", "app", "f", "http", *[0] * 6, *[1] * 1434]], r"minutes 1–6: no calls"),
        ([HEADER, ["owner", "app", "f" * (1 << 18), "http", *[0] * 1440]], r":2: field larger than"),
        ([HEADER, ["owner", "app", "f\0", "http", *["\0"] * 1440]], r":2: "),
    ],
)
def test_another_format_is_an_error_that_says_where(
    tmp_path: Path, rows: Sequence[Sequence[object]], complaint: str
) -> None:
    with pytest.raises(TraceError, match=complaint):
        read(write(tmp_path / "calls.csv", rows), Slice())


def test_more_calls_than_memory_holds_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "calls.csv", [HEADER, ["owner", "app", "f", "http", *[99_999_999_999] * 1440]])
    with pytest.raises(TraceError, match="599999999994 calls, at most 5000000: --per-minute"):
        read(path, Slice(per_minute=None))


@pytest.mark.parametrize("average", ["inf", "nan", "-1", "-inf"])
def test_a_duration_that_is_none_is_an_error_that_says_where(day: Path, tmp_path: Path, average: str) -> None:
    """With an infinite one a simulation ticks for ever."""
    columns = ["HashOwner", "HashApp", "HashFunction", "Average"]
    durations = write(tmp_path / "durations.csv", [columns, ["owner", "app-b", "b" * 64, average]])
    with pytest.raises(TraceError, match=rf"durations\.csv:2: Average is {average}"):
        read(day, Slice(), durations=durations)


def test_what_is_no_text_is_an_error_that_says_where(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    path.write_bytes(",".join(HEADER).encode() + b"\no,a,f,http,\xff" + b",0" * (MINUTES - 1) + b"\n")
    with pytest.raises(TraceError, match=r"calls\.csv:2: '\\\\xff' is no number of calls"):
        read(path, Slice())


def test_functions_whose_names_begin_alike_are_two(tmp_path: Path) -> None:
    rows = [function("a", 7), ["owner", "app", "aaaaaaaa-other", "http", 5, *[0] * (MINUTES - 1)]]
    jobs = read(write(tmp_path / "calls.csv", [HEADER, *rows]), Slice(1, 1, per_minute=None)).jobs
    assert Counter(job.function for job in jobs) == {"a" * 64: 7, "aaaaaaaa-other": 5}
    calls = replay(tmp_path / "calls.csv", Slice(1, 1, per_minute=None), Server(gpus=1, memory=8 << 30))
    assert calls.profiles.keys() == {"a" * 64, "aaaaaaaa-other"}


def test_functions_of_one_name_in_two_apps_are_two(tmp_path: Path) -> None:
    rows = [["owner", app, "same", "http", 5, *[0] * (MINUTES - 1)] for app in ("one", "two")]
    jobs = read(write(tmp_path / "calls.csv", [HEADER, *rows]), Slice(1, 1, per_minute=None)).jobs
    assert Counter(job.function for job in jobs) == {"one/same": 5, "two/same": 5}


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(0, 1000))
def test_scaling_keeps_sum_and_ratios(counts: list[int], total: int) -> None:
    result = scaled(counts, total)
    if not sum(counts):
        assert result == counts
        return
    assert sum(result) == total
    for before, after in zip(counts, result, strict=True):
        assert abs(after - before * total / sum(counts)) < 1


def test_on_a_slice_with_a_long_tail_migration_pays_and_ours_pays_more(tmp_path: Path) -> None:
    """Ten minutes, popularity by rank, run times from one second to a minute: sums of all jobs' times."""
    random = RandomState(1)
    calls, durations = [], []
    for rank in range(15):
        row = function(f"{rank:02d}", *random.poisson(20 / (rank + 1), size=10).tolist())
        calls.append(row)
        durations.append([*row[:3], round(1000 * float(random.lognormal(1.2, 1.1)))])
    trace = write(tmp_path / "calls.csv", [HEADER, *calls])
    lasting = write(
        tmp_path / "durations.csv", [["HashOwner", "HashApp", "HashFunction", "Average"], *durations]
    )
    workload = read(trace, Slice(1, 10, per_minute=30), durations=lasting)
    totals = {
        mover: Simulation(build("best-fit", migration=mover), workload, workload.server).run().summary().total
        for mover in MOVERS
    }
    assert totals["auto"] < totals["dgsf"] < totals["off"]
