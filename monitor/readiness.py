"""Whether a guest could have an API server: for gRPC's health service, and for `gpuferry run --local`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gpuferry.specs._generated import node_pb2

from .pool.api_server import ApiServer, PoolListener
from .pool.pool import Pool
from .service.parent import Parent
from .service.stopping import Stopping

FAILURES_FATAL_FOR_PARENT = 3  # API servers that were never ready; the parent then gives up


class Readiness(PoolListener):
    """Watches the pool. A launcher that waits for this monitor is told once how its start went."""

    def __init__(self, pool: Pool, parent_descriptor: int | None, stopping: Stopping) -> None:
        self._pool = pool
        self._stopping = stopping
        self._health: asyncio.Queue[bool] = asyncio.Queue()
        self._was_ready = False
        self._found = False  # where this monitor is has been published
        self._parent = None if parent_descriptor is None else Parent(parent_descriptor, stopping.ask)

    async def report(self, set_serving: Callable[[bool], Awaitable[None]]) -> None:
        """Say whether a guest could have an API server, now and at every change of the pool, until
        cancelled.
        """
        await set_serving(False)
        while True:
            await set_serving(await self._health.get())

    def server_ready(self, server: ApiServer) -> None:
        self._look()

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        self._look()

    def server_lost(self, server: ApiServer) -> None:
        self._look()

    def device_lost(self, device: int, reason: str) -> None:
        self._look()

    def _look(self) -> None:
        ready = any(map(self._pool.takes_guests, range(self._pool.devices)))
        self._health.put_nowait(ready)
        if ready and not self._was_ready:
            self._was_ready = True
            self._tell()
        elif self._parent and not self._was_ready and self._pool.failures >= FAILURES_FATAL_FOR_PARENT:
            self._parent.tell(f"failed {self._pool.last_failure}")
            self._stopping.ask()

    def published(self) -> None:
        """Where this monitor is can be read: who is told that it is ready will look there."""
        self._found = True
        self._tell()

    def _tell(self) -> None:
        if self._parent and self._found and self._was_ready:
            self._parent.tell("ready")
