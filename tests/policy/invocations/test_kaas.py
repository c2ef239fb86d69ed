"""KaaS: sequences that follow from policies.md §2 by hand."""

from __future__ import annotations

from typing import Any

from .sequences import order, together, world
from .world import World


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
