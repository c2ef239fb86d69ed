"""Each policy, with the events that the function server has for it: a replica that dies, callers that leave,
functions that are removed while they wait.
"""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpuferry.monitor.functions.config import FunctionsOptions
from gpuferry.monitor.functions.deployment import Deployment
from gpuferry.monitor.functions.engine import Engine
from gpuferry.monitor.functions.fleet import Function, Place, Unit
from gpuferry.monitor.functions.memory import Gpus, Where
from gpuferry.monitor.functions.replica import Replica
from gpuferry.monitor.functions.schedule import Occupancy, Schedule
from gpuferry.monitor.policy.invocations import End, Refuse, Run, Send
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


def begun(schedule: Schedule, *functions: str) -> list[int]:
    """The GPUs on which these invocations begin, which all arrive first."""
    for number, function in enumerate(functions):
        schedule.arrive(number, function)
    return [decision.gpu for decision in schedule.decisions() if isinstance(decision, Run)]


@pytest.mark.parametrize(
    ("policy", "options", "tokens"),
    [
        ("fcfs", {}, 3),  # as many as come
        ("sjf", {}, 1),
        ("lalb", {}, 1),
        ("mqfq", {}, 2),
        ("auto", {}, 1),
        ("mqfq", {"limit": "0.4"}, 1),  # one alone is estimated at 0.5
    ],
)
def test_as_soon_as_gpus_are_known_each_runs_as_many_as_the_policy_has_it(
    policy: str, options: dict[str, str], tokens: int
) -> None:
    schedule = Schedule(policy, 0, options)
    schedule.deploy(Deployment("a", source="x", most=9))
    assert len(begun(schedule, *"aaaaaa")) == 6  # nobody knows how many there may be
    for number in range(6):
        schedule.begin(number, number)
        schedule.complete(number, failed=False)
        schedule.lose(number)
    schedule.take({0: 64, 1: 64})
    assert len(begun(schedule, *"aaaaaa")) == 2 * tokens


def test_what_was_measured_before_gpus_were_known_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    schedule = Schedule("sjf", 0)
    for name in ("a", "gone"):
        schedule.deploy(Deployment(name, source="x", most=9))
    assert begun(schedule, "a") == [0]
    now = 2.0
    schedule.begin(0, 7)
    now = 5.0
    schedule.complete(0, failed=False)
    schedule.lose(7)
    schedule.remove("gone")
    schedule.take({3: 64})
    assert {key: float(value) for key, value in schedule.published("a").items() if "model" in key} == {
        "model/a/load": 2.0,
        "model/a/infer": 3.0,
    }
    assert list(schedule.gpus) == [3]


def test_a_gpu_is_as_utilised_as_its_tokens_were_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    occupancy = Occupancy()
    occupancy.begin(1, 0)
    now = 1.0
    occupancy.begin(2, 0)
    occupancy.begin(3, 1)
    now = 2.0
    occupancy.end(3)
    now = 4.0
    assert occupancy.look({0: 2, 1: 2, 2: 2}) == {0: 7 / 8, 1: 1 / 8, 2: 0.0}
    now = 5.0
    occupancy.end(1)
    occupancy.end(9)
    now = 6.0
    assert occupancy.look({0: 2, 1: 2}) == {0: 3 / 4, 1: 0.0}


def test_tokens_follow_utilisation_where_that_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four, each estimated at 0.5 at first; in truth one in use is a quarter."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    schedule = Schedule("mqfq", 4, {"limit": "0.6"})
    schedule.deploy(Deployment("a", source="x", most=9))
    schedule.take({0: 64})
    assert len(begun(schedule, *"aaaaaa")) == 2
    running = [2]
    for tick in range(1, 30):
        now = 0.2 * tick
        schedule.tick()
        running.append(running[-1] + sum(isinstance(one, Run) for one in schedule.decisions()))
    assert running[1] == 2
    assert running[-1] == 3  # three quarters are more than 0.6


@pytest.mark.parametrize(
    ("policy", "options", "complaint"),
    [
        ("fcfs", {"overrun": "1"}, r"fcfs has no option overrun: it has pool \(unlimited\), evict \(send\)"),
        ("mqfq", {"tokens": "2"}, "mqfq has no option tokens"),
        ("mqfq", {"overrun": "-1"}, "not negative"),
    ],
)
def test_options_that_a_policy_does_not_have(policy: str, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Schedule(policy, 1, options)


def test_gpus_are_in_order_whichever_was_ready_first() -> None:
    """Else the first replica of a function would be on one or the other, as their starts happened to go."""
    schedule = Schedule("lb", 1)
    schedule.take({1: 64})
    schedule.take({0: 64, 1: 64})
    assert list(schedule.gpus) == [0, 1]
    schedule.take({0: 64})
    schedule.take({1: 64, 0: 64})
    assert list(schedule.gpus) == [0, 1]


def test_gpus_that_others_keep_busy_are_known_as_such_when_they_join() -> None:
    """Whoever keeps one busy says so once."""
    schedule = Schedule("lb", 1)
    schedule.others({1: 2})
    schedule.take({0: 64, 1: 64})
    assert {card.index: card.others for card in schedule._policy.cards()} == {0: 0, 1: 2}


def test_a_replica_counts_on_a_gpu_that_is_known_later_than_it() -> None:
    """A GPU server is ready when one GPU is, and may place a replica on another before that is told of."""
    schedule = Schedule("lalbo3", 1)
    deployment = Deployment("model", source="x")
    schedule.deploy(deployment)
    unit = Unit(Function(deployment), cast(Replica, SimpleNamespace(program=b"model")), gpu=1)
    memory = SimpleNamespace(gpus=Gpus({1: 64}, False), where=lambda _: None)
    places: dict[int, Place] = {}
    retire = cast(Any, lambda _: pytest.fail("its GPU is there"))
    units: list[Unit] = []
    fleet = SimpleNamespace(places=places, retire=retire, tell=lambda _: None, units=lambda: units)
    engine = Engine(schedule, cast(Any, fleet), cast(Any, memory), 10, [])
    engine.take_gpus()
    units.append(unit)
    places[1] = Place(1, unit, None)
    schedule.add(1, "model", 1)
    here = Where(0, resident=True)
    engine.moved(b"model", here)
    memory.gpus, memory.where = Gpus({0: 64, 1: 64}, False), lambda _: here
    engine.take_gpus()
    told = schedule.published("a")
    assert [told[f"gpu/a/{gpu}/lru"] for gpu in (0, 1)] == ['["model"]', "[]"]


def test_a_replica_of_two_gpus_is_on_both() -> None:
    schedule = Schedule("lalb", 1)
    deployment = Deployment("pair", source="x", gpus=2, gpu_memory=48)
    schedule.deploy(deployment)
    schedule.deploy(Deployment("single", source="x", gpu_memory=48))
    unit = Unit(Function(deployment), cast(Replica, SimpleNamespace(program=b"pair", deployment=deployment)))
    here = Where(1, True, (0,))
    memory = SimpleNamespace(gpus=Gpus({0: 64, 1: 64}, True), where=lambda _: here)
    ended: list[Place] = []
    fleet = SimpleNamespace(
        places={1: Place(1, unit, None)}, tell=lambda _: None, units=list, end=ended.append
    )
    engine = Engine(schedule, cast(Any, fleet), cast(Any, memory), 10, [])
    engine.take_gpus()
    schedule.add(1, "pair", 1)
    engine.moved(b"pair", here)
    schedule.arrive(1, "single")
    send, run = schedule.decisions()
    assert isinstance(send, Send)
    assert isinstance(run, Run)
    engine._carry_out(send, ())  # what it has would stay
    assert ended == [fleet.places[1]]
    assert here.gpus == (1, 0)


def test_options_of_the_command_line_reach_the_policy() -> None:
    told = FunctionsOptions(overrun=2.0, utilisation=0.9, option={"alpha": "3", "limit": "0.5"})
    assert told.policy_options == {"overrun": "2.0", "limit": "0.5", "alpha": "3"}
    Schedule("mqfq", 0, told.policy_options)
    assert FunctionsOptions().policy_options == {}


def test_who_declares_no_memory_counts_once_it_has_some() -> None:
    """As what a program is granted that asks for none. Before it is known, idle ones end for it."""
    schedule = Schedule("lalb", 8)
    for name in ("cuda", "none", "more"):
        schedule.deploy(Deployment(name, source="x", most=9))
    schedule.take({0: 64}, {0: 64}, 32)
    assert len(begun(schedule, "cuda", "cuda", "none", "none", "none")) == 5  # they may never call CUDA
    for number in range(5):
        schedule.begin(number, number)
        schedule.complete(number, failed=False)
    schedule.uses_gpu("cuda", True)
    schedule.uses_gpu("cuda", False)  # a replica that has not called CUDA yet
    schedule.uses_gpu("none", False)
    schedule.arrive(5, "more")
    end, run = schedule.decisions()
    assert isinstance(end, End)
    assert end.function == "cuda"
    assert isinstance(run, Run)
    schedule.begin(5, 5)
    schedule.uses_gpu("more", True)
    for number in (6, 7):
        schedule.arrive(number, "cuda")
    assert [type(one) for one in schedule.decisions()] == [Run]  # there is room for one beside `more`
