"""Each policy, with the events that the function server has for it: a replica that dies, callers that leave,
functions that are removed while they wait.
"""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpuferry.monitor.functions.deployment import Deployment
from gpuferry.monitor.functions.engine import Engine
from gpuferry.monitor.functions.fleet import Function, Place, Unit
from gpuferry.monitor.functions.memory import Gpus, Where
from gpuferry.monitor.functions.replica import Replica
from gpuferry.monitor.functions.schedule import Schedule
from gpuferry.monitor.policy.invocations import End, Refuse, Run
from gpuferry.monitor.policy.invocations.names import POLICIES
from gpuferry.monitor.settings.errors import ConfigError


@pytest.mark.parametrize("tokens", [0, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_invocation_is_decided_once_and_none_is_left(policy: str, tokens: int) -> None:
    if policy == "kaas-exclusive" and tokens:
        with pytest.raises(ConfigError, match="one invocation at a time"):
            Schedule(policy, tokens)
        return
    schedule = Schedule(policy, tokens)
    for name in ("a", "b", "c"):
        schedule.deploy(Deployment(name, source="x", most=2))
    places = count(1)
    arrived, decided, running = 0, [], {}

    def pump() -> None:
        for decision in schedule.decisions():
            if isinstance(decision, Run):
                place = next(places) if decision.replica is None else decision.replica
                running[decision.invocation.id] = place
                schedule.begin(decision.invocation.id, place)
            if isinstance(decision, Run | Refuse):
                decided.append(decision.invocation.id)
            if isinstance(decision, End):
                assert decision.replica not in running.values()

    for number in range(60):
        schedule.arrive(number, "abc"[number % 3])
        arrived += 1
        pump()
        assert len(running) <= (tokens or 6)
        if number % 4 == 3 and running:
            first = next(iter(running))
            place = running.pop(first)
            schedule.complete(first, failed=number % 8 == 7)
            if number % 8 == 7:
                schedule.lose(place)
            pump()
    cancelled = [number for number in range(60) if number not in decided][:5]
    for number in cancelled:
        schedule.cancel(number)
    schedule.remove("c")
    pump()
    while running:
        first = next(iter(running))
        del running[first]
        schedule.complete(first, failed=False)
        schedule.tick()
        pump()
    assert len(schedule) == 0
    assert sorted([*decided, *cancelled]) == list(range(arrived))


def test_gpus_are_in_order_whichever_was_ready_first() -> None:
    """Else the first replica of a function would be on one or the other, as their starts happened to go."""
    schedule = Schedule("lb", 1)
    schedule.take({1: 64})
    schedule.take({0: 64, 1: 64})
    assert list(schedule.gpus) == [0, 1]
    schedule.take({0: 64})
    schedule.take({1: 64, 0: 64})
    assert list(schedule.gpus) == [0, 1]


def test_a_replica_counts_on_a_gpu_that_is_known_later_than_it() -> None:
    """A GPU server is ready when one GPU is, and may place a replica on another before that is told of."""
    schedule = Schedule("lalbo3", 1)
    deployment = Deployment("model", source="x")
    schedule.deploy(deployment)
    unit = Unit(Function(deployment), cast(Replica, SimpleNamespace(program=b"model")), gpu=1)
    memory = SimpleNamespace(gpus=Gpus({1: 64}, False), where=lambda _: None)
    places: dict[int, Place] = {}
    retire = cast(Any, lambda _: pytest.fail("its GPU is there"))
    fleet = SimpleNamespace(places=places, retire=retire, tell=lambda _: None)
    engine = Engine(schedule, cast(Any, fleet), cast(Any, memory), 10, [])
    engine.take_gpus()
    places[1] = Place(1, unit, None)
    schedule.add(1, "model", 1)
    here = Where(0, resident=True)
    engine.moved(b"model", here)
    memory.gpus, memory.where = Gpus({0: 64, 1: 64}, False), lambda _: here
    engine.take_gpus()
    told = schedule.published("a")
    assert [told[f"gpu/a/{gpu}/lru"] for gpu in (0, 1)] == ['["model"]', "[]"]
