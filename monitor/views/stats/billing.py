"""What tenants use, from the sessions of this monitor: nothing is billed twice, wherever a session goes."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog
from gpuferry.specs._generated import migration_pb2, node_pb2, tenants_pb2

from ...broker.broker import Broker
from ...policy.portion import FULL
from ...pool.api_server import ApiServer, PoolListener
from ...pool.returns import SILENT_SECONDS
from ...service.rates import Sparing
from ...sessions.events import Event, Kind
from ...sessions.session import Session
from ...settings.limits import DEFAULT, Limits
from ...tenants.messages import to_message
from ...tenants.tenancy import Tenancy
from ...tenants.usage import DAYS_MOST, NOBODY, UsageBook

TICK_SECONDS = 5.0  # who asks is told what holds at that moment
SAVE_SECONDS = 10.0  # what a crash loses at most of sessions that end before the next monitor comes
UNCLAIMED_SECONDS = 60.0 + SILENT_SECONDS  # for which a session of an earlier monitor may still come back

log = structlog.get_logger()


@dataclass
class Open:
    """A session whose bill is open, and how much of it is accounted for."""

    session: Session
    seconds: float  # of its age that were billed, or that are somebody else's
    calls: int | None  # that were billed; None: as many as it brings along


class Billing(PoolListener):
    """Follows sessions from their start, or adoption, to their end. It must hear of what API servers say
    before the broker does: where the session was until then is what is billed.
    """

    def __init__(self, broker: Broker, book: UsageBook, tenancy: Tenancy, inherited: bool) -> None:
        self._broker = broker
        self._book = book
        self._tenancy = tenancy
        self._open: dict[int, Open] = {}
        self._unclaimed = dict(book.billed) if inherited else {}
        self._began = time.monotonic()
        self._complaints = Sparing(log.error)
        # Writing waits for the disk: on a thread of its own, one write after the other.
        self._writer = ThreadPoolExecutor(1, "usage")

    # -- what happens

    def happened(self, event: Event) -> None:
        """A session begins, comes back from an earlier monitor, or ends."""
        if event.kind is Kind.STARTED:
            session = self._broker.sessions[event.session]
            moved_in = session.hello.restore is not None
            self._follow(
                Open(session, session.age if moved_in else 0.0, None if moved_in else 0), not moved_in
            )
        elif event.kind is Kind.ADOPTED:
            session = self._broker.sessions[event.session]
            known = self._unclaimed.pop(session.id, None)
            elsewhere = session.grant.age_seconds if session.grant else 0.0
            if known:
                self._follow(Open(session, *known), False)
            else:
                self._follow(Open(session, elsewhere, None if elsewhere else 0), not elsewhere)
        elif event.kind is Kind.ENDED and (one := self._open.get(event.session)):
            for other in [each for each in self._open.values() if each.session.lease is one.session.lease]:
                self._account(other)
            del self._open[event.session]

    def _follow(self, one: Open, new: bool) -> None:
        self._open[one.session.id] = one
        if new and one.session.founds:
            self._book.add(one.session.hello.tenant, sessions=1)

    def _account(self, one: Open) -> None:
        session, age = one.session, one.session.age
        elapsed, one.seconds = max(age - one.seconds, 0.0), age
        payer = self._payer(session)
        if elapsed and payer and not session.remote and not session.restoring:  # else another one bills it
            on_devices = elapsed * session.hello.devices if session.placement else 0.0
            self._book.add(
                session.hello.tenant,
                wall_seconds=elapsed,
                gpu_seconds=on_devices,
                memory_byte_seconds=on_devices * session.quota,
            )

    def _payer(self, session: Session) -> bool:
        """Whether it is the session that is billed for its lease: the oldest that is left."""
        known = [number for number in session.lease.members if number in self._open]
        return not known or known[0] == session.id

    def _count(self, stats: node_pb2.Stats) -> None:
        one = self._open.get(stats.session)
        if one is None:
            return
        calls = stats.calls_async + stats.calls_sync
        more, one.calls = max(calls - (calls if one.calls is None else one.calls), 0), calls
        if more:
            self._book.add(one.session.hello.tenant, calls=more)

    # -- from API servers, before the broker

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        if ended.session == server.session and ended.stats.session == ended.session:
            self._count(ended.stats)

    def server_lost(self, server: ApiServer) -> None:
        self._look(server)

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        self._look(server)
        if one := self._open.get(server.session):
            self._account(one)

    def taken_over(self, server: ApiServer, session: int) -> None:
        if one := self._open.get(session):
            self._account(one)

    def _look(self, server: ApiServer) -> None:
        if server.session and server.stats.session == server.session:
            self._count(server.stats)

    # -- time

    def tick(self) -> None:
        """Bill what was used until now."""
        for one in self._open.values():
            self._account(one)
            if one.session.server and not one.session.restoring:
                self._look(one.session.server)
        if time.monotonic() > self._began + UNCLAIMED_SECONDS:
            self._unclaimed.clear()
        self._book.billed = self._unclaimed | {
            number: (one.seconds, one.calls or 0) for number, one in self._open.items()
        }

    async def run(self) -> None:
        """Bill every few seconds, write it down at once and every ten, until cancelled. A full disk loses
        nothing as long as this monitor lives.
        """
        await self._save()
        saved = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()
            if self._book.changed and time.monotonic() >= saved + SAVE_SECONDS:
                saved = time.monotonic()
                await self._save()

    async def _save(self) -> None:
        self._book.changed = False
        content = self._book.content()
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._book.write, content)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self._book.changed = True
        self._complaints.say(
            "usage of tenants cannot be written", "usage", path=str(self._book.path), error=str(error)
        )

    def close(self) -> None:
        """Bill the last moments, and write them down."""
        self.tick()
        if self._book.changed:
            try:
                self._book.write(self._book.content())
            except OSError as error:
                self._failed(error)

    # -- looking in

    def totals(self) -> list[tenants_pb2.Usage]:
        """What each tenant has used until now."""
        self.tick()
        return self._book.totals()

    def reports(self, days: int) -> list[tenants_pb2.Report]:
        """What each tenant may have, has and has had here, on each of the latest days too."""
        self.tick()
        return [self._report(name, days) for name in sorted(self._names())]

    def asked(self, tenant: str) -> list[tenants_pb2.Report]:
        """The same with all days, of one tenant alone if anything is known of it, for all are much work.
        Empty: of each, and what was set for those of whom nothing else is said.
        """
        self.tick()
        told = tenant == DEFAULT or self._tenancy.said(DEFAULT) != Limits()
        names = self._names() | ({DEFAULT} if told else set())
        return [self._report(name, DAYS_MOST) for name in sorted(names) if tenant in ("", name)]

    def _names(self) -> set[str]:
        names = {usage.tenant for usage in self._book.totals()} | self._tenancy.named()
        return names | {self._book.tenant(one.hello.tenant) for one in self._broker.sessions.values()}

    def _report(self, name: str, days: int) -> tenants_pb2.Report:
        standing = self._broker.standing("" if name == NOBODY else name)
        return tenants_pb2.Report(
            tenant=name,
            limits=to_message(name, self._tenancy.limits("" if name == NOBODY else name)),
            set=to_message(name, self._tenancy.said(name)),
            sessions=standing.sessions,
            waiting=standing.waiting,
            memory=standing.memory,
            gpus=standing.gpus,
            share=standing.time / FULL,
            usage=self._book.of(name),
            days=self._book.days(name, days),
        )
