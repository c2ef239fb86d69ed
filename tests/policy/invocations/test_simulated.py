"""What the simulator reproduces of the papers (policies.md 2.5, 4.4, 5.3), with one seed."""

from __future__ import annotations

import math
from itertools import combinations
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from gpuferry.monitor.policy.invocations import Function, build
from gpuferry.monitor.simulator.azure import Slice, read
from gpuferry.monitor.simulator.invocations import kaas, lalb, mqfq
from gpuferry.monitor.simulator.invocations.engine import Simulation
from gpuferry.monitor.simulator.invocations.page import write
from gpuferry.monitor.simulator.invocations.plots import compared, gaps
from gpuferry.monitor.simulator.invocations.result import Result, Summary
from gpuferry.monitor.simulator.invocations.runs import Report, Shown
from gpuferry.monitor.simulator.invocations.trace import generate, replay
from gpuferry.monitor.simulator.invocations.workload import Calls, Profile, Server
from gpuferry.monitor.simulator.paper import as_json, row
from gpuferry.monitor.simulator.papers import ours, together


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


@pytest.mark.system
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
    others = [one for name, one in got.items() if name != "auto"]
    best = min(one.mean for one in others), min(one.miss for one in others)
    assert mean["auto"] / best[0] * got["auto"].miss / best[1] < 1  # better in the sum


@pytest.mark.system
@pytest.mark.some(1)
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
    ratios = [
        of("auto", figure) / min(of("fcfs", figure), of("mqfq", figure))
        for figure in ("mean", "between", "cold")
    ]
    assert prod(ratios) < 1  # better in the sum


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


@pytest.mark.system
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


def test_requests_at_random_wait_little_at_four_fifths_of_what_can_be_done() -> None:
    calls = kaas.online("bert", 16, 1200, seed=1)
    gaps_between = calls.arrivals[-1][0] / len(calls.arrivals)
    assert gaps_between == pytest.approx(0.092 / 4 / 0.8, rel=0.1)
    for name in ("kaas-affinity", "auto"):
        got = summary(name, calls)
        assert got.invocations == 1200
        assert 0.092 <= got.p50 <= got.p90 <= 10 * 0.092


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resnet50", "jacobi"])
def test_ours_waits_no_longer_than_kaas_where_a_load_costs_little(kind: str) -> None:
    each = {
        name: [summary(name, kaas.online(kind, 16, 2500, seed)) for seed in range(10)]
        for name in ("kaas-affinity", "auto")
    }
    for figure in ("p50", "p90"):
        theirs, mine = (fmean(getattr(one, figure) for one in found) for found in each.values())
        assert mine <= 1.03 * theirs


def test_what_fits_is_loaded_once_as_functions_and_as_buffers() -> None:
    result = run("kaas-affinity", kaas.calls("cgemm", 16, 5.0, tasks=True))
    whole, buffers = kaas.loads("cgemm", result)
    assert whole == buffers < 32
    result = run("kaas-affinity", kaas.calls("cgemm", 29, 5.0, tasks=True))  # one more than fits
    whole, buffers = kaas.loads("cgemm", result)
    assert 32 < buffers < whole  # hot ones stay: they are counted since they were loaded
    _, by_last_use = kaas.loads("cgemm", result, hot=1 << 30)
    assert by_last_use == pytest.approx(whole, rel=0.25)


def test_ours_against_the_best_is_one_number_that_no_row_rules() -> None:
    rows = [ours("x", [0.5]), ours("y", [1.03]), row("LALB / LB", 1.0, [9.0], 0.0, 1.0)]
    (all_of_them,) = together(rows)
    assert all_of_them.simulated == pytest.approx(math.sqrt(0.5 * 1.03))
    assert all_of_them.holds
    assert as_json("lalb", [0], [all_of_them])["rows"][0]["published"] is None
    assert all_of_them.stated == "–"
    assert not together([ours("z", [1.2])])[0].holds


def test_a_made_up_day_is_read_as_the_real_ones_are(tmp_path: Path) -> None:
    day = tmp_path / "day.csv"
    generate(day, functions=30, seed=1)
    assert len(read(day, Slice(100, 101, functions=10, per_minute=50)).jobs) == 100
    calls = replay(day, Slice(1, 1, functions=5, per_minute=40), Server(gpus=2, memory=8 << 30))
    assert (len(calls.arrivals), len(calls.profiles)) == (40, 5)
    assert all(profile.run > 1 and profile.cold > 2 for profile in calls.profiles.values())
    assert summary("lalbo3", calls).invocations == 40
    small = replay(day, Slice(1, 1, functions=5, per_minute=40), Server(gpus=2, memory=1400 << 20))
    some = summary("lalbo3", small)  # whose functions need more than a GPU has: they ran all the same
    assert 0 < some.refused < some.invocations
    none = replay(day, Slice(1, 1, functions=5, per_minute=40), Server(gpus=2, memory=1 << 20))
    assert (summary("auto", none).refused, summary("auto", none).throughput) == (40, 0.0)


@pytest.mark.system
def test_the_page_holds_rows_remarks_and_pictures(tmp_path: Path) -> None:
    result = run("fcfs", small(arrivals=[(0.0, "a"), (1.0, "a")]))
    rows = [row("good <one>", 1.0, [1.0], 0.9, 1.1), row("bad one", 1.0, [2.0, 3.0], 0.9, 1.1)]
    numbers = {"fcfs": [result.summary()]}
    report = Report("A paper", rows, {"bad": "because"}, [Shown("small", {"fcfs": result}, numbers)])
    report.pictures.append(("rows <one>", compared(rows)))
    text = write(tmp_path / "made", report).read_text()
    assert "good &lt;one&gt;" in text
    assert "because" in text
    assert text.count("data:image/png;base64,") == 5
    assert "rows &lt;one&gt;" in text
    assert gaps(result) == [0.0]
