"""KubeShare's published numbers, within the tolerances of policies.md §3.4, and its simulator by hand."""

from __future__ import annotations

import math

import pytest
from gpuferry.monitor.policy import Portion, build
from gpuferry.monitor.policy.quota import Fixed
from gpuferry.monitor.policy.sharing import SECOND
from gpuferry.monitor.policy.timeshare import TimeSharing
from gpuferry.monitor.policy.tokens import Client
from gpuferry.monitor.simulator import kubeshare
from gpuferry.monitor.simulator.paper import Row, row
from gpuferry.monitor.simulator.sharing import Share, SharedGpus
from gpuferry.monitor.simulator.tokens import Busy, shares


def test_jobs_that_fit_together_share_and_others_wait() -> None:
    done = SharedGpus(build("kubeshare"), 1, 8).run(
        [Share(0.0, 4.0, Portion(600)), Share(1.0, 4.0, Portion(400)), Share(1.0, 2.0, Portion(1))]
    )
    assert done.finished == [4.0, 5.0, 6.0]
    assert list(done.active) == [(0.0, 0), (0.0, 1), (6.0, 0)]
    assert done.per_minute == 30
    assert done.active_between(4.0, 8.0) == 0.5


def test_who_interferes_slows_down_while_they_are_two() -> None:
    gpus = SharedGpus(build("kubeshare"), 1, 8, kubeshare.interfering)
    done = gpus.run([Share(0.0, 6.0, Portion(450), "B"), Share(0.0, 3.0, Portion(450), "B")])
    assert done.finished == [4.5, 7.5]  # 3 s at two thirds of the speed; then the other has 3 s left, alone


def test_a_session_that_is_alone_is_held_to_its_limit() -> None:
    turns = TimeSharing(10 * SECOND, Fixed(SECOND // 10), 0)
    ((had,),) = shares(turns, [Busy(Client(1, 100, 300), 0, 60)], [(20.0, 60.0)])
    assert had == pytest.approx(0.3, abs=0.005)


def test_figure_6() -> None:
    rows = kubeshare.shares_of_figure_6()
    assert len(rows) == 8
    assert [one for one in rows if not one.holds] == []


@pytest.mark.slow
def test_jobs_per_minute_with_and_without_sharing() -> None:
    rows = [kubeshare.throughput(mean, [0], number=1800) for mean in kubeshare.MEANS]
    assert [one for one in rows if not one.holds] == []
    simulated = [one.simulated for one in rows]
    assert simulated == sorted(simulated, reverse=True)
    assert kubeshare.alone([0], number=1800).holds


def test_active_gpus_at_half_load() -> None:
    assert [one for one in kubeshare.active([0], number=1500) if not one.holds] == []


@pytest.mark.slow
def test_anti_affinity_of_those_that_interfere() -> None:
    """It wins when more than half are A, is Kubernetes where all are B, and nothing where all are A."""
    found = {part: kubeshare.interference(part, [0, 1], 800) for part in (0.0, 0.25, 0.75, 1.0)}
    gain = {part: sum(one["anti-affinity"]) / sum(one["no labels"]) for part, one in found.items()}
    assert gain[0.75] > 1.02
    assert gain[0.25] < 0.98
    assert gain[1.0] == pytest.approx(1.0)
    assert sum(found[0.0]["anti-affinity"]) == pytest.approx(sum(found[0.0]["exclusive"]))
    assert sum(found[0.0]["no labels"]) > 1.2 * sum(found[0.0]["exclusive"])


def test_an_interval_is_students() -> None:
    found = row("x", 1.0, [1.0, 2.0, 3.0], 0.0, 2.0)
    assert found.interval == pytest.approx(4.303 / math.sqrt(3))
    assert found == Row("x", 1.0, 2.0, found.interval, 0.0, 2.0)
    assert row("x", 1.0, [3.0], 0.0, 2.0).interval == 0.0
    assert not row("x", 1.0, [3.0], 0.0, 2.0).holds
