"""What a monitor publishes of itself: its status, metrics, readiness, and events for whoever watches."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping

from gpuferry.specs._generated import control_pb2, tenants_pb2

from ...broker.broker import Broker
from ...pool.pool import Pool
from ...sessions.events import Announcer, Event, Kind
from ..callers import OPERATOR, Caller, visible
from ..status import StatusReporter
from .accounting import Accounting
from .history import History
from .metrics import Metrics, expose_usage
from .plain import status_json

TICK = 1.0  # seconds between two points of the charts, and between two events of a page


class Observatory:
    """Answers the page, Prometheus and probes; remembers the last minutes for the charts."""

    def __init__(
        self,
        broker: Broker,
        pool: Pool,
        reporter: StatusReporter,
        accounting: Accounting,
        announcer: Announcer,
        usage: Callable[[], list[tenants_pb2.Usage]] = list,
        starts_refused: Mapping[str, int] = {},
    ) -> None:
        self._broker = broker
        self._pool = pool
        self._reporter = reporter
        self._accounting = accounting
        self._usage = usage
        self._starts_refused = starts_refused  # by tenant
        self._metrics = Metrics()
        self._viewers: dict[asyncio.Queue[str], Caller] = {}
        self.history = History()
        announcer.subscribe(self._happened)

    def _happened(self, event: Event) -> None:
        totals = self._accounting.totals
        if event.kind is Kind.STARTED:
            arrived = self._broker.sessions[event.session].arrived
            self._metrics.session_start.observe(time.monotonic() - arrived)
        elif event.kind is Kind.ENDED:
            self._accounting.forget(event.session)
        elif event.kind is Kind.MIGRATED:
            totals["migrations_done"] += 1
            totals["migration_bytes"] += event.copied_bytes
            if event.pause_seconds:
                self._metrics.migration_downtime.observe(event.pause_seconds)
        elif event.kind is Kind.NOT_MIGRATED:
            totals["migrations_failed"] += 1

    async def run(self) -> None:
        """Add a point to the charts every second, and tell the pages, until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(TICK)

    async def status(self, caller: Caller = OPERATOR) -> control_pb2.StatusReply:
        """What the caller may see of all that the monitor knows at this moment, with fresh figures."""
        status = await self._reporter.report(caller.tenant)
        for server in self._pool.servers.values():
            self._accounting.count(server)
        return visible(status, caller)

    async def metrics(self, caller: Caller = OPERATOR) -> bytes:
        """The metrics of this moment that the caller may see, in Prometheus' text format."""
        if (tenant := caller.tenant) is not None:
            refused = {tenant: self._starts_refused.get(tenant, 0)}
            return expose_usage([one for one in self._usage() if one.tenant == tenant], refused)
        usage = expose_usage(self._usage(), self._starts_refused)
        return self._metrics.expose(await self.status(), self._accounting) + usage

    def readiness(self) -> tuple[bool, list[str]]:
        """Whether a guest could have a session, and everything that is wrong here, as text."""
        problems = [f"gpu {device}: {reason}" for device, reason in self._pool.problems().items()]
        warm = any(map(self._pool.takes_guests, range(self._pool.devices)))
        if not warm:
            problems.insert(0, "no API server is ready for a guest")
        if self._broker.draining:
            problems.insert(0, "draining: no new sessions")
        return warm and not self._broker.draining, problems

    async def tick(self) -> None:
        """Add one point to the charts, and send one event to each page."""
        # API servers are only asked while somebody looks who sees them: a thousand others cost nothing.
        callers = {caller for viewer, caller in self._viewers.items() if viewer.empty()}
        status = await self.status() if OPERATOR in callers else None
        if status is None:
            await self._reporter.ask_arbiter()
        devices = list(status.devices) if status else self._reporter.devices()
        self.history.add(time.time(), devices)
        events = {
            caller: self._present(visible(status, caller) if status else await self.status(caller), caller)
            for caller in callers
        }
        for viewer, caller in self._viewers.items():
            if caller in events and viewer.empty():  # a slow one gets fewer
                viewer.put_nowait(events[caller])

    def _present(self, seen: control_pb2.StatusReply, caller: Caller) -> str:
        """The charts show what all do together: no tenant sees them."""
        chart = {"point": self.history.latest()} if caller.tenant is None else {}
        return _event("status", status_json(seen) | chart)

    async def events(self, caller: Caller = OPERATOR) -> AsyncIterator[str]:
        """Server-sent events for this caller: the history, the present at once, then the present every
        second.
        """
        viewer: asyncio.Queue[str] = asyncio.Queue()
        self._viewers[viewer] = caller
        try:
            if caller.tenant is None:
                yield _event("history", self.history.all())
            yield _event("status", status_json(await self.status(caller)))
            while True:
                yield await viewer.get()
        finally:
            del self._viewers[viewer]


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
