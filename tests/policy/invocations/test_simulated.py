"""What the simulator reproduces of the papers (policies.md 2.5, 4.4, 5.3), with one seed."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from gpuferry.monitor.policy.invocations import Function, build
from gpuferry.monitor.simulator.azure import Slice, read
from gpuferry.monitor.simulator.invocations import kaas, lalb, mqfq
from gpuferry.monitor.simulator.invocations.engine import Simulation
from gpuferry.monitor.simulator.invocations.page import write
from gpuferry.monitor.simulator.invocations.plots import gaps
from gpuferry.monitor.simulator.invocations.result import Result, Summary
from gpuferry.monitor.simulator.invocations.runs import Report, Shown
from gpuferry.monitor.simulator.invocations.trace import generate, replay
from gpuferry.monitor.simulator.invocations.workload import Calls, Profile, Server
from gpuferry.monitor.simulator.paper import row


def run(name: str, calls: Calls, **options: Any) -> Result:
    return Simulation(build(name, **options), calls).run()


def summary(name: str, calls: Calls, **options: Any) -> Summary:
    return run(name, calls, **options).summary()


def small(tokens_share: float = 1.0, **more: Any) -> Calls:
    profile = Profile(Function("a", 1 << 30), run=2.0, cold=3.0, share=tokens_share)
    return Calls("small", {"a": profile}, server=Server(memory=4 << 30), **more)


def test_time_passes_as_it_must() -> None:
    result = run("fcfs", small(arrivals=[(0.0, "a"), (1.0, "a")]))
    assert [(one.began, one.finished) for one in result.records] == [(3.0, 5.0), (5.0, 7.0)]
    assert result.summary().miss == 0.5
    assert result.summary().mean == 5.5


def test_who_shares_a_gpu_slows_down() -> None:
    result = run("fcfs", small(0.75, arrivals=[(0.0, "a"), (0.0, "a")]), tokens=2)
    assert [one.finished for one in result.records] == [6.0, 6.0]  # 2 s of work each, at 2/3 of the speed


def test_closed_callers_call_until_the_end() -> None:
    result = run("fcfs", small(closed={"a": 1}, until=8.0))
    assert [one.finished for one in result.records] == [5.0, 7.0, 9.0]


def test_lalb_comes_out_in_its_order_and_by_its_factors() -> None:
    calls = lalb.calls(35, 0)
    assert len(calls.arrivals) == 1950
    got = {name: summary(name, calls, evict="end") for name in ("rr", "lb", "rro3", "lalb", "lalbo3", "auto")}
    mean = {name: one.mean for name, one in got.items()}
    assert mean["lb"] > mean["rro3"] > mean["lalb"] >= mean["lalbo3"]
    assert mean["lb"] >= 20 * mean["lalbo3"]
    assert got["lalb"].miss <= 0.40 * got["lb"].miss
    assert got["lalbo3"].miss <= 0.30 * got["lb"].miss
    assert mean["lalbo3"] <= 0.7 * mean["lalb"]
    assert mean["auto"] <= 1.03 * mean["lalbo3"]
    assert got["auto"].miss <= 1.03 * got["lalbo3"].miss


@pytest.mark.parametrize(("pool", "most"), [(4, 0.5), (8, 0.9)])
def test_mqfq_beats_fcfs_where_containers_are_few(pool: int, most: float) -> None:
    mean: dict[str, list[Summary]] = {"fcfs": [], "mqfq": [], "auto": []}
    for seed in range(3):
        calls = mqfq.zipf(seed, 0.7, 1800.0, share=0.75)
        for name, summaries in mean.items():
            summaries.append(summary(name, calls, tokens=2, pool=pool))

    def of(name: str, figure: str) -> float:
        return fmean(getattr(one, figure) for one in mean[name])

    assert of("mqfq", "mean") <= most * of("fcfs", "mean")
    assert of("mqfq", "between") <= of("fcfs", "between")
    assert of("mqfq", "cold") <= of("fcfs", "cold")
    assert of("auto", "mean") <= 1.03 * of("mqfq", "mean")


@pytest.mark.parametrize("name", ["mqfq", "auto"])
@pytest.mark.parametrize("tokens", [1, 2])
def test_functions_that_are_always_busy_have_equal_service_within_the_bound(name: str, tokens: int) -> None:
    """(D + 1)(2T + τi + τj), with T of all tokens, over any interval (policies.md §5.1)."""
    calls = mqfq.backlogged((2, 1, 1, 1))
    overrun = 4.0
    result = run(name, calls, tokens=tokens, overrun=overrun)
    bound = (tokens + 1) * (2 * overrun * tokens + 2 * mqfq.TIMES["fft"][0])
    for since, until in combinations(range(20, 290, 45), 2):
        had = [result.service(function, since, until) for function in calls.profiles]
        assert max(had) - min(had) <= bound
    unfair = run("fcfs", calls, tokens=tokens)
    had = [unfair.service(function, 20, 280) for function in calls.profiles]
    assert max(had) / min(had) == pytest.approx(2.0, abs=0.2)
    assert max(had) - min(had) > bound  # so it can fail


def test_kaas_comes_out_with_its_two_knees() -> None:
    def rate(name: str, clients: int, seconds: float) -> float:
        calls = kaas.calls("cgemm", clients, seconds, tasks=name != "kaas-exclusive")
        return summary(name, calls).throughput

    few = rate("kaas-affinity", 4, 30.0)
    assert rate("kaas-affinity", 16, 30.0) >= 0.97 * few
    assert rate("kaas-affinity", 28, 60.0) >= 0.97 * few
    assert rate("kaas-affinity", 29, 30.0) <= 0.7 * few
    assert rate("kaas-exclusive", 5, 60.0) <= 0.05 * rate("kaas-exclusive", 4, 20.0)
    assert rate("auto", 16, 30.0) >= 0.97 * rate("kaas-affinity", 16, 30.0)


def test_a_made_up_day_is_read_as_the_real_ones_are(tmp_path: Path) -> None:
    day = tmp_path / "day.csv"
    generate(day, functions=30, seed=1)
    assert len(read(day, Slice(100, 101, functions=10, per_minute=50)).jobs) == 100
    calls = replay(day, Slice(1, 1, functions=5, per_minute=40), Server(gpus=2, memory=8 << 30))
    assert (len(calls.arrivals), len(calls.profiles)) == (40, 5)
    assert all(profile.run > 1 and profile.cold > 2 for profile in calls.profiles.values())
    assert summary("lalbo3", calls).invocations == 40


def test_the_page_holds_rows_remarks_and_pictures(tmp_path: Path) -> None:
    result = run("fcfs", small(arrivals=[(0.0, "a"), (1.0, "a")]))
    rows = [row("good <one>", 1.0, [1.0], 0.9, 1.1), row("bad one", 1.0, [2.0, 3.0], 0.9, 1.1)]
    report = Report("A paper", rows, {"bad": "because"}, [Shown("small", {"fcfs": result})])
    text = write(tmp_path / "made", report).read_text()
    assert "good &lt;one&gt;" in text
    assert "because" in text
    assert text.count("data:image/png;base64,") == 4
    assert gaps(result) == [0.0]
