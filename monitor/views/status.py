"""What the monitor knows, as control.proto's StatusReply."""

from __future__ import annotations

import asyncio
import os
import socket
import time

from gpuferry.specs._generated import control_pb2, node_pb2, wire
from gpuferry.specs._generated.frames import PROTOCOL_VERSION

from ..broker.broker import Broker
from ..devices.gpus import GpuStats
from ..pool.api_server import ApiServer, State
from ..pool.pool import Pool
from ..service.versions import package_version
from ..sessions.session import Session
from ..settings.monitor import Config
from .migrations import describe

STATS_SECONDS = 0.3

_STATES = {
    State.STARTING: control_pb2.SERVER_STATE_STARTING,
    State.IDLE: control_pb2.SERVER_STATE_IDLE,
    State.BUSY: control_pb2.SERVER_STATE_BUSY,
    State.STOPPING: control_pb2.SERVER_STATE_STOPPING,
}


class StatusReporter:
    """Puts together what is known of devices, API servers, sessions and migrations."""

    def __init__(
        self,
        config: Config,
        pool: Pool,
        broker: Broker,
        listening: list[str],
        http: str,
        gpus: GpuStats,
    ) -> None:
        self._config = config
        self._pool = pool
        self._broker = broker
        self._listening = listening
        self._http = http  # HOST:PORT of the page; empty: there is none
        self._gpus = gpus
        self._identity: dict[int, node_pb2.Ready] = {}  # of each device, as its last API server told
        self._started = time.monotonic()

    async def report(self) -> control_pb2.StatusReply:
        """The status at this moment; API servers are asked for fresh figures first."""
        all_of = (*self._pool.servers.values(), *self._pool.keepers.values())
        ready = [server for server in all_of if server.ready]
        await asyncio.gather(*(server.refresh_stats(STATS_SECONDS) for server in ready))
        return self.last_known()

    def last_known(self) -> control_pb2.StatusReply:
        """The status without asking anybody: figures of sessions are as old as the last question."""
        servers = sorted(self._pool.servers.values(), key=lambda server: (server.device, server.key))
        return control_pb2.StatusReply(
            monitor=control_pb2.MonitorInfo(
                version=package_version(),
                pid=os.getpid(),
                uptime_seconds=time.monotonic() - self._started,
                protocol_version=PROTOCOL_VERSION,
                spec_hash=wire.SPEC_HASH,
                listening=self._listening,
                sessions_granted=self._broker.granted,
                sessions_refused=self._broker.refused,
                http=self._http,
                draining=self._broker.draining,
                hostname=socket.gethostname(),
                gpu_stats_problem=self._gpus.problem,
            ),
            devices=self.devices(),
            servers=[self._server(server) for server in servers],
            sessions=[self._session(session) for session in self._broker.running()],
            queue=[self._waiting(session) for session in self._broker.queue() if session.guest],
            migrations=[describe(migration) for migration in self._broker.custody.recent],
        )

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
        device.state = self._device_state(ordinal, mine)
        device.problem = self._pool.problems().get(ordinal, "")
        self._measured(device)
        for room in self._broker.rooms():
            if room.ordinal == ordinal:
                device.memory_grantable = room.grantable
                device.memory_granted = room.granted
                device.default_quota = room.default_quota
        return device

    def _device_state(self, ordinal: int, servers: list[ApiServer]) -> control_pb2.DeviceState:
        if any(server.ready for server in servers):
            return control_pb2.DEVICE_STATE_UP
        failing = ordinal in self._identity or self._pool.is_failing(ordinal)
        return control_pb2.DEVICE_STATE_FAILING if failing else control_pb2.DEVICE_STATE_STARTING

    def _measured(self, device: control_pb2.Device) -> None:
        """What NVML says."""
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

    def _session(self, session: Session) -> control_pb2.Session:
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
            memory_quota=session.quota,
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
        )
        if not session.server.is_keeper:
            described.device = session.server.device
            described.devices.extend(session.server.devices if session.server.several else ())
        return described

    def _session_state(self, session: Session) -> control_pb2.SessionState:
        if session.restoring or self._broker.custody.migration_of(session.id):
            return control_pb2.SESSION_STATE_MIGRATING
        if session.file:
            return control_pb2.SESSION_STATE_SUSPENDED
        return control_pb2.SESSION_STATE_MOVED if session.moved_to else control_pb2.SESSION_STATE_RUNNING

    def _waiting(self, session: Session) -> control_pb2.Waiting:
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
        )
