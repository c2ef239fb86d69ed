"""Random programs on devices that are promised more than once: each gets what it wishes for, in the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Coroutine, Iterator
from typing import Any

import pytest
from gpuferry.monitor.residency import copies, steward, transit, wishes
from gpuferry.monitor.residency.copies import NoRoom

from tests.residency.loop import Loop
from tests.residency.model import PAGE, Engine, Model
from tests.residency.shelf import Shelf

SECONDS = 2000.0  # by which all of them are over


class Program:
    """What one process does, and what others do to it."""

    def __init__(
        self, model: Model, devices: tuple[int, ...], quota: int, all_at_once: bool, seed: float
    ) -> None:
        self._model, self._devices, self._quota = model, devices, quota
        self._share = 1.0 if all_at_once else 0.3  # how often it wants all that there is
        self._chance = random.Random(seed)

    async def run(self) -> None:
        chance = self._chance
        await asyncio.sleep(chance.choice([0.0, 2.0, 20.0]) * chance.random())
        engine = self._model.begin(self._devices, self._quota, chance)
        working = asyncio.ensure_future(self._work(engine))
        beside = [asyncio.ensure_future(each) for each in self._disturbances(engine)]
        lives = chance.expovariate(0.1) if chance.random() < self._model.trouble / 2 else None
        await asyncio.wait({working}, timeout=lives)
        if not working.done():
            working.cancel()
            await self._model.lose(engine)
        for each in beside:
            each.cancel()
        if not working.cancelled() and working.done():
            working.result()

    async def _work(self, engine: Engine) -> None:
        for _ in range(self._chance.randrange(1, 20)):
            await self._step(engine)
        await self._model.finish(engine)

    def _step(self, engine: Engine) -> Awaitable[None]:
        chance, room = self._chance, engine.quota - engine.used
        kind = chance.choice(["grow", "grow", "shrink", "work", "work", "pause"])
        if kind == "grow" and room:
            return engine.grow(self._some(room))
        if kind == "shrink" and engine.used:
            return engine.shrink(self._some(engine.used))
        if kind == "work":
            return engine.work(chance.choice([0.0, 0.01, 0.3, 3.0]) * chance.random())
        return engine.pause(chance.choice([0.001, 0.1, 2.0]) * chance.random())

    def _some(self, most: int) -> int:
        wants_all = self._chance.random() < self._share
        return most if wants_all else self._chance.randrange(1, most // PAGE + 1) * PAGE

    def _disturbances(self, engine: Engine) -> Iterator[Coroutine[Any, Any, None]]:
        if self._chance.random() < self._model.trouble:
            yield self._operate(engine)
        if self._chance.random() < self._model.trouble and not engine.several:
            yield self._move(engine)

    async def _operate(self, engine: Engine) -> None:
        house, chance = self._model.steward, self._chance
        while True:
            await asyncio.sleep(chance.expovariate(0.5))
            with contextlib.suppress(NoRoom, KeyError):
                if chance.random() < 0.6:
                    await asyncio.shield(house.evict(engine.session))  # as the control plane does
                else:
                    await house.recall(engine.session, 10.0)

    async def _move(self, engine: Engine) -> None:
        while not engine.ending:
            await asyncio.sleep(self._chance.expovariate(0.3))
            await engine.move(self._chance.choice([0.1, 5.0]) * self._chance.random())


def various(chance: random.Random) -> tuple[list[int], list[tuple[tuple[int, ...], int]], Shelf]:
    """Devices, the programs' devices and quotas, and room for copies of all of them. Those of several devices
    stay, and leave room for the largest of the others.
    """
    memory = [chance.choice([64, 128, 256]) * PAGE for _ in range(chance.choice([1, 1, 2]))]
    several = [chance.randrange(1, 24) for _ in range(chance.randrange(4))] if len(memory) > 1 else []
    most = min(memory) // PAGE - sum(several)
    if most < 1:
        several, most = [], min(memory) // PAGE
    others = [chance.choice([chance.randrange(1, most + 1), most]) for _ in range(chance.randrange(2, 8))]
    programs: list[tuple[tuple[int, ...], int]] = [((0, 1), pages * PAGE) for pages in several]
    programs += [((chance.randrange(len(memory)),), pages * PAGE) for pages in others]
    host = chance.randrange(sum(others) + 1)
    return memory, programs, Shelf(host * PAGE, (sum(others) - host) * PAGE)


def alike(chance: random.Random) -> tuple[list[int], list[tuple[tuple[int, ...], int]], Shelf]:
    """The same of programs that have all of their quota or nothing, with room for one more copy than are
    away at most.
    """
    memory = chance.choice([64, 128, 256])
    pages, count = chance.randrange(memory // 4, memory + 1), chance.randrange(2, 7)
    room = max(0, count - memory // pages + 1)
    host = chance.randrange(room + 1)
    shelf = Shelf(host * pages * PAGE, (room - host) * pages * PAGE)
    return [memory * PAGE], [((0,), pages * PAGE)] * count, shelf


async def play(loop: Loop, seed: int) -> None:
    chance = random.Random(seed)
    same = chance.random() < 0.25
    memory, programs, shelf = (alike if same else various)(chance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "in_memory", shelf.in_memory)
        patch.setattr(copies, "on_disk", shelf.put_on_disk)
        model = Model(loop, memory, shelf, chance)
        looks = asyncio.ensure_future(model.steward.run())
        everybody = asyncio.gather(*(Program(model, *one, same, chance.random()).run() for one in programs))
        waits: set[asyncio.Future[Any]] = {everybody, looks}
        await asyncio.wait(waits, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert everybody.done(), "somebody waits still"
        everybody.result()
        looks.cancel()
        await asyncio.sleep(1.0)
    assert not shelf.faults
    assert not model.steward.wishes.tasks
    assert not shelf.files
    assert not model.steward.books.host_used + model.steward.books.disk_used
    for device, size in enumerate(memory):
        assert model.steward.books.free(device) == size


def played(seed: int) -> None:
    loop = Loop()
    with pytest.MonkeyPatch.context() as patch:
        for module in (steward, transit, wishes):
            patch.setattr(module, "time", loop)
        try:
            loop.run_until_complete(play(loop, seed))
        finally:
            loop.forsake()


@pytest.mark.some(20)
@pytest.mark.parametrize("seed", range(100))
def test_everybody_gets_what_it_wishes_for(seed: int) -> None:
    played(seed)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(1, 25))
def test_so_do_many_more(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        played(seed)
