"""Random programs that take turns on devices that are promised more than once: each gets them, in the end."""

from __future__ import annotations

import asyncio
import random

import pytest
from gpuferry.monitor.residency import copies, steward, transit, wishes

from tests.residency.loop import Loop
from tests.residency.model import Engine
from tests.residency.test_model import Program, alike, various
from tests.residency.turning import TurningModel

SECONDS = 4000.0  # by which all of them are over
BUSY_STEPS = 150  # of one that never pauses
LONGEST = 900.0  # seconds that a call waits at most, of slow devices with seven of them
STEPS_MOST = 3_000_000  # of the loop


class Busy(Program):
    """One that always has something to do."""

    async def _work(self, engine: Engine) -> None:
        await engine.grow(self._some(engine.quota))
        for _ in range(BUSY_STEPS):
            await engine.work(0.5)
        await self._model.finish(engine)


async def play(loop: Loop, seed: int) -> None:
    chance = random.Random(seed)
    same = chance.random() < 0.25
    memory, programs, shelf = (alike if same else various)(chance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "in_memory", shelf.in_memory)
        patch.setattr(copies, "on_disk", shelf.put_on_disk)
        model = TurningModel(loop, memory, shelf, chance)
        looks = asyncio.ensure_future(model.steward.run())
        everybody = asyncio.gather(
            *(
                (Busy if chance.random() < 0.3 else Program)(model, *one, same, chance.random()).run()
                for one in programs
            )
        )
        deaths = asyncio.ensure_future(die_now_and_then(model, chance))
        waits: set[asyncio.Future[None]] = {everybody, looks, deaths}  # type: ignore[arg-type]
        await asyncio.wait(waits, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if deaths.done():
            deaths.result()
        assert everybody.done(), "somebody waits still"
        everybody.result()
        looks.cancel()
        deaths.cancel()
        await asyncio.sleep(1.0)
    assert not shelf.faults
    assert not model.steward.wishes.tasks
    assert not shelf.files
    assert model.longest < LONGEST, model.longest
    for device, size in enumerate(memory):
        assert model.steward.books.free(device) == size
    for arbiter in model.court.gpus.arbiters.values():
        assert not arbiter.uses(0)


async def die_now_and_then(model: TurningModel, chance: random.Random) -> None:
    """The arbiter, in some of these worlds."""
    if chance.random() < 0.7:
        await asyncio.sleep(SECONDS * 2)
    while True:
        await asyncio.sleep(chance.expovariate(0.1))
        await model.replace_court()


def played(seed: int) -> None:
    loop = Loop(STEPS_MOST)
    with pytest.MonkeyPatch.context() as patch:
        for module in (steward, transit, wishes):
            patch.setattr(module, "time", loop)
        try:
            loop.run_until_complete(play(loop, seed))
        finally:
            loop.forsake()


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(12))
def test_everybody_gets_its_turns(seed: int) -> None:
    played(seed)


@pytest.mark.slow
@pytest.mark.parametrize("ten", range(2, 12))
def test_so_does_everybody_in_many_more(ten: int) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        played(seed)
