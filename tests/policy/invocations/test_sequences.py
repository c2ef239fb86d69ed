"""Sequences that follow from policies.md by hand: arrivals, ends, and the order that must come out."""

from __future__ import annotations

from typing import Any

import pytest

from .world import World


def world(name: str, gpus: int = 1, functions: str = "ab", memory: int = 100, **options: Any) -> World:
    made = World(name, options)
    for number in range(gpus):
        made.gpu(number, memory)
    for function in functions:
        made.function(function, 40, run=1.0, load=3.0)
    return made


def together(made: World, names: str) -> None:
    """They arrive before anybody decides."""
    for name in names:
        made.arrive(name, settle=False)
    made.settle()


def order(made: World, seconds: dict[str, float] | None = None) -> str:
    """Run everything to its end, the invocation that was run first ending first; the order of the runs."""
    for _ in range(10_000):
        if not made.live:
            break
        number = next(iter(made.live))
        function = made.live[number].run.invocation.function
        made.finish(number, (seconds or {}).get(function, 1.0))
    return "".join(word[0] for word in made.log if "@" in word)


# -- what all do alike


def test_room_is_made_by_who_was_used_longest_ago_and_comes_back() -> None:
    made = world("fcfs", functions="abc")
    together(made, "abcab")
    order(made)
    assert made.log == [
        "a@0 cold",
        "b@0 cold",
        "send a",
        "c@0 cold",
        "send b",
        "a@0 return",
        "send c",
        "b@0 return",
    ]


def test_with_evict_end_it_is_loaded_again() -> None:
    made = world("fcfs", functions="abc", evict="end")
    together(made, "abca")
    order(made)
    assert made.log == ["a@0 cold", "b@0 cold", "end a", "c@0 cold", "end b", "a@0 cold"]


def test_a_full_pool_ends_who_was_used_longest_ago() -> None:
    made = world("fcfs", functions="abc", pool=2)
    together(made, "abcb")
    order(made)
    assert made.log == ["a@0 cold", "b@0 cold", "end a", "c@0 cold", "b@0 warm"]


def test_a_function_at_its_limit_is_passed_over() -> None:
    made = world("fcfs", gpus=2, functions="b")
    made.function("a", 40, replicas=1)
    together(made, "aab")
    assert made.log == ["a@0 cold", "b@1 cold"]
    assert order(made) == "aba"


def test_its_only_replica_follows_to_another_gpu() -> None:
    made = world("fcfs", gpus=2, functions="b")
    made.function("a", 40, replicas=1)
    made.arrive("a")
    made.finish(1)
    made.arrive("b")  # goes to the first GPU, which is as free as the other
    made.arrive("a")
    assert made.log == ["a@0 cold", "b@0 cold", "send a", "a@1 return"]


def test_what_was_deployed_with_more_memory_does_not_come_back_where_it_does_not_fit() -> None:
    """The function is smaller from now on and has room beside what runs; its replica of before has not."""
    made = world("fcfs", functions="b", tokens=2)
    made.function("a", 80, replicas=1)
    made.finish(made.arrive("a"))
    made.arrive("b")  # a's memory leaves
    made.function("a", 40, replicas=1)
    made.arrive("a")
    assert made.log == ["a@0 cold", "send a", "b@0 cold", "end a", "a@0 cold"]
    made.audit()


def test_what_no_gpu_can_hold_and_what_waits_too_long_is_refused() -> None:
    made = world("fcfs")
    made.function("large", 101)
    made.arrive("large")
    assert made.over == {1: "refused: large needs 101 bytes of a GPU, the largest has 100"}
    made.arrive("a")
    made.arrive("b", deadline=1.0)
    made.tick(0.9)
    assert len(made.waiting) == 1
    made.tick(0.1)
    assert made.over[3] == "refused: no GPU was free for it before its deadline"


def test_a_function_that_is_removed_while_it_waits_and_runs() -> None:
    made = world("fcfs")
    together(made, "aab")
    made.remove("a")
    assert made.over == {2: "refused: function a was removed"}
    made.finish(1)
    assert made.log == ["a@0 cold", "refuse 2", "end a", "b@0 cold"]
    made.audit()


def test_a_failed_invocation_goes_first_again_and_its_replica_is_gone() -> None:
    made = world("fcfs")
    together(made, "abb")
    made.begin(1)
    replica = made.live[1].replica
    assert replica is not None
    made.lose_replica(replica)
    invocation = made.live[1].run.invocation
    made.policy.on_complete(1, made.now, failed=True)
    made.live.pop(1)
    made.over[1] = "failed"
    made.again(1, invocation)
    assert order(made) == "aabb"
    assert made.log[:2] == ["a@0 cold", "a@0 cold"]


def test_a_gpu_that_leaves_takes_its_replicas_with_it() -> None:
    made = world("fcfs", gpus=2)
    together(made, "ab")
    order(made)
    made.lose_gpu(0)
    together(made, "ab")
    assert made.log[2:] == ["b@1 warm"] or made.log[2:] == ["a@1 cold"]
    order(made)
    assert made.log[2:] == ["a@1 cold", "b@1 warm"]


# -- baselines


def test_fcfs_is_strict() -> None:
    made = world("fcfs", functions="abc")
    together(made, "abcabc")
    assert order(made) == "abcabc"


def test_a_batch_takes_all_that_waits_then_and_nothing_that_comes_later() -> None:
    made = world("batch", functions="abc")
    together(made, "cabab")  # c runs, and so do all that wait of it
    made.finish(1)  # now a's two are a batch
    made.arrive("a")
    assert order(made) == "caabba"


def test_the_shortest_goes_first_until_somebody_was_left_out_for_too_long() -> None:
    made = world("sjf", deficit=2.0)
    made.function("b", 40, run=5.0)
    together(made, "baaaaaaa")
    # Two functions: each turn of a gives b half a turn, so b has 2 after four of them.
    assert order(made, {"b": 5.0}) == "aaaabaaa"


def test_equal_weights_and_lengths_alternate_under_eevdf() -> None:
    made = world("eevdf")
    together(made, "aaaabbbb")
    assert order(made) == "abababab"


def test_eevdf_serves_by_weight_and_lets_short_ones_come_sooner() -> None:
    made = World("eevdf")
    made.gpu(0)
    made.function("a", 10, run=1.0, weight=2.0)
    made.function("b", 10, run=1.0, weight=1.0)
    together(made, "a" * 20 + "b" * 20)
    first = order(made)[:15]
    assert (first.count("a"), first.count("b")) == (10, 5)
    made = World("eevdf")
    made.gpu(0)
    made.function("a", 10, run=4.0)
    made.function("b", 10, run=1.0)
    together(made, "a" * 5 + "b" * 20)
    assert order(made, {"a": 4.0}).startswith("babbbb")


# -- MQFQ-Sticky


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


# -- LALB


def test_round_robin_ignores_who_is_idle_and_load_balancing_does_not() -> None:
    made = world("rr", gpus=2)
    together(made, "abab")
    made.finish(1)
    assert made.log == ["a@0 cold", "b@1 cold", "a@0 warm"]
    made.finish(3)
    assert made.log[3:] == []  # what is left waits for GPU 1
    made = world("lb", gpus=2)
    together(made, "abab")
    made.finish(1)
    made.finish(3)
    assert made.log == ["a@0 cold", "b@1 cold", "a@0 warm", "b@0 cold"]


def test_out_of_order_round_robin_takes_the_first_that_is_resident() -> None:
    made = world("rro3", functions="abc")
    together(made, "abcab")
    assert order(made) == "aabbc"


def test_an_idle_gpu_takes_the_first_invocation_that_hits() -> None:
    made = world("lalbo3", functions="abc")
    together(made, "abcab")
    assert order(made) == "aabbc"


def test_in_order_lalb_skips_nobody() -> None:
    made = world("lalb", functions="abc")
    together(made, "abcab")
    assert order(made) == "abcab"


@pytest.mark.parametrize("skips", [1, 3, 25])
def test_nobody_is_skipped_more_often_than_the_limit(skips: int) -> None:
    made = world("lalbo3", skips=skips)
    together(made, "a" + "b" + "a" * 40)
    # It was examined once when a was loaded, and is placed at examination number skips + 1.
    assert order(made).index("b") == skips


def test_who_has_it_soon_is_waited_for_if_that_is_sooner_than_loading() -> None:
    made = world("lalbo3", gpus=2)
    made.arrive("a")
    made.now += 3
    made.begin(1)
    made.arrive("a")  # GPU 0 is done in 1 s, loading takes 3
    assert made.log == ["a@0 cold"]
    made.arrive("a")  # then in 2 s
    made.arrive("a")  # in 3 s: not sooner
    assert made.log == ["a@0 cold", "a@1 cold"]
    made.now += 1
    made.complete(1)
    assert made.log[2:] == ["a@0 warm"]


def test_phases_count_load_until_it_is_over_and_elapsed_what_is_left() -> None:
    made = world("lalbo3", gpus=2)
    made.arrive("a")
    assert made.policy.finish_time(0) == 4.0  # type: ignore[attr-defined]
    made.tick(2.0)
    assert made.policy.finish_time(0) == 4.0  # type: ignore[attr-defined]
    made.begin(1)
    assert made.policy.finish_time(0) == 1.0  # type: ignore[attr-defined]
    made = world("lalbo3", gpus=2, finish="elapsed")
    made.arrive("a")
    made.tick(2.0)
    assert made.policy.finish_time(0) == 2.0  # type: ignore[attr-defined]


# -- KaaS


def test_a_turn_costs_weight_and_idleness_earns_nothing() -> None:
    made = World("kaas-affinity", {"weights": "static"})
    made.gpu(0)
    made.function("a", 10, run=5.0)
    made.function("b", 10, run=1.0)
    together(made, "a" * 4 + "b" * 20)
    # a has 5 after its first turn: b catches up by five turns.
    assert order(made)[:13] == "abbbbbabbbbba"


def turns_of_one_open_call(options: dict[str, Any]) -> int:
    """Of 24 turns, those of a client that has one call open, of five times the cost of the other's."""
    made = World("kaas-affinity", {"weights": "static", **options})
    made.gpu(0)
    made.function("a", 10, run=5.0)
    made.function("b", 10, run=1.0)
    together(made, "ab" + "b" * 30)
    for _ in range(24):
        number = next(iter(made.live))
        if made.live[number].run.invocation.function == "a":
            made.arrive("a", settle=False)
        made.finish(number)
    return "".join(word[0] for word in made.log)[:24].count("a")


def test_a_client_with_one_open_call_does_not_lose_its_debt() -> None:
    """The source sets vt = base when a queue was empty, by which one takes nearly every turn (§2.2)."""
    assert turns_of_one_open_call({}) == 4


def test_as_the_source_has_it_a_client_with_one_open_call_takes_nearly_every_turn() -> None:
    assert turns_of_one_open_call({"returns": "base"}) >= 12


def test_a_function_s_own_gpu_is_one_that_can_hold_it() -> None:
    made = World("kaas-affinity")
    for number, memory in enumerate((60, 100)):
        made.gpu(number, memory)
    for name in "abc":
        made.function(name, 80)
    policy: Any = made.policy
    assert [policy.homes(name) for name in "abc"] == [[1, 0], [1], [1]]


def test_who_used_it_once_leaves_before_who_used_it_often() -> None:
    """KaaS's hot and cold lists (§2.4): hot is who was used more than once, with the paper's h."""
    for hot, leaves in ((1, "send b"), (2, "send a")):
        made = World("kaas-affinity", {"hot": hot})
        made.gpu(0)
        for name in "abc":
            made.function(name, 40)
        for name in "aab":  # a longest ago, and twice
            made.finish(made.arrive(name))
        made.arrive("c")
        assert made.log[-2:] == [leaves, "c@0 cold"]
    made = World("kaas-affinity")
    made.gpu(0)
    for name in "abc":
        made.function(name, 40)
    for name in "aabb":  # nobody is cold: who was used longest ago
        made.finish(made.arrive(name))
    made.arrive("c")
    assert made.log[-2:] == ["send a", "c@0 cold"]


def test_a_foreign_gpu_counts_as_ten_turns_but_is_never_idle() -> None:
    made = World("kaas-affinity", {"weights": "static"})
    made.gpu(0)
    made.gpu(1)
    made.function("a", 60, run=1.0)
    made.function("b", 60, run=1.0)
    policy: Any = made.policy
    assert (policy.homes("a"), policy.homes("b")) == ([0], [1])
    together(made, "a" * 14)
    assert made.log[:2] == ["a@0 cold", "a@1 cold"]  # nobody else waits
    made = World("kaas-affinity", {"weights": "static"})
    for gpu in range(2):
        made.gpu(gpu)
    made.function("a", 60, run=1.0)
    made.function("b", 60, run=1.0)
    together(made, "a" * 20 + "b" * 20)
    assert set(made.log) == {"a@0 cold", "b@1 cold"}
    for _ in range(20):
        made.finish(next(iter(made.live)))
    assert {word.split()[0] for word in made.log} == {"a@0", "b@1"}


def test_exclusive_takes_unused_gpus_then_one_from_the_largest_pool() -> None:
    made = world("kaas-exclusive", gpus=3, functions="abc")
    together(made, "aab")
    assert made.log == ["a@0 cold", "a@1 cold", "b@2 cold"]
    policy: Any = made.policy
    assert (policy.pool("a"), policy.pool("b")) == (2, 1)
    made.arrive("c")  # all are busy: it is promised one of a's
    assert (policy.pool("a"), policy.pool("c")) == (1, 1)
    made.finish(2)
    assert made.log[3:] == []
    made.finish(1)
    assert made.log[3:] == ["end a", "c@0 cold"]


def test_sizes_of_one_and_two_are_not_swapped() -> None:
    made = world("kaas-exclusive", gpus=3)
    together(made, "aabbb")
    policy: Any = made.policy
    assert (policy.pool("a"), policy.pool("b")) == (2, 1)
    made = world("kaas-exclusive", gpus=3, rule="paper")
    together(made, "aabbb")
    policy = made.policy
    assert (policy.pool("a"), policy.pool("b")) == (1, 2)


def test_one_client_more_than_gpus_makes_every_start_cold() -> None:
    made = world("kaas-exclusive", gpus=2, functions="abc")
    together(made, "abcabcabc")
    order(made)
    assert all("cold" in word for word in made.log if "@" in word)


# -- ours


def test_ours_runs_what_is_resident_before_it_loads_another() -> None:
    made = world("auto", functions="abc")
    together(made, "abcab")
    assert order(made) == "aabbc"


def test_ours_runs_first_whose_answer_would_be_late() -> None:
    made = world("auto", functions="ab")
    made.arrive("a")
    made.arrive("a")
    made.arrive("a")
    made.arrive("b", wanted=6.0)
    made.finish(1)  # at 1 s: b needs 4 s, and has 5
    assert order(made) == "abaa"


def test_ours_lets_nobody_run_further_ahead_than_the_overrun() -> None:
    made = world("auto", functions="ab", overrun=2.0)
    together(made, "a" * 20 + "b" * 20)
    assert "aaaaaaaa" not in order(made)
