"""Which functions there are: deployed, deployed anew, removed, and there again after a restart."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

import structlog

from ..store.interface import StoreError
from .deployment import Deployment, WrongDeployment
from .engine import Engine
from .fleet import Fleet, Function, Place, Unit
from .replica import StartFailed
from .schedule import Schedule
from .shelf import Shelf

TICK_SECONDS = 0.2
FUNCTIONS_MOST = 1000

log = structlog.get_logger()


class Common(Protocol):
    """The store of functions that several servers share."""

    async def deployments(self) -> dict[str, Deployment]:
        """All of them. Raises StoreError."""

    async def deployed(self, name: str) -> Deployment | None:
        """What is deployed under this name now. Raises StoreError, WrongDeployment if nobody can read it."""

    async def keep(self, deployment: Deployment) -> None:
        """Store this revision for all servers. Raises WrongDeployment, StoreError."""

    async def forget(self, name: str) -> None:
        """Remove the function from the store, for all servers. Raises StoreError."""


class Catalogue:
    """The functions by name."""

    def __init__(
        self, shelf: Shelf, schedule: Schedule, fleet: Fleet, engine: Engine, shared: Common | None = None
    ) -> None:
        """`shared`: where functions are kept for several servers; None: on the shelf, for this one."""
        self._shared = shared
        self._shelf = shelf
        self._schedule = schedule
        self._fleet = fleet
        self._engine = engine
        self._functions: dict[str, Function] = {}
        self.forgotten: Callable[[str], None] | None = None  # hears which function is no more
        # As long as somebody has one, or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def get(self, name: str) -> Function | None:
        """The function of this name."""
        return self._functions.get(name)

    def names(self) -> list[str]:
        """Names of the deployed functions, sorted."""
        return sorted(self._functions)

    def all(self) -> list[Function]:
        """All functions, by name."""
        return [self._functions[name] for name in sorted(self._functions)]

    async def restore(self) -> None:
        """Have what was deployed before this server started. Raises StoreError, OSError."""
        if self._shared:
            for deployment in (await self._shared.deployments()).values():
                self._shelf.mend(deployment)
                self._enter(Function(deployment))
        else:
            for deployment in self._shelf.all():
                self._enter(Function(deployment))

    async def follow(self, name: str) -> bool:
        """Have of this function what the store has. What cannot be started here stays as it was. False: the
        store does not answer.
        """
        assert self._shared
        async with self._lock(name):
            try:
                wanted = await self._shared.deployed(name)
                function = self._functions.get(name)
                if function and (wanted is None or _is_another(wanted, function.deployment)):
                    self._forget(function)
                    function = None
                if wanted and not function:
                    self._shelf.stage(wanted)
                    self._enter(Function(wanted))
                elif wanted and function and function.deployment != wanted:
                    await self._roll_out(function, wanted)
            except StoreError:
                return False
            except (StartFailed, OSError, WrongDeployment) as error:
                log.error("what another server deployed does not start here", function=name, why=str(error))
            return True

    def _enter(self, function: Function) -> None:
        self._functions[function.name] = function
        self._schedule.deploy(function.deployment)

    async def deploy(self, wanted: Deployment) -> Function:
        """Have this function, or this revision of it, once a replica of it is ready. Raises StartFailed,
        WrongDeployment, OSError, StoreError; then everything is as it was.
        """
        async with self._lock(wanted.name):
            function = self._functions.get(wanted.name)
            if function is None and len(self._functions) >= FUNCTIONS_MOST:
                raise WrongDeployment(f"there are {FUNCTIONS_MOST} functions already")
            known = function.deployment.revision if function else 0
            if self._shared and (elsewhere := await self._shared.deployed(wanted.name)):
                known = max(known, elsewhere.revision)
            deployment = dataclasses.replace(wanted, revision=known + 1)
            return await self._roll_out(function or Function(deployment), deployment, keep=True)

    async def _roll_out(self, function: Function, deployment: Deployment, keep: bool = False) -> Function:
        """Have this revision once a replica of it is ready. `keep`: from now on. Raises WrongDeployment."""
        if why_not := self._engine.why_never(deployment):
            raise WrongDeployment(why_not)
        self._shelf.stage(deployment)
        gpu = self._fleet.emptiest()
        self._schedule.make_room(deployment, gpu)
        self._engine.pump()
        try:
            place = await self._fleet.obtain(function, gpu, deployment)
        except BaseException:
            self._shelf.drop(deployment)
            raise
        return await self._switch(function, deployment, place, keep)

    async def _keep(self, deployment: Deployment) -> None:
        """Raises OSError, StoreError, WrongDeployment."""
        if self._shared:
            await self._shared.keep(deployment)
        else:
            self._shelf.put(deployment)

    async def _switch(self, function: Function, deployment: Deployment, place: Place, keep: bool) -> Function:
        """Replace the deployed revision by a new one, whose first replica is at `place`. `keep`: store it,
        too. Raises OSError, StoreError, WrongDeployment; then the old one stays.
        """
        before = function.deployment
        try:
            if keep:
                await self._keep(deployment)
        except BaseException:
            self._fleet.retire(place.unit)
            self._shelf.drop(deployment)
            raise
        old = [unit for unit in function.units if unit is not place.unit]
        function.deployment = deployment
        self._enter(function)
        self._add(place)
        log.info("deployed", function=function.name, revision=deployment.revision)
        for number, unit in enumerate(old):
            if 0 < number < deployment.most and unit in function.units:
                await self._one_more(function)
            self._fleet.retire(unit)
            self._engine.pump()
        if before.revision != deployment.revision:
            self._shelf.drop(before)
        return function

    def _add(self, place: Place) -> None:
        if place.number not in self._fleet.places:  # its process ended while the deployment was being stored
            return
        place.idle_since = time.monotonic()
        if self._schedule.known:
            place.gpu = None
        self._schedule.add(place.number, place.unit.function.name, place.unit.gpu)
        self._engine.introduce(place.unit)
        if not place.unit.serves:  # its GPU was lost while it started
            self._fleet.retire(place.unit)
        self._engine.pump()

    async def _one_more(self, function: Function) -> None:
        """A replica that no invocation has asked for."""
        try:
            place = await self._fleet.obtain(function, self._fleet.emptiest(), function.deployment)
        except StartFailed:
            return  # its log says why
        # Invocations may have started others meanwhile.
        wanted = place.unit.serves and len(function.current()) <= function.deployment.most
        if self._functions.get(function.name) is function and wanted:
            self._add(place)
        else:
            self._fleet.retire(place.unit)

    async def remove(self, name: str) -> bool:
        """Forget a function: what waits is refused, what runs ends. False: there is none. Raises StoreError,
        OSError; then it stays.
        """
        async with self._lock(name):
            function = self._functions.get(name)
            if function is None:
                return False
            if self._shared:
                await self._shared.forget(name)
            self._forget(function)
            return True

    def _forget(self, function: Function) -> None:
        name = function.name
        self._shelf.remove(name)  # which may fail: nothing has changed then
        del self._functions[name]
        function.removed = True
        self._schedule.remove(name)
        self._engine.pump()
        for unit in list(function.units):
            self._fleet.retire(unit)
        function.book.close()
        if self.forgotten:
            self.forgotten(name)
        log.info("removed", function=name)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def tick(self) -> None:
        """Look after replicas again and again, until cancelled."""
        while True:
            self._engine.take_gpus()
            self._schedule.tick()
            self._engine.pump()
            self._fleet.weigh()
            for function in self.all():
                self._fleet.reap(function)
                self._have_least(function)
            await asyncio.sleep(TICK_SECONDS)

    def _have_least(self, function: Function) -> None:
        """Have as many replicas as there are to be at any time."""
        lacking = function.deployment.least - len(function.current())
        if lacking > 0 and not self._schedule.full and time.monotonic() >= function.next_try:
            self._fleet.begin(self._one_more(function))


def _is_another(wanted: Deployment, had: Deployment) -> bool:
    """Whether the name was removed and deployed anew: a new revision of the same would be higher."""
    return wanted != had and wanted.revision <= had.revision


def state_of(unit: Unit) -> dict[str, object]:
    """What is shown of a replica."""
    process = unit.replica.process
    return {
        "replica": unit.replica.number,
        "pid": process.pid if process else 0,
        "state": unit.state,
        "revision": unit.replica.deployment.revision,
        "age_seconds": time.monotonic() - unit.started,
        "running": sum(place.job is not None for place in unit.places),
        "memory": process.weighed if process and unit.replica.alive else 0,
    }
