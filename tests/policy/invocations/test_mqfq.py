"""MQFQ-Sticky: sequences that follow from policies.md §5.1 by hand."""

from __future__ import annotations

from typing import Any

import pytest

from .sequences import order, together, world
from .world import World


def test_tags_follow_the_arrivals() -> None:
    made = world("mqfq", tokens=1, overrun=10.0)
    policy: Any = made.policy
    together(made, "aaa")  # S = 0, 1, 2; the first runs
    assert (policy.virtual_time("a"), policy.clock) == (1.0, 1.0)
    made.arrive("b")  # S = max(Global_VT, last F) = 1
    assert policy.virtual_time("b") == 1.0
    made.finish(1)
    assert (policy.virtual_time("a"), policy.clock) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("overrun", "expected"), [(0.0, "abababaaa"), (1.0, "aabababaa"), (2.0, "aaabababa")]
)
def test_a_function_is_throttled_when_it_is_further_ahead_than_the_overrun(
    overrun: float, expected: str
) -> None:
    """The longest queue goes on up to the overrun; `<=`: with T = 0 whoever has the least may run."""
    made = world("mqfq", tokens=1, overrun=overrun)
    together(made, "aaaaaabbb")
    assert order(made) == expected


def test_fewest_in_flight_goes_before_the_longest_queue() -> None:
    made = world("mqfq", tokens=2, functions="abc")
    together(made, "aaaabbbc")
    assert made.log == ["a@0 cold", "b@0 cold"]  # the longest; then, a being in flight, the next longest
    made.finish(1)
    assert made.log[2:] == ["a@0 warm"]  # nobody of a in flight any more, and three of it wait


def test_with_one_token_the_longest_queue_goes_first() -> None:
    made = world("mqfq", tokens=1, functions="abc")
    together(made, "abbccc")
    assert made.log == ["c@0 cold"]


def test_an_empty_queue_is_active_for_twice_its_mean_gap_between_calls() -> None:
    made = world("mqfq", tokens=1, functions="abc")  # two of three fit
    policy: Any = made.policy
    for _ in range(3):
        made.finish(made.arrive("a"), 1.0)
        made.now += 2.0
    assert policy.time_to_live("a") == 6.0
    made.tick(3.9)  # 5.9 s after its end
    assert policy.state("a").value == "active"
    made.tick(0.2)
    assert policy.state("a").value == "inactive"
    assert made.log[-1] == "a@0 warm"  # all fits: nobody leaves
    together(made, "bc")
    order(made)
    assert made.log[-2:] == ["send a", "c@0 cold"]


def test_memory_leaves_when_its_queue_is_inactive_and_comes_back_with_a_call() -> None:
    made = world("mqfq", tokens=1, functions="abc", ttl=1.0)
    together(made, "abc")
    order(made)  # c's start sent a away
    assert made.log == ["a@0 cold", "b@0 cold", "send a", "c@0 cold"]
    made.tick(2.0)
    assert made.log[4:] == ["send b", "send c"]  # more is wanted than there is: they go ahead of time
    made.arrive("b")
    assert made.log[6:] == ["bring b", "b@0 warm"]


def test_above_the_limit_of_utilisation_a_busy_gpu_gets_no_more() -> None:
    made = world("mqfq", tokens=2, limit=0.4)
    together(made, "ab")
    assert made.log == ["a@0 cold"]  # alone it is estimated at 0.5
    made.finish(1)
    assert made.log[1:] == ["b@0 cold"]


@pytest.mark.parametrize("name", ["fcfs", "mqfq", "lb", "lalbo3", "auto"])
def test_a_gpu_that_another_dispatcher_keeps_busy_comes_last_but_is_not_idle(name: str) -> None:
    made = world(name, gpus=3, tokens=1)
    made.policy.on_others(0, 2, made.now)
    made.policy.on_others(1, 1, made.now)
    together(made, "aba")
    assert [word.split()[0][-2:] for word in made.log] == ["@2", "@1", "@0"]
    made = world(name, gpus=3, tokens=1)
    made.policy.on_others(0, 1, made.now)
    made.policy.on_others(0, 0, made.now)  # it is gone
    together(made, "a")
    assert made.log == ["a@0 cold"]


def test_strictly_who_is_just_as_far_ahead_as_the_overrun_is_throttled() -> None:
    made = world("mqfq", tokens=1, overrun=1.0, strict=True)
    together(made, "aaaaaabbb")
    assert order(made) == "abababaaa"  # as with an overrun of 0 that is not strict
    with pytest.raises(ValueError, match="lets nobody run"):
        World("mqfq", {"overrun": 0.0, "strict": True})


def test_the_source_s_time_to_live_is_a_multiple_of_the_execution_time() -> None:
    made = world("mqfq", tokens=1, alpha=1.5, lives="runs")
    policy: Any = made.policy
    made.finish(made.arrive("a"), 4.0)
    made.now += 100.0
    made.arrive("a")
    assert policy.time_to_live("a") == 6.0


def test_only_those_that_would_finish_last_are_compared() -> None:
    """Four wait; the longest queue is of the shortest: it would finish first, and is not looked at."""
    made = World("mqfq", {"tokens": 1, "select": 2.0, "overrun": 100.0})
    made.gpu(0)
    for name, run in (("a", 0.1), ("b", 5.0), ("c", 2.0), ("d", 1.0)):
        made.function(name, 10, run=run)
    together(made, "aaaa" + "b" + "ccc" + "dd")  # finish tags 0.4, 5, 6, 2
    assert made.log == ["c@0 cold"]
    part = World("mqfq", {"tokens": 1, "select": 0.25, "overrun": 100.0})
    part.gpu(0)
    for name, run in (("a", 0.1), ("b", 5.0), ("c", 2.0), ("d", 1.0)):
        part.function(name, 10, run=run)
    together(part, "aaaa" + "bb" + "cccc" + "dd")  # one of four: b, at 10
    assert part.log == ["b@0 cold"]


def test_an_estimate_of_utilisation_stays_where_nobody_measured() -> None:
    made = world("mqfq", memory=200, tokens=3, limit=0.6)
    together(made, "abab")
    assert len(made.live) == 2  # 0.5, and one more makes 1.0
    policy: Any = made.policy
    policy.on_tick(1.0, {})
    made.settle()
    assert len(made.live) == 2
    policy.on_tick(2.0, {0: 0.2})  # 0.6 · 0.2 + 0.4 · 1.0
    made.settle()
    assert len(made.live) == 3
