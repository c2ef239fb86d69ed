"""Sequences that follow from policies.md by hand: what all policies do alike, the baselines, and ours."""

from __future__ import annotations

import pytest
from gpuferry.monitor.policy.invocations import Function

from .sequences import order, together, world
from .world import World

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


def test_no_more_is_promised_than_there_is_whoever_is_away() -> None:
    """Each of them could come back at any time. Who is away ends before who is not."""
    made = World("fcfs")
    made.gpu(0, 100, promised=200)
    for name in "abcd":
        made.function(name, 60)
    for name in "abc":
        made.finish(made.arrive(name))
    made.finish(made.arrive("d"))
    assert made.log == ["a@0 cold", "send a", "b@0 cold", "send b", "c@0 cold", "send c", "end a", "d@0 cold"]
    made.log.clear()
    made.finish(made.arrive("b"))
    assert made.log == ["send d", "b@0 return"]


def test_no_more_is_promised_than_all_may_have_together() -> None:
    """A tenant's limit holds on all GPUs: who waited for it, waited until an idle replica's time was over."""
    made = World("fcfs")
    made.limit(memory=100)
    for gpu in (0, 1):
        made.gpu(gpu, 200)
    for name in "abc":
        made.function(name, 50)
    for name in "abc":
        made.finish(made.arrive(name))
    assert made.log == ["a@0 cold", "b@0 cold", "end a", "c@0 cold"]
    made.limit(memory=50)
    assert made.log[4:] == ["end b"]


def test_idle_replicas_end_for_a_session_beyond_the_limit() -> None:
    """Their sessions counted as long as they stayed, and who was invoked waited for one in vain."""
    made = World("fcfs")
    made.limit(sessions=2)
    for gpu in (0, 1):
        made.gpu(gpu, 200)
    for name in "abc":
        made.function(name, 50)
    made.function("cpu", 0)  # has no session, and ends for none
    for name in ("a", "cpu", "b", "c"):
        made.finish(made.arrive(name))
    assert made.log == ["a@0 cold", "cpu@0 cold", "b@0 cold", "end a", "c@0 cold"]
    made.limit(gpus=1)
    assert made.log[5:] == ["end b"]
    made.policy.on_start(Function("new", 50), 0, made.now)
    made.settle()
    assert made.log[6:] == ["end c"]


def test_who_is_about_to_start_finds_room() -> None:
    made = World("lalb")
    made.gpu(0, 100, promised=100)
    made.function("a", 60)
    made.finish(made.arrive("a"))
    made.policy.on_start(Function("new", 0, perhaps=50), 0, made.now)
    made.settle()
    assert made.log == ["a@0 cold", "end a"]


def test_who_declares_no_memory_is_promised_some_all_the_same() -> None:
    made = World("fcfs", {"tokens": 2})
    made.gpu(0, 100, promised=100)
    for name in "abc":
        made.function(name, 0, quota=50)
    held = [made.arrive(name) for name in "abc"]
    assert [made.live[number].run.gpu for number in held[:2]] == [0, 0]
    made.finish(held[0])
    assert made.log == ["a@0 cold", "b@0 cold", "end a", "c@0 cold"]


@pytest.mark.parametrize("name", ["fcfs", "lalb", "mqfq", "kaas-affinity", "auto", "rr"])
def test_a_replica_of_two_gpus_counts_on_both(name: str) -> None:
    """Its memory and its token: whoever ran beside it there would wait in the GPU server for it to end."""
    made = World(name, {"tokens": 1})
    for gpu in range(2):
        made.gpu(gpu, 100)
    made.function("pair", 60, gpus=2)
    made.function("a", 60)
    first, other = made.arrive("pair"), made.arrive("a")
    assert list(made.live) == [first]
    made.finish(first)
    assert list(made.live) == [other]
    assert made.log[1:] == ["send pair", f"a@{made.live[other].run.gpu} cold"]
    made.finish(other)
    made.lose_gpu(1)
    assert made.over[made.arrive("pair")] == "refused: pair needs 2 GPUs with 60 bytes each"


def test_where_a_replica_of_two_gpus_really_is() -> None:
    made = World("fcfs", {"tokens": 2})
    for gpu in range(3):
        made.gpu(gpu, 100)
    made.function("pair", 60, gpus=2)
    made.finish(made.arrive("pair"))
    (replica,) = made.replicas
    made.policy.on_resident(replica, 2, made.now, also=(1,))
    assert [(card.index, card.used) for card in made.policy.cards()] == [(0, 0), (1, 60), (2, 60)]
    made.lose_gpu(1)
    (pair,) = made.policy.flows()
    assert not pair.replicas


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


@pytest.mark.parametrize("name", ["mqfq", "auto", "eevdf", "sjf", "kaas-affinity"])
def test_runs_that_fail_are_service_as_others_are(name: str) -> None:
    """A function whose runs all fail at their end, and of which nothing was declared, has its share only."""
    made = World(name, {"tokens": 1} | ({"overrun": 1.0} if name in ("mqfq", "auto") else {}))
    made.gpu(0)
    for function in "ab":
        made.function(function)
    together(made, "aabb")
    had = {"a": 0, "b": 0}
    for _ in range(100):
        number = next(iter(made.live))
        made.begin(number)
        function = made.live[number].run.invocation.function
        made.arrive(function, settle=False)
        made.now += 2.0
        made.complete(number, failed=function == "a")
        had[function] += 1
    assert abs(had["a"] - had["b"]) <= 4


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


def copies(memory: int) -> list[str]:
    """What is loaded of a function called twice at a time, on two GPUs; a load takes as long as two runs."""
    made = world("auto", gpus=2, functions="")
    made.function("a", memory, run=1.0, load=2.0)
    made.finish(made.arrive("a"), load=2.0)
    for call in range(4):
        first, second = made.arrive("a"), made.arrive("a")
        assert (len(made.live) == 2) == (call >= 2 and memory <= 50)  # 1 s, and 2 s, were lost before
        made.finish(first)
        made.finish(second)
    return [line for line in made.log if "cold" in line]


def test_ours_loads_another_copy_once_waiting_has_cost_as_much() -> None:
    assert copies(memory=10) == ["a@0 cold", "a@1 cold"]


def test_ours_leaves_memory_to_others_that_may_need_it() -> None:
    assert copies(memory=60) == ["a@0 cold"]


def test_ours_serves_first_who_had_less_of_late() -> None:
    made = world("auto", functions="ab")
    made.finish(made.arrive("b"))
    made.finish(made.arrive("a"))
    made.finish(made.arrive("a"))
    running = made.arrive("a")
    made.arrive("a")
    made.arrive("b")
    made.finish(running)
    assert order(made).endswith("ba")


def test_ours_serves_first_on_a_gpu_who_is_at_home_there() -> None:
    made = world("auto", gpus=2, functions="")
    for name in "ab":  # one GPU is home to each
        made.function(name, 10, run=1.0, load=1.0)
    busy = [made.arrive("a"), made.arrive("a"), made.arrive("b"), made.arrive("b")]
    for number in busy:
        made.finish(number)
    assert {line for line in made.log if "cold" in line} == {"a@0 cold", "a@1 cold", "b@0 cold", "b@1 cold"}
    first, second = made.arrive("b"), made.arrive("a")
    made.arrive("a")
    made.arrive("b")
    on = {made.live[number].run.gpu: number for number in (first, second)}
    made.finish(on[1])
    assert made.log[-1] == "b@1 warm"  # although a was there before
    made.finish(on[0])
    assert made.log[-1] == "a@0 warm"
