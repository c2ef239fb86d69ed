"""What the monitor knows, as control.proto's StatusReply."""

from __future__ import annotations

import asyncio
import os
import socket
import time

from gpuferry.specs._generated import control_pb2, node_pb2, wire
from gpuferry.specs._generated.frames import PROTOCOL_VERSION

from ..arbiter.office import Office
from ..broker.broker import Broker
from ..broker.portions import said
from ..devices.gpus import GpuStats
from ..policy.portion import FULL
from ..pool.api_server import ApiServer, State
from ..pool.pool import Pool
from ..residency.books import Entry
from ..residency.steward import Steward
from ..service.versions import package_version
from ..sessions.session import Session
from ..settings.monitor import Config
from .migrations import describe
from .turns import turns_of_device, turns_of_session

STATS_SECONDS = 0.3
FEW = 200  # sessions, for which asking the arbiter each second costs no turn anything

_STATES = {
    State.STARTING: control_pb2.SERVER_STATE_STARTING,
    State.IDLE: control_pb2.SERVER_STATE_IDLE,
    State.BUSY: control_pb2.SERVER_STATE_BUSY,
    State.STOPPING: control_pb2.SERVER_STATE_STOPPING,
}

_RESIDENCE: dict[int, control_pb2.Residency] = {
    node_pb2.RESIDENCE_RESIDENT: control_pb2.RESIDENCY_RESIDENT,
    node_pb2.RESIDENCE_LEAVING: control_pb2.RESIDENCY_LEAVING,
    node_pb2.RESIDENCE_HOST: control_pb2.RESIDENCY_HOST,
    node_pb2.RESIDENCE_DISK: control_pb2.RESIDENCY_DISK,
    node_pb2.RESIDENCE_RETURNING: control_pb2.RESIDENCY_RETURNING,
}


class StatusReporter:
    """Puts together what is known of devices, API servers, sessions and migrations."""

    def __init__(
        self,
        config: Config,
        pool: Pool,
        broker: Broker,
        steward: Steward,
        listening: list[str],
        http: str,
        gpus: GpuStats,
        office: Office | None = None,
    ) -> None:
        self._config = config
        self._pool = pool
        self._broker = broker
        self._steward = steward
        self._listening = listening
        self._http = http  # HOST:PORT of the page; empty: there is none
        self._gpus = gpus
        self._office = office
        self._identity: dict[int, node_pb2.Ready] = {}  # of each device, as its last API server told
        self._started = time.monotonic()

    async def report(self, tenant: str | None = None) -> control_pb2.StatusReply:
        """The status at this moment; API servers are asked for fresh figures first. `tenant`: only for its
        sessions, for it may ask often, and sees no others.
        """
        if tenant is None:
            turns = [self._office.report()] if self._office else []
            asked = self._pool.everyone()
        else:
            turns = [self.ask_arbiter()]
            asked = [one.server for one in self._running(tenant) if one.server]
        ready = [server for server in asked if server.ready]
        await asyncio.gather(*(server.refresh_stats(STATS_SECONDS) for server in ready), *turns)
        return self._last_known(tenant)

    def _running(self, tenant: str | None) -> list[Session]:
        return [one for one in self._broker.running() if tenant in (None, one.hello.tenant)]

    def _last_known(self, tenant: str | None) -> control_pb2.StatusReply:
        """The status without asking anybody: figures of sessions are as old as the last question."""
        reasons = self._broker.obstacles()
        entries = self._steward.entries()
        servers = self._pool.servers.values() if tenant is None else ()
        return control_pb2.StatusReply(
            monitor=control_pb2.MonitorInfo(
                version=package_version(),
                pid=os.getpid(),
                uptime_seconds=time.monotonic() - self._started,
                protocol_version=PROTOCOL_VERSION,
                spec_hash=wire.SPEC_HASH,
                listening=self._listening,
                sessions_granted=self._broker.granted,
                sessions_refused=self._broker.refusals.count,
                http=self._http,
                draining=self._broker.draining,
                hostname=socket.gethostname(),
                gpu_stats_problem=self._gpus.problem,
                away_memory_used=self._steward.books.host_used,
                away_disk_used=self._steward.books.disk_used,
            ),
            devices=self.devices(),
            servers=[self._server(one) for one in sorted(servers, key=lambda one: (one.device, one.key))],
            sessions=[
                self._session(one, entries.get(one.id))
                for one in sorted(self._running(tenant), key=lambda one: one.id)
            ],
            queue=[
                self._waiting(session, reasons.get(session.id, ""))
                for session in self._broker.waiting()
                if session.guest and tenant in (None, session.hello.tenant)
            ],
            migrations=[describe(migration) for migration in self._broker.custody.recent],
        )

    async def ask_arbiter(self) -> None:
        """Ask for fresh figures of turns, unless so many sessions take them that it would delay these."""
        if self._office and len(self._broker.sessions) <= FEW:
            await self._office.report()

    def devices(self) -> list[control_pb2.Device]:
        """The devices' part of the status, which is short even where there are thousands of sessions."""
        return [self._device(ordinal) for ordinal in range(self._config.devices)]

    def _device(self, ordinal: int) -> control_pb2.Device:
        mine = [server for server in self._pool.servers.values() if server.device == ordinal]
        device = control_pb2.Device(
            ordinal=ordinal,
            simulated=self._config.simulated,
            pool_size=self._config.pool,
            pool_idle=sum(server.state is State.IDLE for server in mine),
            instance=self._pool.is_instance(ordinal),
        )
        for server in mine:
            if server.ready:
                self._identity[ordinal] = server.ready
        ready = self._identity.get(ordinal)
        if ready:
            device.name = ready.device_name
            device.uuid = ready.device_uuid
            device.driver_version = ready.driver_version
            device.memory_total = ready.device_memory
        device.state = self._device_state(ordinal)
        device.problem = self._pool.problems().get(ordinal, "")
        self._measured(device)
        if self._office:
            device.turns.CopyFrom(turns_of_device(self._office, ordinal))
        for room in self._broker.rooms():
            if room.ordinal == ordinal:
                device.memory_grantable = room.grantable
                device.memory_granted = room.granted
                device.default_quota = room.default_quota
                device.time_promised = max(FULL - room.gpu.time, 0)
                device.memory_resident = sum(
                    one.allowance if self._steward.elastic else self._mapped(one.server, ordinal)
                    for one in self._steward.books.on(ordinal)
                    if not one.away
                )
        away = [one for one in self._steward.books.on(ordinal) if one.away]
        device.memory_in_host = sum(one.host_bytes for one in away)
        device.memory_on_disk = sum(one.disk_bytes for one in away)
        return device

    def _mapped(self, key: int, device: int) -> int:
        """Bytes of the device that the session of an API server has mapped, as far as known."""
        server = self._pool.servers.get(key)
        if server and server.several:
            return dict(zip(server.devices, server.stats.mapped_on, strict=False)).get(device, 0)
        return server.stats.memory_mapped if server else 0

    def _device_state(self, ordinal: int) -> control_pb2.DeviceState:
        if self._pool.takes_guests(ordinal):
            return control_pb2.DEVICE_STATE_UP
        failing = ordinal in self._identity or ordinal in self._pool.problems()
        return control_pb2.DEVICE_STATE_FAILING if failing else control_pb2.DEVICE_STATE_STARTING

    def _measured(self, device: control_pb2.Device) -> None:
        """Fill in what NVML says of the device; what it does not say stays unset."""
        gpu = self._gpus.get(device.uuid)
        if gpu is None:
            return
        if gpu.lost:
            device.state = control_pb2.DEVICE_STATE_LOST
        device.pci_bus_id = gpu.pci_bus_id
        for name in ("memory_used", "utilization", "temperature", "power"):
            value = getattr(gpu, name)
            if value is not None:
                setattr(device, name, value)
        device.processes.extend(
            control_pb2.DeviceProcess(pid=p.pid, memory=p.memory, name=p.name) for p in gpu.processes
        )

    def _server(self, server: ApiServer) -> control_pb2.ApiServer:
        return control_pb2.ApiServer(
            pid=server.pid,
            device=server.device,
            state=_STATES[server.state],
            session=server.session,
            rss=server.stats.rss,
            age_seconds=server.age,
        )

    def _session(self, session: Session, entry: Entry | None) -> control_pb2.Session:
        assert session.server
        hello, stats = session.hello, session.server.stats
        if stats.session != session.id:  # of the session before
            stats = type(stats)()
        described = control_pb2.Session(
            id=session.id,
            tenant=hello.tenant,
            function=hello.function,
            program=hello.program,
            guest_pid=hello.pid,
            peer=session.peer,
            server_pid=session.server.pid,
            memory_quota=session.quota * hello.devices,  # as what is mapped: on all of them
            memory_mapped=stats.memory_mapped,
            calls_async=stats.calls_async,
            calls_sync=stats.calls_sync,
            launches=stats.launches,
            bytes_in=stats.bytes_in,
            bytes_out=stats.bytes_out,
            busy_seconds=stats.busy_seconds,
            disconnected=stats.disconnected,
            age_seconds=session.age,
            wall_limit_seconds=session.wall_limit,
            idle_limit_seconds=session.idle_limit,
            state=self._session_state(session),
            where=session.file or session.moved_to,
            lease=session.lease.number,
            portion=said(hello.portion, control_pb2.Portion),
            stays=stats.stays,
            idle_seconds=stats.idle_seconds,
        )
        if entry:
            described.residency = _RESIDENCE[entry.where]
            described.copy_bytes = entry.copy_bytes
        if not session.server.is_keeper:
            described.device = session.server.device
            described.devices.extend(session.server.devices if session.server.several else ())
            if self._office:
                described.turns.CopyFrom(turns_of_session(self._office, session.server.device, session.id))
        return described

    def _session_state(self, session: Session) -> control_pb2.SessionState:
        if session.restoring or self._broker.custody.migration_of(session.id):
            return control_pb2.SESSION_STATE_MIGRATING
        if session.file:
            return control_pb2.SESSION_STATE_SUSPENDED
        return control_pb2.SESSION_STATE_MOVED if session.moved_to else control_pb2.SESSION_STATE_RUNNING

    def _waiting(self, session: Session, reason: str) -> control_pb2.Waiting:
        hello = session.hello
        return control_pb2.Waiting(
            session=session.id,
            tenant=hello.tenant,
            function=hello.function,
            program=hello.program,
            guest_pid=hello.pid,
            memory=hello.memory,
            waited_seconds=time.monotonic() - session.phase_began,
            labels=[f"{name}={value}" for name, value in hello.labels],
            portion=said(hello.portion, control_pb2.Portion),
            reason=reason,
        )
