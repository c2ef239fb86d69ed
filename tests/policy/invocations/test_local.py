"""Queues of GPUs, LALB among them: sequences that follow from policies.md §4.2 by hand."""

from __future__ import annotations

import pytest

from .sequences import order, together, world


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
