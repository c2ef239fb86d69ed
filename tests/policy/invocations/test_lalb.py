"""LALB and LALBO3 against the thesis's algorithm, read off policies.md §4.2 line by line, with lists."""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass, field

import pytest
from gpuferry.monitor.policy.invocations import Run
from gpuferry.monitor.policy.invocations.estimates import Mean

from .world import World

LOAD, INFER, ROOM = 3.0, 1.0, 2


class Fixed(Mean):
    """An estimate that learns nothing, as in the thesis."""

    def add(self, observed: float) -> None:
        pass


@dataclass(eq=False)
class Gpu:
    """One GPU of the thesis, which holds two models."""

    lru: OrderedDict[str, None] = field(default_factory=OrderedDict)
    busy: list[float] | None = None  # phases that are left of what runs
    local: list[int] = field(default_factory=list)
    uses: int = 0

    def finish(self, infer: float) -> float:
        return sum(self.busy or ()) + infer * len(self.local)


class Thesis:
    """Requests are numbers; `dispatched` has (request, GPU)."""

    def __init__(self, gpus: int, limit: int) -> None:
        self.gpus = [Gpu() for _ in range(gpus)]
        self.limit = limit
        self.model: dict[int, str] = {}
        self.visits: dict[int, int] = {}
        self.waiting: list[int] = []
        self.dispatched: list[tuple[int, int]] = []

    def arrive(self, number: int, model: str) -> None:
        self.model[number] = model
        self.visits[number] = 0
        self.waiting.append(number)
        self.schedule()

    def uploaded(self, gpu: int) -> None:
        self.gpus[gpu].busy = [INFER]

    def complete(self, gpu: int) -> None:
        self.gpus[gpu].busy = None
        self.schedule()

    def dispatch(self, number: int, gpu: Gpu) -> None:
        model = self.model[number]
        for line in (self.waiting, gpu.local):
            if number in line:
                line.remove(number)
        gpu.busy = [INFER] if model in gpu.lru else [LOAD, INFER]
        if model not in gpu.lru and len(gpu.lru) == ROOM:
            gpu.lru.popitem(last=False)
        gpu.lru[model] = None
        gpu.lru.move_to_end(model)
        gpu.uses += 1
        self.dispatched.append((number, self.gpus.index(gpu)))

    def place(self, number: int, gpu: Gpu) -> bool:
        having = [one for one in self.gpus if self.model[number] in one.lru]
        idle = [one for one in having if one.busy is None]
        if idle:
            self.dispatch(number, min(idle, key=lambda one: (one.uses, self.gpus.index(one))))
            return False
        if having:
            soonest = min(having, key=lambda one: one.finish(INFER))
            if soonest.finish(INFER) < LOAD:
                self.waiting.remove(number)
                soonest.local.append(number)
                return False
        self.dispatch(number, gpu)
        return True

    def schedule(self) -> None:
        def rank(gpu: Gpu) -> tuple[bool, int, int]:
            return (not gpu.local, gpu.uses, self.gpus.index(gpu))  # ours: own queues first

        for gpu in sorted((one for one in self.gpus if one.busy is None), key=rank):
            if gpu.busy is None:
                self.serve(gpu)

    def serve(self, gpu: Gpu) -> None:
        if gpu.local:
            return self.dispatch(gpu.local[0], gpu)
        for number in list(self.waiting):
            if self.model[number] in gpu.lru:
                return self.dispatch(number, gpu)
            if self.visits[number] >= self.limit:
                if self.place(number, gpu):
                    return None
            else:
                self.visits[number] += 1
        for number in list(self.waiting):
            if self.place(number, gpu):
                return None
        return None


@pytest.mark.parametrize("limit", [0, 1, 4, 25])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_algorithm_of_the_thesis(limit: int, seed: int) -> None:
    chance = random.Random(seed)
    thesis = Thesis(4, limit)
    world = World("lalbo3", {"skips": limit, "evict": "end"})
    for gpu in range(4):
        world.gpu(gpu, 100)
    for model in "abcdefg":
        world.function(model, 50, load=LOAD, run=INFER)
    for flow in world.policy.flows():
        flow.load, flow.run = Fixed(LOAD), Fixed(INFER)
    runs: list[tuple[int, int]] = []
    carry_out = world.carry_out

    def watched(decision: object) -> None:
        if isinstance(decision, Run):
            runs.append((decision.invocation.id, decision.gpu))
        carry_out(decision)  # type: ignore[arg-type]

    world.carry_out = watched  # type: ignore[method-assign]
    for _ in range(400):
        if chance.random() < 0.55:
            model = chance.choice("aaabbcdefg")
            thesis.arrive(world.arrive(model), model)
        elif world.live:
            number = chance.choice([*world.live])
            gpu = world.live[number].run.gpu
            if world.live[number].replica is None:
                thesis.uploaded(gpu)
                world.begin(number)
            thesis.complete(gpu)
            world.complete(number)
        assert runs == thesis.dispatched
    assert len(runs) > 100
