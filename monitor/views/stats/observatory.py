"""Everything the monitor publishes of itself: counts, samples, remembers for a while, tells who watches."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from gpuferry.guest import paths
from gpuferry.guest.launch import clean_environment
from gpuferry.specs._generated import control_pb2

from ...broker.broker import Broker
from ...pool.pool import Pool
from ...sessions.events import Event, Kind
from ...settings.monitor import Config
from ..status import StatusReporter
from .accounting import Accounting
from .gpus import GpuStats
from .history import History
from .metrics import Metrics
from .plain import status_json

TICK = 1.0  # seconds between two points of the charts, and between two events of a page
SECRETS = ("GPUFERRY_TOKEN", "GPUFERRY_TOKEN_FILE")


def gpu_stats(config: Config) -> GpuStats:
    """The devices' figures, from the NVML that belongs to the devices on offer."""
    environment = {name: value for name, value in clean_environment().items() if name not in SECRETS}
    library = paths.simulated_nvml() if config.simulated else None
    return GpuStats(config.sample, environment, library)


class Observatory:
    """Between pool and broker as `accounting`; the rest begins when there is something to look at."""

    def __init__(self, config: Config, broker: Broker) -> None:
        self._broker = broker
        self._metrics = Metrics()
        self.history = History()
        self._viewers: set[asyncio.Queue[str]] = set()
        self._lost: set[int] = set()
        self.gpus = gpu_stats(config)
        self.accounting = Accounting(broker, self._from_elsewhere)
        broker.subscribe(self._happened)

    def _from_elsewhere(self, number: int) -> bool:
        session = self._broker.sessions.get(number)
        return bool(session and session.hello.restore)

    def _happened(self, event: Event) -> None:
        if event.kind is Kind.STARTED:
            arrived = self._broker.sessions[event.session].arrived
            self._metrics.session_start.observe(time.monotonic() - arrived)
        elif event.kind is Kind.ENDED:
            self.accounting.forget(event.session)
        elif event.kind is Kind.MIGRATED and event.migration:
            report = event.migration.report
            self.accounting.totals["migrations_done"] += 1
            self.accounting.totals["migration_bytes"] += event.migration.bytes
            if report and report.pause_seconds:
                self._metrics.migration_downtime.observe(report.pause_seconds)
        elif event.kind is Kind.NOT_MIGRATED:
            self.accounting.totals["migrations_failed"] += 1

    def start(self, pool: Pool, reporter: StatusReporter) -> None:
        """Begin to look."""
        self._pool = pool
        self._reporter = reporter
        self._tasks = [asyncio.ensure_future(self.gpus.run()), asyncio.ensure_future(self._run())]

    async def stop(self) -> None:
        """Returns when nothing of it runs any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self.tick()
            await asyncio.sleep(TICK)

    async def status(self) -> control_pb2.StatusReply:
        """The present, with fresh figures of every session."""
        status = await self._reporter.report()
        for server in self._pool.servers.values():
            self.accounting.look(server)
        return status

    async def metrics(self) -> bytes:
        """The same for Prometheus."""
        return self._metrics.expose(await self.status(), self.accounting)

    def readiness(self) -> tuple[bool, list[str]]:
        """Whether a guest could have a session, and all that is wrong here."""
        problems = [f"gpu {device}: {reason}" for device, reason in self._pool.problems().items()]
        warm = any(server.ready for server in self._pool.servers.values())
        if not warm:
            problems.insert(0, "no API server is ready")
        if self._broker.draining:
            problems.insert(0, "draining: no new sessions")
        return warm and not self._broker.draining, problems

    async def tick(self) -> None:
        """One more point of the charts, and one more event for whoever watches."""
        # API servers are only asked while somebody looks: a thousand idle sessions cost nothing.
        status = await self.status() if self._viewers else None
        devices = list(status.devices) if status else self._reporter.devices()
        self._report_lost(devices)
        self.history.add(time.time(), devices)
        if status:
            event = _event("status", status_json(status) | {"point": self.history.latest()})
            for viewer in self._viewers:
                if viewer.empty():  # a slow one gets fewer
                    viewer.put_nowait(event)

    def _report_lost(self, devices: list[control_pb2.Device]) -> None:
        lost = {d.ordinal for d in devices if d.state == control_pb2.DEVICE_STATE_LOST}
        for ordinal in lost - self._lost:
            self._pool.lose(ordinal, "NVML says that the device is lost")
        self._lost = lost

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events: the history, the present at once, then the present every second."""
        viewer: asyncio.Queue[str] = asyncio.Queue()
        self._viewers.add(viewer)
        try:
            yield _event("history", self.history.all())
            yield _event("status", status_json(await self.status()))
            while True:
                yield await viewer.get()
        finally:
            self._viewers.discard(viewer)


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
