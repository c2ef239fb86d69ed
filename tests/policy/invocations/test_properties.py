"""What holds for every policy, whatever happens: random events, checked decisions, books recounted."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import count, islice
from typing import Any

import pytest
from gpuferry.monitor.policy.invocations import POLICIES
from gpuferry.monitor.policy.invocations.flows import FlowPolicy

from .world import World

# Never idle while anything waits that could run. Not so by their definition: queues of GPUs (rr, rro3), waits
# for a GPU that has the function (lalb, lalbo3, auto), a pool of GPUs for each function (kaas-exclusive).
CONSERVING = ("fcfs", "batch", "sjf", "eevdf", "mqfq", "lb", "kaas-affinity")
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in POLICIES),
    ("fcfs", {"tokens": 3, "pool": 9}),
    ("lalbo3", {"evict": "end", "finish": "elapsed"}),
    ("lb", {"pool": 5, "evict": "end"}),
    ("mqfq", {"tokens": 1, "pool": 6, "overrun": 0.0}),
    ("mqfq", {"limit": 0.4, "leaves": "paper", "ttl": 1.0}),
    ("kaas-affinity", {"tokens": 3, "returns": "base", "pool": 9}),
    ("kaas-exclusive", {"rule": "paper"}),
    ("auto", {"tokens": 2, "pool": 7, "overrun": 1.0}),
]


class Chaos:
    """Plays callers, functions, GPUs and bad luck, by a seed."""

    def __init__(self, name: str, options: dict[str, Any], seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World(name, options)
        self.fresh = count()  # numbers of GPUs
        for gpu in islice(self.fresh, 4):
            self.gpu(gpu)
        for number in range(12):
            self.deploy(number)

    def gpu(self, number: int) -> None:
        memory = self.chance.choice([60, 100])
        self.world.gpu(number, memory, self.chance.choice([1, 2, math.inf]) * memory)

    def deploy(self, number: int) -> None:
        limit = self.chance.choice([1, 2, 1 << 60, 1 << 60])
        memory = self.chance.choice([*[self.chance.randint(0, 30)] * 3, self.chance.choice([60, 100])])
        gpus = self.chance.choice([1, 1, 1, 2]) if self.world.name != "kaas-exclusive" else 1
        weight = self.chance.choice([1.0, 2.0])
        self.world.function(f"f{number:02}", memory, replicas=limit, weight=weight, gpus=gpus)

    def step(self) -> None:
        world, chance = self.world, self.chance
        world.now += chance.expovariate(10)
        kind = chance.random()
        if kind < 0.4 and len(world.waiting) < 60:
            for _ in range(chance.choice([1, 1, 1, 6])):
                wish: Any = chance.choice([{}, {}, {"wanted": world.now + 1}, {"deadline": world.now + 3}])
                world.arrive(chance.choice([*world.functions]), **wish)
        elif kind < 0.85 and world.live:
            number = chance.choice([*world.live])
            live = world.live[number]
            if live.replica is None and not live.lost and chance.random() < 0.95:
                world.begin(number)
            elif live.replica is not None and chance.random() < 0.95:
                world.complete(number)
            else:
                world.complete(number, failed=True)
                if live.run.invocation.function in world.functions and chance.random() < 0.5:
                    world.again(number, live.run.invocation)
        elif kind < 0.9:
            world.tick()
        elif kind < 0.93 and world.waiting:
            world.cancel(chance.choice([*world.waiting]))
        elif kind < 0.95 and world.replicas:
            world.lose_replica(chance.choice([*world.replicas]))
        elif kind < 0.96 and any(live.replica for live in world.live.values()):
            busy = [live.replica for live in world.live.values() if live.replica and not live.lost]
            if busy:
                world.lose_replica(chance.choice(busy))
        elif kind < 0.97 and world.replicas:
            world.resident(chance.choice([*world.replicas]), None)
        elif kind < 0.98:
            which = chance.random()
            if len(world.gpus) > 2 and which < 0.4:
                world.lose_gpu(chance.choice([*world.gpus]))
            elif which < 0.6:
                self.gpu(chance.choice([*world.gpus]))
            elif len(world.gpus) < 6:
                self.gpu(next(self.fresh))
        elif len(world.functions) > 6 and chance.random() < 0.5:
            world.remove(chance.choice([*world.functions]))
        else:
            self.deploy(chance.randrange(14))

    def check_conserving(self) -> None:
        world = self.world
        tokens = world.options.get("tokens", 2 if world.name == "mqfq" else 1)
        every = len(world.replicas) + sum(not live.lost for live in world.live.values())
        full = every >= world.options.get("pool", 1 << 60) and not world.replicas
        if world.name not in CONSERVING or full:
            return
        busy = Counter(gpu for live in world.live.values() for gpu in (live.run.gpu, *live.run.also))
        mine = Counter(live.run.invocation.function for live in world.live.values())
        room = {gpu: memory - world.pinned(gpu) for gpu, memory in world.gpus.items()}
        for name in {invocation.function for invocation in world.waiting.values()}:
            function = world.functions[name]
            if mine[name] >= function.replicas:
                continue
            able = [gpu for gpu, free in room.items() if busy[gpu] < tokens and free >= function.memory]
            for gpu in able if len(able) >= function.gpus else ():
                assert self.held_back(name, busy[gpu])

    def held_back(self, name: str, busy: int) -> bool:
        """Whether the policy has a reason for it: the one whose turn it is waits for room, a GPU is kept for
        somebody, the function is ahead of the others, or the GPU is busy enough with what it runs.
        """
        policy: Any = self.world.policy
        if self.world.name == "kaas-affinity":
            return bool(policy._room._flow)
        limited = "limit" in self.world.options and busy > 0
        throttled = self.world.name == "mqfq" and policy.state(name).value == "throttled"
        first = policy._first() if isinstance(policy, FlowPolicy) else policy._line.best(policy._startable)
        return limited or throttled or bool(first and first.function.name != name)

    def drain(self) -> None:
        """Everything that is there comes to an end, in some order."""
        world = self.world
        for _ in range(100 * (len(world.waiting) + len(world.live) + 1)):
            if not world.live and not world.waiting:
                return
            world.tick()
            if world.live:
                world.finish(self.chance.choice([*world.live]), 0.1)
        raise AssertionError(f"{len(world.waiting)} were never run")


def play(name: str, options: dict[str, Any], events: int, seed: int = 1, every: int = 1) -> None:
    chaos = Chaos(name, options, seed)
    for number in range(events):
        chaos.step()
        if number % every == 0:
            chaos.world.audit()
            chaos.check_conserving()
    chaos.drain()
    world = chaos.world
    world.audit()
    assert sorted(world.over) == list(range(1, world.issued + 1))
    for number, why in world.over.items():
        assert (why in ("ran", "failed")) == (number in world.ran) or world.ran.get(number)
    assert len(world.ran) > events / 5


@pytest.mark.some(7)
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_nothing_is_lost_or_run_twice_and_the_books_are_right(name: str, options: dict[str, Any]) -> None:
    play(name, options, 1_500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_the_same_for_long(name: str, options: dict[str, Any], seed: int) -> None:
    play(name, options, 10_000, seed, every=10)
