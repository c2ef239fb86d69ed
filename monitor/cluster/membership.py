"""A monitor's place in a cluster: heartbeats to the registry, guests with tickets, tenants with tokens."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import grpc
import structlog
from gpuferry.specs._generated import registry_pb2, registry_pb2_grpc

from ..broker.broker import Broker
from ..door.credentials import AnyOf, Authority, LocalTenants, OwnToken, Tickets
from ..door.tickets import TicketDesk
from ..pool.pool import Pool
from ..service.logs import hide
from ..settings.errors import ConfigError
from ..settings.folders import state_directory, store_path
from ..settings.monitor import Config, MonitorOptions
from ..store.interface import StoreError
from .key import NAME, read_cluster_key
from .load import describe
from .registry.service import SERVICE
from .registry.signing import sign

FIRST_INTERVAL = 1.0  # seconds between heartbeats, until the registry says how many it wants
CALL_SECONDS = 3.0
LOCAL_KILLS_SECONDS = 1.0
RECONNECT = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000))
HEARTBEAT = f"/{SERVICE}/Heartbeat"

log = structlog.get_logger()


class Heartbeat:
    """Tells the registry how this server is: one replica after another, until one listens."""

    def __init__(self, registries: Sequence[str], key: bytes, load: Callable[[], registry_pb2.Load]) -> None:
        self._registries = list(registries)
        self._stubs: dict[str, registry_pb2_grpc.RegistryStub] = {}
        self._key = key
        self._load = load
        self._sequence = itertools.count(1)
        self._complaint = ""

    async def run(self, heard: Callable[[registry_pb2.HeartbeatReply], None]) -> None:
        """Send heartbeats as often as the registry wants, and give answers to `heard`, until cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            for registry in self._registries:
                channel = grpc.aio.insecure_channel(registry, options=RECONNECT)
                self._stubs[registry] = registry_pb2_grpc.RegistryStub(channel)
                stack.push_async_callback(channel.close, None)
            while True:
                reply = await self._beat()
                if reply:
                    heard(reply)
                await asyncio.sleep(reply.interval_seconds if reply else FIRST_INTERVAL)

    async def _beat(self) -> registry_pb2.HeartbeatReply | None:
        load = self._load()
        load.sequence = next(self._sequence)
        request = registry_pb2.HeartbeatRequest(load=load)
        complaint = ""
        for registry in list(self._registries):
            metadata = sign(self._key, HEARTBEAT, request)
            call = self._stubs[registry].Heartbeat(request, timeout=CALL_SECONDS, metadata=metadata)
            try:
                reply: registry_pb2.HeartbeatReply = await call
            except grpc.aio.AioRpcError as error:
                complaint = f"{registry}: {error.code().name}: {error.details()}"
                self._registries.append(self._registries.pop(0))
                continue
            self._complain("")
            return reply
        self._complain(complaint)
        return None

    def _complain(self, complaint: str) -> None:
        """Once per trouble, not once per heartbeat."""
        if complaint != self._complaint:
            self._complaint = complaint
            if complaint:
                log.warning("no registry accepts heartbeats", error=complaint)
            else:
                log.info("the registry accepts heartbeats", registry=self._registries[0])


@dataclass(frozen=True)
class Cluster:
    """What a monitor was told of the cluster that it belongs to, if it does."""

    key: bytes | None = field(repr=False)
    registries: Sequence[str]  # control ports of the replicas, as HOST:PORT


def cluster_of(config: MonitorOptions) -> Cluster:
    """Read the cluster key, and hide it from log lines. ConfigError: a registry is named without a key."""
    key = read_cluster_key(config.cluster_key_file, state_directory(config.state))
    registries = [name.strip() for name in config.registry.split(",")] if config.registry else []
    if key:
        hide(key.decode())
    elif registries:
        raise ConfigError(
            "--registry needs the cluster key",
            f"copy the registry's {NAME} here and give it with --cluster-key-file",
        )
    return Cluster(key, registries)


class Membership:
    """Who may come to this monitor, and what the cluster knows of it."""

    def __init__(self, config: Config, cluster: Cluster, broker: Broker, pool: Pool) -> None:
        self._config = config
        self._cluster = cluster
        self._broker = broker
        self._pool = pool
        self._killed: set[tuple[str, float]] = set()
        self._local = LocalTenants(store_path(config.state))
        self._desk = TicketDesk(cluster.key) if cluster.key else None
        authorities: list[Authority] = [OwnToken(config.token)]
        if self._desk:
            authorities.append(Tickets(self._desk))
        self.authority: Authority = AnyOf([*authorities, self._local])

    async def run(self, address: str) -> None:
        """Send heartbeats, carry out revocations, until cancelled. `address`: HOST:PORT for guests."""
        jobs = [self._watch_local()]
        if self._cluster.registries and self._cluster.key:
            heartbeat = Heartbeat(self._cluster.registries, self._cluster.key, lambda: self._load(address))
            jobs.append(heartbeat.run(self._heard))
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(StoreError):
                await self._local.close()

    def _load(self, address: str) -> registry_pb2.Load:
        load = describe(self._config, self._broker, self._pool)
        load.address = self._config.advertise or address
        if self._desk:
            load.incarnation = self._desk.incarnation
            load.tickets.extend(self._desk.used())
        return load

    def _heard(self, reply: registry_pb2.HeartbeatReply) -> None:
        if reply.drained != self._broker.drained:
            log.info("drained by the registry" if reply.drained else "no longer drained")
            self._broker.drained = reply.drained
        self._kill(reply.kills)

    def _kill(self, kills: Iterable[registry_pb2.Kill]) -> None:
        for kill in kills:
            if (kill.tenant, kill.time) not in self._killed:
                self._killed.add((kill.tenant, kill.time))
                self._broker.end_tenant(kill.tenant)

    async def _watch_local(self) -> None:
        """`gpuferry token revoke --kill` on this machine leaves its order in the same file as the tokens."""
        while True:
            with contextlib.suppress(StoreError):
                if book := self._local.book:
                    self._kill(await book.kills())
            await asyncio.sleep(LOCAL_KILLS_SECONDS)


def lets_somebody_in(config: MonitorOptions) -> bool:
    """Whether there is a tenant's token or a cluster whose guests can come from other machines."""
    if read_cluster_key(config.cluster_key_file, state_directory(config.state)):
        return True

    async def any_token() -> bool:
        local = LocalTenants(store_path(config.state))
        try:
            return bool(local.book and await local.book.all())
        finally:
            await local.close()

    return asyncio.run(any_token())
