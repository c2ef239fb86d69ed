"""The model of API servers where they take turns, and where the monitor, or its arbiter, may start anew.

The arbiter's side is the real one, but for its process. An API server here asks for its turns and gives them
back as the engine does (core/turn.pxi).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from gpuferry.monitor.arbiter.gpu import Arbiter, Voice
from gpuferry.monitor.arbiter.gpus import Gpus
from gpuferry.monitor.arbiter.words import Packet, Word
from gpuferry.monitor.policy.place import Place, Residence
from gpuferry.monitor.policy.sharing import Sharing
from gpuferry.monitor.policy.turnstile import build_turns
from gpuferry.specs._generated import node_pb2

from tests.residency.loop import Loop
from tests.residency.model import Engine, Model
from tests.residency.shelf import Shelf

ALONE_GRACE, WANTED_GRACE = 0.002, 0.0002  # seconds without a call after which a turn is given back
PAUSE_SECONDS = 0.05  # without an arbiter


class Line:
    """The way between an arbiter and an API server."""

    def __init__(self, court: Court, worker: Worker) -> None:
        self._court, self._worker = court, worker
        self.stop = self.wanted = False
        self._out = self._back = 0.0

    def send(self, packet: Packet) -> None:
        self._out = self._worker.later(self._out, lambda: self._worker.hear(self, packet))

    def show(self, stop: bool, wanted: bool) -> None:
        self.stop, self.wanted = stop, wanted
        self._worker.stir()

    def say(self, packet: Packet) -> None:
        self._back = self._worker.later(self._back, lambda: self._court.hear(self._worker.key, packet))


class Court:
    """An arbiter's process, and what the monitor's office tells it."""

    def __init__(self, model: TurningModel, sharing: Sharing, overrun: int) -> None:
        self._model, self._sharing, self._overrun = model, sharing, overrun
        self.gpus = Gpus(self._arbiter, self._soon)
        self.over = False
        self._known: set[int] = set()
        self._told = self._said = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    def _now(self) -> int:
        return round(self._model.loop.time() * 1e9)

    def _arbiter(self, device: int, voice: Voice) -> Arbiter:
        policy = build_turns(self._sharing, self._now())
        return Arbiter(policy, self._sharing.at_once, self._overrun, voice)

    def _soon(self, session: int, spared: Collection[int]) -> None:
        steward = self._model.steward

        def arrives() -> None:
            if steward is self._model.steward and not self.over:
                steward.turn_comes(session, spared)

        self._said = self._model.later(self._said, arrives)

    def _do(self, order: Callable[[int], None]) -> None:
        def done() -> None:
            if not self.over:
                order(self._now())
                self._look()

        self._told = self._model.later(self._told, done)

    def introduce(self, worker: Worker) -> None:
        line = Line(self, worker)
        self._known.add(worker.key)

        def add(now: int) -> None:
            self.gpus.add(worker.key, worker.devices, line)
            self.gpus.assign(worker.key, worker.session, 0, 0, "", now)
            worker.connect(line)

        self._do(add)
        if (residence := self._model.steward.transit.residence(worker.key)).place is not Place.HERE:
            self.place(worker.key, residence)

    def place(self, key: int, residence: Residence) -> None:
        if key in self._known:
            least = round(residence.seconds * 1e9)
            self._do(lambda now: self.gpus.place(key, residence.place, least, now))

    def remove(self, key: int) -> None:
        self._known.discard(key)
        self._do(lambda now: self.gpus.remove(key, now))

    def hear(self, key: int, packet: Packet) -> None:
        if not self.over and key in self.gpus.workers:
            self.gpus.heard(key, packet, self._now())
            self._look()

    def _look(self) -> None:
        if self.over:
            return
        self.gpus.tick(self._now())
        if self._alarm:
            self._alarm.cancel()
        if (deadline := self.gpus.deadline()) is not None:
            self._alarm = self._model.loop.call_at(deadline / 1e9 + 1e-6, self._look)


class Worker(Engine):
    """An API server that works while it has a turn."""

    def __init__(self, *args: Any) -> None:
        self.line: Line | None = None
        self.number = 0
        self.asked = self.has = self.busy = False
        self.ended_at = -math.inf
        super().__init__(*args)
        self._tending = asyncio.ensure_future(self._tend())

    def later(self, at: float, do: Callable[[], None]) -> float:
        at = max(at + 1e-6, self._model.loop.time() + self._latency())
        self._model.loop.call_at(at, do)
        return at

    def stir(self) -> None:
        self._changed()

    def describe_turn(self, stats: node_pb2.Stats) -> None:
        stats.turn = cast(Any, 2 if self.has else 1 if self.asked else 0)
        stats.turn_ago = min(self._model.loop.time() - self.ended_at, 1e9) if self.ended_at > 0 else -1.0

    def connect(self, line: Line) -> None:
        self.disconnect()
        self.line = line
        self._changed()

    def disconnect(self) -> None:
        self.line = None
        self.asked = self.has = self.busy = False
        self._changed()

    def hear(self, line: Line, packet: Packet) -> None:
        if line is not self.line or packet.turn != self.number:
            return
        if packet.word is Word.GO and self.asked:
            self.asked, self.has, self.busy = False, True, False
        elif packet.word is Word.TAKEN and self.has:
            self.has, self.busy, self.ended_at = False, True, self._model.loop.time()
        self._changed()

    def _say_word(self, word: Word) -> None:
        if self.line:
            self.line.say(Packet(word, self.number))

    def _give_back(self) -> None:
        if self.has:
            self.ended_at = self._model.loop.time()
        self.has = self.asked = self.busy = False
        self._say_word(Word.BACK)

    @property
    def _rests(self) -> bool:
        return self._model.loop.time() >= self.works_until

    async def take_turn(self) -> bool:
        while self.line:
            if self.ending or self.holding:
                return False
            line = self.line
            if self.has:
                if not line.stop:
                    break
                if self._rests:
                    self._give_back()
                else:
                    await self._stirred(self.works_until)
            elif not self.asked:
                self.number += 1
                self.asked = True
                self._say_word(Word.ASK)
            elif self.busy and self._rests:
                self.busy = False
                self._say_word(Word.REST)
            else:
                await self._stirred(self.works_until if self.busy else math.inf)
        return True

    async def _stirred(self, until: float = math.inf) -> None:
        left = until - self._model.loop.time()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._pulse.wait(), max(left, 1e-6) if left < math.inf else None)

    async def _tend(self) -> None:
        """Between two calls, and while it stands still: a turn that it has no use of goes back."""
        while True:
            due = math.inf
            if self.has and self.line and self.held:
                due = self.works_until
            elif self.has and self.line and self.quiet_since is not None:
                grace = WANTED_GRACE if self.line.wanted or self.line.stop else ALONE_GRACE
                due = max(self.quiet_since + grace, self.works_until)
            if due <= self._model.loop.time():
                self._give_back()
            else:
                await self._stirred(due)

    async def _stand_still(self) -> None:
        if self.asked:
            self._give_back()
        await super()._stand_still()

    def end_call(self) -> None:
        super().end_call()
        self._changed()

    def _leave_nothing(self) -> None:
        self._tending.cancel()
        if self.line:
            cast(TurningModel, self._model).court.remove(self.key)
        super()._leave_nothing()

    async def begin_call(self) -> None:
        began = self._model.loop.time()
        await super().begin_call()
        model = cast(TurningModel, self._model)
        model.longest = max(model.longest, self._model.loop.time() - began)


class TurningModel(Model):
    """Devices, API servers on them, the monitor's steward, and the arbiter."""

    engine = Worker

    def __init__(self, loop: Loop, memory: Sequence[int], shelf: Shelf, chance: random.Random) -> None:
        super().__init__(loop, memory, shelf, chance)
        self._chance = chance
        self.longest = 0.0  # seconds that a call waited
        kind = chance.choice(["time", "turns"])
        self._sharing = Sharing(
            kind,
            chance.choice([1, 1, 2, 3]),
            chance.choice([0, 10**7, 10**8, 10**9])
            if kind == "turns"
            else chance.choice([10**7, 10**8, 10**9]),
        )
        self._overrun = chance.choice([10**8, 2 * 10**9])
        self.court = self._open_court()

    def later(self, at: float, do: Callable[[], None]) -> float:
        at = max(at + 1e-6, self.loop.time() + 1e-4 * self._chance.random())
        self.loop.call_at(at, do)
        return at

    def _open_court(self) -> Court:
        court = Court(self, self._sharing, self._overrun)
        self.steward.transit.on_place = court.place
        return court

    def begin(self, devices: tuple[int, ...], quota: int, chance: random.Random) -> Engine:
        found = super().begin(devices, quota, chance)
        self.court.introduce(cast(Worker, found))
        return found

    async def replace_court(self) -> None:
        """The arbiter dies: all are free until there is another."""
        self.court.over = True
        for each in self.engines.values():
            cast(Worker, each).disconnect()
        self.court = self._open_court()
        waiting, self.court.introduce = self.court.introduce, lambda worker: None  # type: ignore[method-assign]
        await asyncio.sleep(PAUSE_SECONDS)
        if not self.court.over:
            self.court.introduce = waiting  # type: ignore[method-assign]
            for each in self.engines.values():
                self.court.introduce(cast(Worker, each))
