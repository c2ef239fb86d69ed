"""Options of policies as people write them."""

from __future__ import annotations

import pytest
from gpuferry.monitor.policy.invocations import POLICIES, End, Function, Invocation, Run, Start, build
from gpuferry.monitor.policy.invocations.build import options_of, read_options


@pytest.mark.parametrize("name", POLICIES)
def test_every_option_is_of_a_kind_that_can_be_written(name: str) -> None:
    for option in options_of(name).values():
        kind = str(option.annotation).removesuffix(" | None")
        assert kind in ("int", "float", "str", "bool")
        if option.default is not None:
            assert type(option.default).__name__ == kind


def test_they_are_read_as_what_they_are() -> None:
    texts = {
        "overrun": "2.5",
        "tokens": "3",
        "ttl": "none",
        "limit": "0.9",
        "strict": "true",
        "lives": "runs",
    }
    values = read_options("mqfq", texts)
    assert values == {
        "overrun": 2.5,
        "tokens": 3,
        "ttl": None,
        "limit": 0.9,
        "strict": True,
        "lives": "runs",
    }
    build("mqfq", **values)
    assert read_options("lalb", {"skips": "4"}) == {"skips": 4}


@pytest.mark.parametrize(
    ("name", "option", "text", "complaint"),
    [
        ("lalb", "skip", "4", r"lalb has no option skip: it has skips \(0\), finish \(phases\), "),
        ("lalb", "skips", "many", "skips is a whole number, not many"),
        ("mqfq", "overrun", "inf", "overrun is a number, not inf"),
        ("mqfq", "ttl", "nan", "ttl is a number, not nan"),
        ("mqfq", "overrun", "1e308", "overrun is a number up to 1e\\+09, not 1e308"),
        ("sjf", "deficit", "-1e308", "deficit is a number up to 1e\\+09, not -1e308"),
        ("mqfq", "strict", "1", "strict is true or false, not 1"),
        ("kaas-exclusive", "evict", "end", "it has rule \\(source\\)"),
    ],
)
def test_what_is_none_is_told_with_those_that_are(name: str, option: str, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_options(name, {option: text})


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("mqfq", "lives", "long"),
        ("mqfq", "limit", 1.5),
        ("mqfq", "select", -1.0),
        ("mqfq", "ttl", -1.5),
        ("kaas-affinity", "returns", "never"),
        ("kaas-affinity", "hot", -1),
        ("sjf", "deficit", -1.0),
    ],
)
def test_values_out_of_range_are_refused(name: str, option: str, value: object) -> None:
    with pytest.raises(ValueError, match=option):
        build(name, **{option: value})


@pytest.mark.parametrize("name", POLICIES)
def test_the_pool_is_as_large_as_it_may_be_with_replicas_that_nobody_asked_for(name: str) -> None:
    policy = build(name, pool=1)
    policy.on_gpu(0, 100, 0.0)
    for number, function in enumerate(("f", "g")):
        policy.on_function(Function(function, 10), 0.0)
        assert policy.full == (number == 1)
        policy.on_replica(number, function, 0, 0.0)
    assert policy.next() == End("f", 0)


def test_without_patience_who_came_just_now_runs_where_it_is_resident() -> None:
    policy = build("auto", patience=0.0)
    policy.on_gpu(0, 100, 0.0)
    policy.on_function(Function("f", 10), 0.0)
    policy.on_replica(1, "f", 0, 0.0)
    called = Invocation(1, "f", 5.0)
    policy.on_arrival(called, 5.0)
    assert policy.next() == Run(called, 0, 1, Start.WARM)
