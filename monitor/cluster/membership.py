"""A monitor's place in a cluster: heartbeats to the registry, guests with tickets, tenants with tokens."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set

import grpc
import structlog
from gpuferry.guest.endpoint import TLS_SCHEME
from gpuferry.specs._generated import registry_pb2, tenants_pb2

from ..broker.broker import Broker
from ..door.credentials import AnyOf, Authority, LocalTenants, OwnToken, Tickets
from ..door.tickets import TicketDesk
from ..door.tokens import proof
from ..door.tokens.book import TokenBook
from ..pool.pool import Pool
from ..residency.steward import Steward
from ..service.dial import dial_async
from ..settings.errors import ConfigError
from ..settings.folders import state_directory, store_path
from ..settings.limits import Limits
from ..settings.monitor import Config
from ..settings.monitor_options import MonitorOptions
from ..store.interface import StoreError
from ..tenants.book import CLUSTERS, LimitBook
from ..tenants.messages import from_message
from ..tenants.tenancy import Source, Tenancy
from ..tenants.usage import TENANTS_MOST
from .cluster import Cluster
from .key import read_cluster_key
from .load import describe, programs_of, tell_programs
from .registry.client import CallFailed, ask
from .registry.signing import Caller

FIRST_INTERVAL = 1.0  # seconds between heartbeats, until the registry says how many it wants
INTERVALS = (0.02, 60.0)  # whatever it says
CALL_SECONDS = 3.0
LOCAL_KILLS_SECONDS = 1.0
RECONNECT = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000))
REPORTED_DAYS = 2  # so that the last of a day is told after its end

log = structlog.get_logger()


def clamp(number: float, least: float, most: float) -> float:
    """The number, or the nearest that is allowed; what is no number becomes the least."""
    return min(number, most) if number >= least else least


class Heartbeat:
    """Tells the registry how this server is: one replica after another, until one listens."""

    def __init__(
        self, cluster: Cluster, key: bytes, load: Callable[[], Awaitable[registry_pb2.Load]]
    ) -> None:
        self._cluster = cluster
        self._registries = list(cluster.registries)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._identity_version = 0
        self._caller = Caller(key)
        self._load = load
        self._sequence = itertools.count(1)
        self._complaint = ""

    async def run(self, heard: Callable[[registry_pb2.HeartbeatReply], None]) -> None:
        """Send heartbeats as often as the registry wants, and give answers to `heard`, until cancelled."""
        try:
            while True:
                await self._dial()
                reply = await self._beat()
                if reply:
                    heard(reply)
                await asyncio.sleep(clamp(reply.interval_seconds, *INTERVALS) if reply else FIRST_INTERVAL)
        finally:
            await self._hang_up()

    async def _dial(self) -> None:
        """With the certificate of now: a channel keeps the one that it was made with."""
        identity = self._cluster.identity
        version = identity.refresh() if identity else 0
        if not self._channels or version != self._identity_version:
            await self._hang_up()
            self._identity_version = version
            for registry in self._registries:
                self._channels[registry] = dial_async(registry, identity, self._cluster.insecure, RECONNECT)

    async def _hang_up(self) -> None:
        channels = list(self._channels.values())
        self._channels.clear()
        await asyncio.gather(*(channel.close(None) for channel in channels))

    async def _beat(self) -> registry_pb2.HeartbeatReply | None:
        load = await self._load()
        load.sequence = next(self._sequence)
        request = registry_pb2.HeartbeatRequest(load=load)
        complaint = ""
        for registry in list(self._registries):
            channel = self._channels[registry]
            try:
                reply: registry_pb2.HeartbeatReply = await ask(
                    channel, self._caller, registry, "Heartbeat", request, CALL_SECONDS
                )
            except CallFailed as error:
                complaint = f"{registry}: {error}"
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


class Membership:
    """This monitor's place in the cluster: whom it lets in, and what the registry knows of it."""

    def __init__(
        self,
        config: Config,
        cluster: Cluster,
        broker: Broker,
        pool: Pool,
        steward: Steward,
        tenancy: Tenancy,
        reports: Callable[[int], list[tenants_pb2.Report]],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._broker = broker
        self._pool = pool
        self._steward = steward
        self._tenancy = tenancy
        self._reports = reports
        self._killed: set[tuple[str, float]] = set()
        self._told = False  # by the registry, what limits there are
        self._digests: set[tuple[str, bytes]] = set()  # of the cluster's tokens, as the registry told last
        self._remembering: asyncio.Future[None] | None = None
        self._local = LocalTenants(store_path(config.state))
        self._trouble = ""  # with that
        self._desk = TicketDesk(cluster.key) if cluster.key else None
        authorities: list[Authority] = [OwnToken(config.token)]
        if self._desk:
            authorities.append(Tickets(self._desk))
        self.authority: Authority = AnyOf([*authorities, self._local])

    async def run(self, address: str) -> None:
        """Send heartbeats, carry out revocations, until cancelled. `address`: HOST:PORT for guests."""
        jobs = [self._watch_local()]
        if self._cluster.registries and self._cluster.key:
            heartbeat = Heartbeat(self._cluster, self._cluster.key, lambda: self._load(address))
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

    async def _load(self, address: str) -> registry_pb2.Load:
        await self._steward.look()
        load = describe(self._config, self._broker, self._pool, self._steward)
        load.address = (self._config.advertise or address).removeprefix(TLS_SCHEME)
        load.tls = bool(self._cluster.identity)
        if self._desk:
            load.incarnation = self._desk.incarnation
            load.clock = int(self._desk.clock() * 1000)
            load.tickets.extend(self._desk.used())
        for report in self._reports(REPORTED_DAYS):
            report.ClearField("limits")  # the registry knows those of the cluster, and takes 1 MiB
            report.ClearField("set")
            load.tenants.append(report)
        tell_programs(load, programs_of(self._broker.sessions.values(), self._steward))
        return load

    def _heard(self, reply: registry_pb2.HeartbeatReply) -> None:
        if reply.drained != self._broker.drained:
            log.info("drained by the registry" if reply.drained else "no longer drained")
            self._broker.drained = reply.drained
        self._kill(reply.kills)
        self._told = True
        self._digests = {(token.tenant, token.digest) for token in reply.tokens}
        self._know(Source.CLUSTER, {token.tenant for token in reply.tokens})
        limits = {said.tenant: from_message(said) for said in reply.tenants[:TENANTS_MOST]}
        if self._heed(Source.CLUSTER, limits):
            self._remembering = asyncio.ensure_future(self._remember(limits))

    async def _remember(self, limits: Mapping[str, Limits]) -> None:
        """For the next start of this monitor, if no registry answers then."""
        try:
            await LimitBook(await self._local.made(), CLUSTERS).replace(limits)
        except StoreError as error:
            log.warning("the cluster's limits are not kept for the next start", error=str(error))

    def _kill(self, kills: Iterable[registry_pb2.Kill]) -> None:
        for kill in kills:
            if (
                proof.is_tenant(kill.tenant)
                and math.isfinite(kill.time)
                and (kill.tenant, kill.time) not in self._killed
            ):
                self._killed.add((kill.tenant, kill.time))
                self._broker.endings.of_tenant(kill.tenant, kill.time)

    async def _watch_local(self) -> None:
        """`gpuferry token revoke --kill` on this machine leaves its order in the same file as the tokens."""
        while True:
            await self._look_local()
            await asyncio.sleep(LOCAL_KILLS_SECONDS)

    async def _look_local(self) -> None:
        """Do what the state folder says now. Where it cannot be read the log says so, once."""
        trouble = ""
        try:
            if book := await self._local.book():
                self._kill(await book.kills())
            await self.read_limits()
        except StoreError as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            log.error("what is set for tenants here cannot be read: it stays as it was", error=trouble)
        elif self._trouble and not trouble:
            log.info("what is set for tenants here can be read again")
        self._trouble = trouble

    async def read_limits(self) -> None:
        """Let the limits hold that the state folder has: set here, or as the registry told them last. Which
        tenants have tokens there is known then, too.
        """
        if store := await self._local.store():
            self._know(Source.MACHINE, await TokenBook(store).tenants())
            self._heed(Source.MACHINE, await LimitBook(store).all())
            if not self._told:
                self._heed(Source.CLUSTER, await LimitBook(store, CLUSTERS).all())

    def _heed(self, source: Source, limits: Mapping[str, Limits]) -> bool:
        changed = self._tenancy.update(source, limits)
        if changed:
            log.info("limits of tenants changed", set_by=source.name.lower(), tenants=len(limits))
            self._broker.dispatch()
            self._steward.invocations.gpus_changed()  # what of them is for whom
        return changed

    def _know(self, source: Source, tenants: Set[str]) -> None:
        if self._tenancy.know(source, tenants):
            self._pool.several_tenants(self._tenancy.several)
            self._broker.dispatch()

    async def holds(self, tenant: str, known: proof.Verifier) -> bool:
        """Whether the tenant has the token that this checks. Raises StoreError."""
        book = await self._local.book()
        found = await book.verifiers(tenant) if book else ()
        matching = [one for one in found if hmac.compare_digest(one.stored_key, known.stored_key)]
        return bool(matching) or (tenant, proof.fingerprint(known)) in self._digests


def lets_somebody_in(config: MonitorOptions) -> bool:
    """Whether there is a tenant's token or a cluster whose guests can come from other machines. Raises
    ConfigError if nobody can tell.
    """
    if read_cluster_key(config.cluster_key_file, state_directory(config.state)):
        return True

    async def any_token() -> bool:
        local = LocalTenants(store_path(config.state))
        try:
            book = await local.book()
            return bool(book and await book.all())
        finally:
            await local.close()

    try:
        return asyncio.run(any_token())
    except StoreError as error:
        hint = "make room if its disk is full; else put a copy in its place, or name another by --state"
        raise ConfigError(f"tokens of tenants cannot be read: {error}", hint) from None
