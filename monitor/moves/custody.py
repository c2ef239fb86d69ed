"""Who has a session on its way, whatever comes first: the source's word, the destination's, or an end.

Everything happens on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
from gpuferry.specs._generated import migration_pb2, node_pb2

from ..pool.api_server import ApiServer
from ..pool.channel import ChannelBroken
from ..sessions.decision import Placement
from ..sessions.events import Event, Kind
from ..sessions.placement import Placer
from ..sessions.session import Session
from .migration import Gang, Migration, State, Target, ToDevices, ToFile, ToServer, devices_of
from .preparation import Preparations

KEPT = 50  # migrations that are over, for status
VERDICT_SECONDS = 10.0  # for the one that is left to say who has the session
LEAVE_SECONDS = 10.0  # to clear what was there; then the process is ended

log = structlog.get_logger()


def place_of(session: Session, server: ApiServer) -> Placement:
    """Return where a session is while this API server has it."""
    devices = server.devices if server.several else ()
    return Placement(session.id, server.device, server.key, session.quota, devices)


class Sessions(Protocol):
    """What becomes of sessions when it is known who has them. The broker is one."""

    def end(self, session: Session, reason: str) -> None:
        """Nobody has the session any more: it is over."""

    def end_session(self, session: Session, reason: str) -> None:
        """The session shall end: whoever has it is told to end it, with this reason for its guest."""

    def dispatch(self) -> None:
        """The policy's books have changed: carry out what it decides now."""


class Custody:
    """Keeps track of who has each session that is on its way."""

    def __init__(
        self,
        placer: Placer,
        preparations: Preparations,
        tell: Callable[[Event], None],
        sessions: Sessions,
    ) -> None:
        self._placer = placer
        self._preparations = preparations
        self._tell = tell
        self._sessions = sessions
        self._numbers = itertools.count(1)
        self._active: dict[int, Migration] = {}  # by session, at most one each
        self.recent: deque[Migration] = deque(maxlen=KEPT)

    @property
    def active(self) -> list[Migration]:
        """Migrations in progress, and those whose memory is not accounted for yet."""
        return list(self._active.values())

    def migration_of(self, session: int) -> Migration | None:
        """The migration in progress of the session with this number, or None."""
        return self._active.get(session)

    def destination_of(self, session: int) -> ApiServer | None:
        """The API server to which the session is just being moved; None: it stays, or is there."""
        migration = self._active.get(session)
        return migration.destination if migration and not migration.taken_over else None

    def begin_migration(
        self, session: Session, source: ApiServer | None, target: Target, gang: Gang | None = None
    ) -> Migration:
        """Register a migration of `session` and announce it; the caller drives it to its end. `gang`: with
        the other processes of its program.
        """
        came_from = session.file or (str(ToDevices(source.devices)) if source else "")
        gang = gang or Gang(session.lease)
        migration = Migration(next(self._numbers), session, source, target, came_from, gang)
        migration.source_holds = source is not None and not source.is_keeper
        self._active[session.id] = migration
        self.recent.append(migration)
        log.info("migration begins", session=session.id, source=came_from, target=str(target))
        self._tell(self._event(migration, Kind.MIGRATE))
        return migration

    def _event(self, migration: Migration, kind: Kind) -> Event:
        devices = devices_of(migration.target)
        device = migration.source.device if migration.source else -1
        return Event(
            kind,
            migration.session.id,
            device,
            reason=migration.reason,
            target=devices[0] if devices else -1,
            copied_bytes=migration.copied_bytes,
            pause_seconds=migration.report.pause_seconds if migration.report else 0.0,
        )

    # -- what is heard of it

    def moving(self, server: ApiServer, moving: migration_pb2.Moving) -> None:
        """The source says how far the migration is."""
        migration = self._active.get(moving.session)
        if migration and migration.source is server:
            migration.phase = moving.phase
            migration.bytes_done, migration.bytes_total = moving.bytes_done, moving.bytes_total
            migration.changed()

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        """The source says how the migration ended."""
        migration = self._active.get(moved.session)
        if not migration or migration.source is not server:
            return
        if moved.HasField("report"):
            migration.report = moved.report
        if moved.moved:
            if migration.destination in migration.released and not migration.taken_over:
                migration.source_let_go = True  # and who never said that he has it says nothing any more
                self._weigh(migration)
            elif migration.destination:
                self.take_over(migration)
            elif isinstance(migration.target, ToServer):  # a suspended session, and its keeper is the source
                self._gone(migration)
            else:  # whoever has it has not come back to this monitor yet
                migration.source_let_go = True
                self.await_verdict(migration)
            self.complete(migration)
        elif moved.lost:
            migration.source_let_go, migration.reason = True, moved.reason
            self._weigh(migration)
        elif not migration.taken_over:
            migration.others_stay = moved.others_stay or (moved.cancelled and migration.called_off)
            self.fail(migration, moved.reason)

    def let_go(self, server: ApiServer, number: int) -> bool:
        """The source's session is over there because it has moved, as it told an earlier monitor. Returns
        whether somebody else has it, or will say so.
        """
        migration = self._active.get(number)
        if not migration or migration.source is not server or migration.taken_over:
            return False
        migration.source_let_go = True
        self.await_verdict(migration)
        return True

    def taken_over(self, server: ApiServer, number: int) -> None:
        """The API server says that it has the session now, as the destination of its migration."""
        migration = self._active.get(number)
        if migration and migration.destination is server:
            self.take_over(migration)

    def take_over(self, migration: Migration) -> None:
        """Make the destination the session's API server."""
        if migration.taken_over or migration.session_over:
            return
        session, destination = migration.session, migration.destination
        assert destination
        migration.taken_over = True
        self.verdict_is_known(migration)
        if migration.source:
            destination.inherit_stats(migration.source.stats)
            migration.source.release_session()
        destination.serve(session.id)
        session.watched = False
        session.server = destination
        if destination.is_keeper:
            session.placement = None
            if isinstance(migration.target, ToFile):
                session.suspend(migration.target.path, migration.target.head)
            else:
                session.remote = migration.remote
        else:
            if session.file:
                session.unsuspend()
            session.placement = place_of(session, destination)
            if session.grant and migration.gang.edition:
                session.grant.edition = migration.gang.edition
        log.info(
            "session taken over", session=session.id, target=str(migration.target), server=destination.pid
        )
        if migration.state is State.FAILED:  # who has it is right, whoever said otherwise
            log.error("session was taken over after its source gave up", session=session.id)
        rooms = [self._placer.devices.get(device) for device in destination.devices]
        failed = next((room.ordinal for room in rooms if room and room.out), None)
        if session.revoked is not None:
            self._sessions.end_session(session, session.revoked)
        elif failed is not None:
            self._sessions.end_session(session, f"GPU {failed} failed")
        if not migration.source or migration.source in migration.released:
            self.complete(migration)
        self._settle(migration)

    def _gone(self, migration: Migration) -> None:
        """From its file to another GPU server: its keeper stays until the guest has followed."""
        migration.taken_over = True
        migration.session.file, migration.session.remote = "", migration.remote

    def memory_released(self, server: ApiServer, number: int) -> None:
        """What the API server had of the session is free."""
        migration = self._active.get(number)
        if migration and server in (migration.source, migration.destination):
            migration.released.add(server)
            if server is migration.source and migration.taken_over:
                self.complete(migration)
            self._weigh(migration)
            self._settle(migration)

    def server_lost(self, server: ApiServer) -> None:
        """The process is gone, and what it held of sessions on their way is free."""
        for migration in list(self._active.values()):
            if server in (migration.source, migration.destination):
                self.memory_released(server, migration.session.id)

    def may_go_on(self, session: Session, server: ApiServer) -> bool:
        """Whether one of the two who take part in a move is left, may have the session, and will say so."""
        migration = self._active.get(session.id)
        if not migration or migration.taken_over or not migration.orders_given:
            return False
        if migration.source is None:  # it may come back to this monitor yet
            return not migration.source_let_go
        if migration.source is not server:
            return False
        destination = migration.destination
        return destination is not None and destination not in migration.released

    def session_ended(self, session: Session, reason: str) -> bool:
        """The session is over. Returns True if its memory is accounted for here, when all of it is free."""
        migration = self._active.get(session.id)
        if not migration:
            return False
        migration.session_over = True
        if migration.taken_over:
            self.complete(migration)
        else:
            self.fail(migration, f"the session ended: {reason}")
        self._settle(migration)
        return True

    def device_lost(self, device: int) -> None:
        """The device failed: cancel the migrations to it."""
        for migration in list(self._active.values()):
            if device in devices_of(migration.target):
                self.cancel(migration, f"GPU {device} failed")

    def cancel(self, migration: Migration, reason: str) -> None:
        """Give the migration up, unless it is past the point of no return."""
        if migration.state is not State.RUNNING or migration.taken_over:
            return
        if not migration.orders_given:
            self.fail(migration, reason)
        elif migration.source:
            order = migration_pb2.Cancel(session=migration.session.id, reason=reason)
            with contextlib.suppress(ChannelBroken):
                migration.source.send(node_pb2.ToServer(cancel=order))

    # -- who has it

    def _weigh(self, migration: Migration) -> None:
        """One of the two is gone, or has given up: what does that mean?"""
        if migration.taken_over or migration.session_over:
            return
        source_gone = migration.source is None or migration.source in migration.released
        if migration.state is not State.RUNNING and not (migration.source_let_go or source_gone):
            return
        if migration.source is None and not migration.source_let_go:
            self.await_verdict(migration)
            return
        destination_gone = migration.destination in migration.released
        if (source_gone or migration.source_let_go) and destination_gone:
            reason = migration.reason or "its API server ended while it moved"
            self._sessions.end(migration.session, reason)
        elif source_gone or migration.source_let_go or destination_gone:
            self.await_verdict(migration)

    def await_verdict(self, migration: Migration) -> None:
        """Wait ten seconds for whoever is left to say who has the session."""
        if not migration.timer:
            loop = asyncio.get_running_loop()
            migration.timer = loop.call_later(VERDICT_SECONDS, self._no_verdict, migration)

    def verdict_is_known(self, migration: Migration) -> None:
        """Stop waiting: it is known who has the session."""
        if migration.timer:
            migration.timer.cancel()
            migration.timer = None

    def _no_verdict(self, migration: Migration) -> None:
        if migration.taken_over or migration.session_over or migration.settled:
            return
        if migration.source is None:  # nobody waits for it any longer
            migration.source_let_go = True
        destination = migration.destination
        if destination and destination not in migration.released:
            destination.kill()  # whose end is the verdict
        elif migration.source_let_go:
            self._sessions.end(
                migration.session, migration.reason or "whoever took it over did not come back"
            )
        elif migration.state is State.RUNNING:
            self.fail(migration, "the destination ended, and the source did not say why")

    def complete(self, migration: Migration) -> None:
        """The migration is done: the destination has the session."""
        if migration.state is not State.RUNNING or not migration.taken_over:
            return
        migration.state, migration.ended = State.DONE, time.monotonic()
        report = migration.report or migration_pb2.Report()
        log.info(
            "migration done",
            session=migration.session.id,
            source=migration.came_from,
            target=str(migration.target),
            seconds=round(migration.elapsed, 3),
            pause=round(report.pause_seconds, 4),
            bytes=report.copied_bytes,
        )
        self._tell(self._event(migration, Kind.MIGRATED))
        migration.changed()
        self._settle(migration)

    def fail(self, migration: Migration, reason: str) -> None:
        """The migration failed: the session stays where it was, or nobody has it."""
        if migration.state is not State.RUNNING:
            return
        session = migration.session
        migration.state, migration.ended, migration.reason = State.FAILED, time.monotonic(), reason
        log.warning("migration failed", session=session.id, target=str(migration.target), reason=reason)
        self._preparations.call_off(migration)
        migration.release_file()
        destination = migration.destination
        if destination and destination.is_keeper:
            destination.dismiss("its session did not come")
            self._insist(migration, destination)
        self._tell(self._event(migration, Kind.NOT_MIGRATED))
        migration.changed()
        why = reason if migration.called_off else f"session {session.id} of the same program: {reason}"
        for other in migration.gang.members:
            other.called_off = True
            self.cancel(other, why)
        self._settle(migration)

    def _insist(self, migration: Migration, server: ApiServer) -> None:
        """Who does not have the session any more has this long to clear what is left of it."""
        if server not in migration.told_to_go:
            migration.told_to_go.add(server)
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, self._end_process, migration, server)

    def _end_process(self, migration: Migration, server: ApiServer) -> None:
        if server not in migration.released and not server.gone:
            log.error(
                "API server does not let go of a session", session=migration.session.id, server=server.pid
            )
            server.kill()

    def _settle(self, migration: Migration) -> None:
        """The books are right again when whoever does not have a session of the program any more holds
        nothing of it, and that is known of all its sessions.
        """
        gang = migration.gang
        if gang.settled or any(
            each.state is State.RUNNING and not each.session_over for each in gang.members
        ):
            return
        held = [(each, server) for each in gang.members for server in each.due - each.released]
        for each, server in held:
            self._insist(each, server)
        if held:
            return
        there = [each for each in gang.members if not each.session_over]
        gang.settle(any(each.taken_over for each in gang.members))
        own = next((each for each in gang.members if each.reason and not each.others_stay), None)
        for each in gang.members:
            if own and each.others_stay:
                each.reason = f"session {own.session.id} of the same program: {own.reason}"
            each.settled = True
            each.changed()
            self.verdict_is_known(each)
            del self._active[each.session.id]
        self._enter(gang.lease.number, there, gang.members)
        self._sessions.dispatch()

    def _enter(self, lease: int, there: Sequence[Migration], all_of_them: Sequence[Migration]) -> None:
        """Tell the policy how the way of a program ended, of which these sessions are left."""
        if not there:
            others = set(all_of_them[0].gang.lease.members) - {each.session.id for each in all_of_them}
            if others:  # which came back to this monitor when these were there, or before they set out
                self._placer.on_migrated(lease, any(each.taken_over for each in all_of_them))
            elif any(each.due for each in all_of_them):
                self._placer.on_complete(lease, time.monotonic())
            return
        on_both = (each for each in there if each.source_holds and each.destination_holds)
        one = next(on_both, there[0])  # another may have come back to this monitor without its source
        if one.due and not (one.source_holds and one.destination_holds):
            self._placer.on_complete(lease, time.monotonic())
        elif one.due:
            pauses = [each.report.pause_seconds for each in there if each.report]
            self._placer.on_migrated(lease, one.taken_over, max(pauses, default=0.0))
