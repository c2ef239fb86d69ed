"""The GPU servers of the cluster, in a Store: `cluster/server/ADDRESS` is what the operator said, and stays;
`cluster/alive/ADDRESS` is what the server says, and goes when it says nothing for a lease's time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

import structlog
from gpuferry.guest.endpoint import TLS_SCHEME
from gpuferry.specs._generated import registry_pb2

from ...store.interface import ABSENT, Entry, Store, StoreError
from ...store.records import View, record
from .clocks import Clocks

ROOT = "cluster/"
REGISTERED, ALIVE = "cluster/server/", "cluster/alive/"

log = structlog.get_logger()


def way_to(server: registry_pb2.Server) -> str:
    """The address as guests and other GPU servers are told it: of one that has TLS, tls://HOST:PORT."""
    return (TLS_SCHEME if server.load.tls else "") + server.registration.address


class Unknown(Exception):
    """No server is registered under this address."""


class NotIdle(Exception):
    """The server is not drained, or still has sessions."""


def _below(prefix: str, state: Mapping[str, bytes]) -> dict[str, bytes]:
    return {key: value for key, value in state.items() if key.startswith(prefix)}


def _registration(address: str, entry: Entry) -> registry_pb2.Registration:
    """Raises StoreError if it is damaged."""
    return record(registry_pb2.Registration, REGISTERED + address, entry)


class Directory:
    """Writes go to the store at once; `servers` is a view that follows it: choosing waits for nothing."""

    def __init__(self, store: Store, lease: float) -> None:
        self.store = store
        self._lease = lease
        self._changed = asyncio.Event()
        self.clocks = Clocks()
        self.servers: list[registry_pb2.Server] = []
        self.known = False  # whether the store has said which there are
        self._view = View()

    async def follow(self) -> None:
        """Keeps `servers` up to date, until cancelled."""
        async for state in self.store.watch(ROOT):
            self._note(self._join(state))

    def _join(self, state: Mapping[str, bytes]) -> list[registry_pb2.Server]:
        beats = self._view.read(registry_pb2.Load, _below(ALIVE, state))
        servers = []
        for one in self._view.read(registry_pb2.Registration, _below(REGISTERED, state)).values():
            beat = beats.get(ALIVE + one.address)
            servers.append(registry_pb2.Server(registration=one, alive=beat is not None, load=beat))
        return sorted(servers, key=lambda server: server.registration.address)

    def _note(self, servers: list[registry_pb2.Server]) -> None:
        before = {server.registration.address: server.alive for server in self.servers}
        for server in servers:
            address = server.registration.address
            if before.get(address, False) != server.alive:
                log.info("server is up" if server.alive else "server is silent", address=address)
        self.clocks.note(servers)
        self.servers, self.known = servers, True
        self._changed.set()
        self._changed = asyncio.Event()

    def next_change(self) -> asyncio.Event:
        """An event that is set when `servers` is replaced by another list."""
        return self._changed

    async def read(self) -> list[registry_pb2.Server]:
        """All servers, from the store itself: whatever was written before is in it."""
        entries = await self.store.read(ROOT)
        return self._join({key: entry.value for key, entry in entries.items()})

    async def show(self, address: str) -> registry_pb2.Server:
        """The server with this address. Raises Unknown."""
        for server in await self.read():
            if server.registration.address == address:
                return server
        raise Unknown(address)

    async def register(self, address: str, labels: list[registry_pb2.Label]) -> None:
        """Register a server, or give one that is registered other labels. One whose record is damaged is
        registered anew.
        """
        while True:
            entry = await self.store.get(REGISTERED + address)
            registration = registry_pb2.Registration(address=address, registered=time.time())
            if entry:
                with contextlib.suppress(StoreError):
                    registration = _registration(address, entry)
            del registration.labels[:]
            registration.labels.extend(labels)
            version = entry.version if entry else ABSENT
            if await self.store.swap(REGISTERED + address, registration.SerializeToString(), version):
                return

    async def _change(self, address: str, change: Callable[[registry_pb2.Registration], None]) -> None:
        while entry := await self.store.get(REGISTERED + address):
            registration = _registration(address, entry)
            change(registration)
            if await self.store.swap(REGISTERED + address, registration.SerializeToString(), entry.version):
                return
        raise Unknown(address)

    async def set_drained(self, address: str, drained: bool) -> None:
        """Say whether the server gets no new sessions. Raises Unknown."""

        def change(registration: registry_pb2.Registration) -> None:
            registration.drained = drained

        await self._change(address, change)

    async def remove(self, address: str) -> registry_pb2.Server:
        """Forget the server and return what it was. Raises NotIdle unless it is drained and empty."""
        while entry := await self.store.get(REGISTERED + address):
            drained = _registration(address, entry).drained
            server = await self.show(address)
            if not drained:
                raise NotIdle(f"{address} is not drained: `gpuferry server drain {address}` comes first")
            if server.load.sessions or server.load.waiting:
                count = server.load.sessions + server.load.waiting
                raise NotIdle(
                    f"{address} still has {count} sessions: `gpuferry server drain {address} --wait`"
                )
            if await self.store.swap(REGISTERED + address, None, entry.version):
                return server
        raise Unknown(address)

    async def beat(self, load: registry_pb2.Load) -> registry_pb2.Registration:
        """Note a heartbeat, and return what the operator said of its server. Raises Unknown."""
        entry = await self.store.get(REGISTERED + load.address)
        if not entry:
            raise Unknown(load.address)
        registration = _registration(load.address, entry)
        await self.store.put(ALIVE + load.address, load.SerializeToString(), self._lease)
        return registration
