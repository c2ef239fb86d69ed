"""The replicas of all functions: started, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import structlog
from gpuferry.guest.paths import LibraryMissing
from gpuferry.guest.units import exact_size

from .deployment import Deployment
from .invocation import Code, Failed, Ran
from .logbook import LogBook
from .process import PROCESSES_MOST
from .program import ProgramReplica
from .replica import PythonReplica, Replica, StartFailed

END_SECONDS = 5.0  # that a replica has to end by itself
FULL = 0.8  # of its memory, with which a replica gets no other invocation
ENDING = "the function server ends"
TURN_SECONDS = 5.0  # after which a replica that still starts keeps no other one waiting
BACKOFF_MOST = 30.0  # seconds between two tries to have a replica that ought to be there

log = structlog.get_logger()


class Ending(StartFailed):
    """The function server ends, so nothing is started any more."""

    def __init__(self) -> None:
        super().__init__(ENDING)


@dataclass(eq=False)
class Function:
    """A function and its replicas, those of earlier revisions too as long as they run."""

    deployment: Deployment
    book: LogBook = field(default_factory=LogBook)
    units: list[Unit] = field(default_factory=list)
    waiting: int = 0
    running: int = 0  # invocations that have a replica, or for which one starts
    failures: int = 0  # of starts, since one succeeded
    next_try: float = 0.0  # when one more replica that ought to be there is started
    removed: bool = False
    seconds: float = 0.0  # a mean of how long it runs

    @property
    def name(self) -> str:
        """The function's name."""
        return self.deployment.name

    def current(self) -> list[Unit]:
        """Return the replicas of the newest revision that are starting or take invocations."""
        return [unit for unit in self.units if unit.serves]


@dataclass(eq=False)
class Unit:
    """A replica and its places."""

    function: Function
    replica: Replica
    places: list[Place] = field(default_factory=list)
    ready: asyncio.Task[None] | None = None
    started: float = field(default_factory=time.monotonic)
    gpu: int = 0  # for which it was started

    @property
    def serves(self) -> bool:
        """Whether it is to get invocations."""
        same = self.replica.deployment is self.function.deployment
        return same and not self.replica.retiring and not self.function.removed

    @property
    def state(self) -> str:
        """The replica's state in one word, as `functions show` prints it."""
        if self.ready and not self.ready.done():
            return "starting"
        if not self.serves:
            return "ending"
        return "busy" if any(place.job is not None for place in self.places) else "idle"


@dataclass(eq=False)
class Place:
    """A place where one invocation at a time runs: a replica, or one of several in a replica."""

    number: int
    unit: Unit
    gpu: int | None  # where the policy has its memory, or had it last; None: it is away
    also: tuple[int, ...] = ()  # its other GPUs, of which the policy was told
    job: object | None = None
    idle_since: float = field(default_factory=time.monotonic)
    joined: bool = False  # its replica was ready before it


class Fleet:
    """Starts and ends replicas."""

    def __init__(
        self,
        environment_of: Callable[[Deployment, int | None], Mapping[str, str]],
        gpus: Callable[[], Collection[int]],
        file_of: Callable[[Deployment], Path],
    ) -> None:
        """`gpus`: that there are; of one nobody needs to be told."""
        self._environment_of = environment_of
        self._gpus = gpus
        self._file_of = file_of
        self.ended: Callable[[Replica], None] | None = None
        self._lost: Callable[[Place], None] | None = None
        self.places: dict[int, Place] = {}
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._units: set[Unit] = set()  # until their processes are gone, whoever else has forgotten them
        self._closing = False
        self._turns = asyncio.Semaphore(
            2 * (os.cpu_count() or 1)
        )  # a crowd that starts at once is late as a whole

    def units(self) -> list[Unit]:
        """All replicas, those that start too, but for those that were told to end."""
        return [unit for unit in self._units if not unit.replica.ending]

    def emptiest(self) -> int:
        """The GPU with the fewest replicas: those whose memory is not there yet have their session there."""
        return min(self._gpus(), key=lambda gpu: sum(unit.gpu == gpu for unit in self.units()))

    async def obtain(self, function: Function, gpu: int, deployment: Deployment | None = None) -> Place:
        """A new place for the function: in a replica that has room, of this GPU rather than others, else in a
        new one. Raises StartFailed, and Ending after `close`.

        `deployment`: a revision that is not the function's yet, which gets a replica of its own.
        """
        if self._closing:
            raise Ending
        wanted = deployment or function.deployment
        unit = None if deployment else self._spare(function, gpu)
        if unit is None:
            unit = Unit(function, self._replica(function, wanted), gpu=gpu)
            function.units.append(unit)
            self._units.add(unit)
            unit.ready = self.begin(self._start(unit))
        assert unit.ready
        place = Place(next(self._numbers), unit, unit.gpu, joined=unit.ready.done())
        unit.places.append(place)
        try:
            await asyncio.shield(unit.ready)
        except BaseException:
            unit.places.remove(place)
            raise
        self.places[place.number] = place
        return place

    def _spare(self, function: Function, gpu: int) -> Unit | None:
        current = function.current()
        spare = [one for one in current if len(one.places) < one.replica.deployment.concurrency]
        there = [one for one in spare if one.gpu == gpu]
        more = len(current) < function.deployment.most
        return there[0] if there else None if more or not spare else spare[0]

    def _replica(self, function: Function, deployment: Deployment) -> Replica:
        if deployment.command:
            return ProgramReplica(deployment, function.book.write)
        return PythonReplica(deployment, function.book.write, self._file_of(deployment))

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Be one of the few that start now. Functions that hang when they start would stop all others."""
        await self._turns.acquire()
        with contextlib.ExitStack() as turn:
            turn.callback(self._turns.release)
            late = asyncio.get_running_loop().call_later(TURN_SECONDS, turn.close)
            turn.callback(late.cancel)
            yield

    async def _start(self, unit: Unit) -> None:
        function, replica = unit.function, unit.replica
        try:
            async with self._turn():
                gpu = unit.gpu if len(self._gpus()) > 1 else None
                await replica.start(self._environment(replica.deployment, gpu))
        except BaseException as error:
            self._units.discard(unit)
            function.units.remove(unit)
            function.failures += 1
            pause = min(2.0 ** min(function.failures - 1, 10), BACKOFF_MOST)
            function.next_try = time.monotonic() + pause
            if isinstance(error, StartFailed):
                replica.hear("server", f"it did not start: {error}")
            if self._closing:
                raise Ending from None
            raise
        function.failures = 0
        self.begin(self._watch(unit))

    def _environment(self, deployment: Deployment, gpu: int | None) -> Mapping[str, str]:
        try:
            return self._environment_of(deployment, gpu)
        except (OSError, LibraryMissing) as error:
            raise StartFailed(str(error)) from None

    async def _watch(self, unit: Unit) -> None:
        process = unit.replica.process
        assert process
        await process.gone.wait()
        if not unit.replica.ending:
            unit.replica.hear("server", f"its process is gone: {process.status}")
        await unit.replica.end(0.0)
        self._units.discard(unit)
        if self.ended:
            self.ended(unit.replica)
        for place in [place for place in unit.places if place.job is None]:
            self._lose(place)

    def end(self, place: Place) -> None:
        """Give up an idle place. A replica without places ends."""
        unit = place.unit
        if self.places.pop(place.number, None) is None:
            return
        unit.places.remove(place)
        if not unit.places and unit in unit.function.units:
            unit.function.units.remove(unit)
            self.begin(unit.replica.end(END_SECONDS))

    def retire(self, unit: Unit) -> None:
        """Give a replica no more invocations, and end it when its last one has ended."""
        unit.replica.retiring = True
        for place in [place for place in unit.places if place.job is None and place.number in self.places]:
            self._lose(place)

    def tell(self, lost: Callable[[Place], None]) -> None:
        """Tell of each idle place that is gone without its policy's wish."""
        self._lost = lost

    def _lose(self, place: Place) -> None:
        self.end(place)
        if self._lost:
            self._lost(place)

    def usable(self, place: Place) -> bool:
        """Whether the place may get another invocation."""
        unit = place.unit
        if not (unit.serves and unit.replica.alive):
            return False
        limit, process = unit.replica.deployment.memory_limit, unit.replica.process
        if unit.replica.deployment.memory and process:
            process.weigh(limit)
        return not (process and process.weighed > FULL * limit)

    def weigh(self) -> None:
        """End replicas that have more memory, or more processes, than they may."""
        for unit in self._units:
            limit, process = unit.replica.deployment.memory_limit, unit.replica.process
            if not process or process.gone.is_set():
                continue
            has = process.weigh(limit)
            if process.members > PROCESSES_MOST:
                why = f"the function's process had started more than {PROCESSES_MOST} others"
                unit.replica.kill(Failed(Code.PROCESSES, why, Ran.YES))
            elif has > limit:
                may = f"{exact_size(limit >> 20 << 20 or limit)} of memory (--memory)"
                why = f"the function's process had {has >> 20} MiB, and may have {may}"
                unit.replica.kill(Failed(Code.MEMORY, why, Ran.YES))

    def reap(self, function: Function) -> None:
        """End replicas that nobody has needed for as long as the deployment says."""
        now, wanted = time.monotonic(), function.deployment
        units = function.current()
        for unit in list(units):
            since = [place.idle_since for place in unit.places if place.job is None]
            settled = unit.places and len(since) == len(unit.places) and unit.ready and unit.ready.done()
            if settled and len(units) > wanted.least and now - max(since) >= wanted.idle:
                units.remove(unit)
                self.retire(unit)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do this beside everything else, and wait for it at the end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, StartFailed):
            log.error("a replica's task failed", exc_info=error)

    async def close(self) -> None:
        """Start no more replicas; end those that there are, and what is still being done with them."""
        self._closing = True
        for unit in list(self._units):
            unit.replica.kill(Failed(Code.SHUTTING_DOWN, ENDING, Ran.YES))
            if unit.ready and not unit.ready.done():
                unit.ready.cancel()
        while self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(set(self._tasks))
