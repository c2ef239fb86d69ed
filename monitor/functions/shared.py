"""What several function servers have in common, in a store: functions, what was measured, who uses which GPU.

Keys, as in policies.md §4.1: `function/<name>` is a deployment, `model/<name>/load` and `/infer` are seconds;
they stay. `gpu/<node>/<i>/status/<server>` and `/lru/<server>` are each server's own, and go with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import structlog

from ..service.waiting import cancel_all, within
from ..store.interface import ABSENT, Entry, Store, StoreError
from .deployment import Deployment, WrongDeployment, read
from .schedule import Schedule

FUNCTIONS, MODELS = "function/", "model/"
PUBLISH_SECONDS = 1.0  # between two looks at what is to be told
LEAVE_SECONDS = 2.0  # that its keys may take to go
LEASE_SECONDS = 10.0  # that a server may be silent, before it counts as gone

log = structlog.get_logger()


class Catalogued(Protocol):
    """The functions of this server."""

    def names(self) -> Iterable[str]:
        """Names of the functions that this server has."""

    async def follow(self, name: str) -> bool:
        """Have of this function what the store has. False: the store does not answer."""


class Shared:
    """This server's part of what is in the store, and the others'."""

    def __init__(self, store: Store, node: str, schedule: Schedule) -> None:
        """`node`: the name of the GPU server, the same for all who use it."""
        self._store = store
        self._node = node.replace("/", "-")
        self._schedule = schedule
        self.name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self.others: tuple[str, ...] = ()  # servers that use the same GPUs
        self._models = schedule.models
        self._odd: set[str] = set()  # keys whose values were complained of
        self._written: dict[str, tuple[str, float]] = {}
        self._telling = asyncio.Lock()  # what is told of a function is in the store before it is forgotten

    # -- functions

    async def deployments(self) -> dict[str, Deployment]:
        """The functions that are deployed on any of the servers, by name. Raises StoreError."""
        found: dict[str, Deployment] = {}
        for key, entry in (await self._store.read(FUNCTIONS)).items():
            with contextlib.suppress(WrongDeployment):  # the log says it
                found[key.removeprefix(FUNCTIONS)] = _read(key, entry)
        for key, entry in (await self._store.read(MODELS)).items():
            self._learned(key, entry.value)
        return found

    async def deployed(self, name: str) -> Deployment | None:
        """What is deployed under this name now. Raises StoreError, WrongDeployment if nobody can read it."""
        entry = await self._store.get(FUNCTIONS + name)
        return _read(FUNCTIONS + name, entry) if entry else None

    async def keep(self, deployment: Deployment) -> None:
        """Store this revision, the one after what is deployed. Raises WrongDeployment, StoreError."""
        key = FUNCTIONS + deployment.name
        entry = await self._store.get(key)
        late = entry and _read(key, entry).revision >= deployment.revision
        text = json.dumps(deployment.as_json()).encode()
        if late or not await self._store.swap(key, text, entry.version if entry else ABSENT):
            raise WrongDeployment("another server deployed it at the same time")

    async def forget(self, name: str) -> None:
        """Remove the function, and what was learnt of it, from the store. Raises StoreError."""
        async with self._telling:
            for key in (FUNCTIONS + name, *await self._store.read(f"{MODELS}{name}/")):
                while entry := await self._store.get(key):
                    if await self._store.swap(key, None, entry.version):
                        break

    # -- what goes on all the time

    async def follow(self, catalogue: Catalogued) -> None:
        """Have what others deploy, and no more what they remove. Until cancelled."""
        followers = Followers(catalogue)
        try:
            async for state in self._store.watch(FUNCTIONS):
                for name in {key.removeprefix(FUNCTIONS) for key in state} | set(catalogue.names()):
                    followers.follow(name)
        finally:
            await followers.close()

    async def learn(self) -> None:
        """Hear what others measured. Until cancelled."""
        async for state in self._store.watch(MODELS):
            self._odd.intersection_update(state)
            for key, value in state.items():
                self._learned(key, value)

    def _learned(self, key: str, value: bytes) -> None:
        """What another server measured, if it is seconds: whatever else is there is nobody's."""
        try:
            seconds = float(value.decode())
            sense = math.isfinite(seconds) and seconds >= 0
        except ValueError:
            sense = False
        if sense:
            self._models.put(key, value.decode())
        elif key not in self._odd:
            self._odd.add(key)
            log.warning("what was measured cannot be read", key=key)

    async def look(self) -> None:
        """See which GPUs others use. Until cancelled."""
        async for state in self._store.watch(f"gpu/{self._node}/"):
            busy: Counter[int] = Counter()
            servers = set()
            for key, value in state.items():
                _, _, gpu, what, server = [*key.split("/", 4), ""][:5]
                if what == "status" and server != self.name and gpu.isdecimal():
                    servers.add(server)
                    busy[int(gpu)] += value == b"busy"
            self.others = tuple(sorted(servers))
            self._schedule.others(busy)

    async def publish(self) -> None:
        """Tell what this server does and measures. Until cancelled."""
        complained = False
        while True:
            try:
                async with self._telling:
                    await self._publish()
                complained = False
            except StoreError as error:
                if not complained:
                    log.warning("other function servers do not hear of this one", why=str(error))
                complained = True
            await asyncio.sleep(PUBLISH_SECONDS)

    async def _publish(self) -> None:
        now = asyncio.get_running_loop().time()
        wanted = self._schedule.published(self._node)
        for key, value in wanted.items():
            mine = key.startswith("gpu/")
            known, at = self._written.get(key, ("", 0.0))
            if known == value and not (mine and now - at > LEASE_SECONDS / 3):
                continue
            await self._store.put(
                f"{key}/{self.name}" if mine else key, value.encode(), LEASE_SECONDS if mine else None
            )
            self._written[key] = value, now
        for key in self._written.keys() - wanted.keys():
            del self._written[key]  # its lease ends; what was measured stays for the next one

    async def close(self) -> None:
        """Tell that this server is no more, if the store answers, and close it."""
        with contextlib.suppress(StoreError, asyncio.TimeoutError):
            await within(LEAVE_SECONDS, self._leave())
        await self._store.close()

    async def _leave(self) -> None:
        for key in [key for key in self._written if key.startswith("gpu/")]:
            full = f"{key}/{self.name}"
            if entry := await self._store.get(full):
                await self._store.swap(full, None, entry.version)


def _read(key: str, entry: Entry) -> Deployment:
    """Raises WrongDeployment: a newer gpuferry has written it perhaps. It is left alone."""
    try:
        deployment = read(json.loads(entry.value))
        if key != FUNCTIONS + deployment.name:
            raise WrongDeployment("it is of another function")
    except (ValueError, RecursionError) as error:
        log.error("a deployment cannot be read", key=key, error=str(error))
        raise WrongDeployment(f"what is deployed there cannot be read: {error}") from None
    return deployment


class Followers:
    """Follows each function by itself: a revision may take an hour to start, and no removal waits for it."""

    def __init__(self, catalogue: Catalogued) -> None:
        self._catalogue = catalogue
        self._wanted: set[str] = set()  # that have changed since somebody began to follow
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self, name: str) -> None:
        """This function may have changed in the store."""
        self._wanted.add(name)
        if name not in self._tasks:
            self._tasks[name] = asyncio.ensure_future(self._follow(name))

    async def _follow(self, name: str) -> None:
        try:
            while name in self._wanted:
                self._wanted.discard(name)
                while not await self._catalogue.follow(name):
                    await asyncio.sleep(PUBLISH_SECONDS)
        except Exception:
            log.exception("a function is not followed, for a reason that nobody thought of", function=name)
        finally:
            del self._tasks[name]

    async def close(self) -> None:
        """Cancel what follows functions still, and wait until it has ended."""
        await cancel_all(self._tasks.values())


async def run(shared: Shared, catalogue: Catalogued) -> None:
    """All that goes on. Until cancelled."""
    await asyncio.gather(shared.follow(catalogue), shared.learn(), shared.look(), shared.publish())
