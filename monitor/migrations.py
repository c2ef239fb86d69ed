"""Sessions on their way: to another device, to another GPU server, into a file and out of it again.

The mechanism is the API servers' (../migration/DESIGN.md). Here it is arranged, and here is known who has the
session, whatever comes first: the source's word, the destination's word, or the end of either. Everything
happens on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

import structlog
from gpuferry.migration.follow import moved_frame
from gpuferry.specs._generated import migration_pb2, node_pb2

from .events import Event, Kind
from .handshake import Resume, resumed
from .migration import CannotMove, Migration, State, Strategy, Target, ToDevice, ToFile, ToServer
from .node import ChannelBroken
from .placement import Placement, Placer
from .policy import Migrate
from .pool import ApiServer
from .session import Session

AWAY_SECONDS = 60.0  # in which a guest that lost its connection is still told where its session went
KEPT = 50  # migrations that are over, for status
VERDICT_SECONDS = 10.0  # for the one that is left to say who has the session
LEAVE_SECONDS = 10.0  # to clear what was there; then the process is ended
DRAIN_SECONDS = 30.0  # for which a kernel may go on before the session is left where it is

log = structlog.get_logger()


@dataclass(frozen=True)
class Link:
    """A connection to an API server of another monitor, which waits for a session."""

    connection: socket.socket
    remote: migration_pb2.RemoteTarget


class Pool(Protocol):
    """Where processes come from."""

    servers: dict[int, ApiServer]

    def start_keeper(self) -> ApiServer:
        """One more."""

    def wish(self, device: int, more: int) -> None:
        """One more API server there; -1 takes it back."""

    def can_start(self, device: int) -> bool:
        """Whether there is memory for one more."""


class Migrations:
    """Those that go on, at most one per session, and the latest that are over."""

    def __init__(
        self,
        placer: Placer,
        tell: Callable[[Event], None],
        end: Callable[[Session, str], None],
        revoke: Callable[[Session, str], None],
        dispatch: Callable[[], None],
    ) -> None:
        self._placer = placer
        self._tell = tell
        self._end = end  # the session has nobody any more
        self._revoke = revoke
        self._dispatch = dispatch
        self._numbers = itertools.count(1)
        self._away: dict[int, tuple[bytes, migration_pb2.RemoteTarget]] = {}  # gone, and how to find them
        self._active: dict[int, Migration] = {}  # by session, until the books are right again
        self._asked: dict[int, Migration] = {}  # by session: the policy's next decision carries out this one
        self.pool: Pool | None = None
        self.connect: Callable[[Session, str], Coroutine[None, None, Link]] | None = None
        self.recent: deque[Migration] = deque(maxlen=KEPT)

    def of(self, session: int) -> Migration | None:
        """The one that the session is on."""
        return self._active.get(session)

    # -- beginning

    def check(self, session: Session, target: Target) -> None:
        """CannotMove if it could not even begin."""
        if session.id in self._active:
            raise CannotMove(f"session {session.id} is moving already")
        if session.moved_to:
            raise CannotMove(f"session {session.id} has moved to {session.moved_to}")
        if not session.server or not session.grant:
            raise CannotMove(f"session {session.id} waits for a GPU: there is nothing to move yet")
        if not session.running:
            raise CannotMove(f"session {session.id} is just beginning: try again")
        if isinstance(target, ToDevice) and target.device is not None:
            self._check_device(session, target.device)
        if isinstance(target, ToFile) and session.file:
            raise CannotMove(f"session {session.id} is suspended already, in {session.file}")

    def _check_device(self, session: Session, device: int) -> None:
        room = self._placer.devices.get(device)
        if not room or room.out:
            raise CannotMove(f"there is no GPU {device} in service here: see `gpuferry status`")
        assert session.server
        if session.server.device == device:
            raise CannotMove(f"session {session.id} is on GPU {device} already")
        quota = session.quota
        if room.gpu.free < quota:
            raise CannotMove(
                f"GPU {device} has {room.gpu.free} bytes to give, and session {session.id} has {quota}",
                room=True,
            )
        assert self.pool
        if not room.gpu.idle and not self.pool.can_start(device):
            raise CannotMove(
                f"no API server is idle on GPU {device}, and there is no memory for another", room=True
            )

    def begin(
        self, session: Session, target: Target, strategy: migration_pb2.Strategy, timeout: float
    ) -> Migration:
        """CannotMove if there is no point in trying."""
        self.check(session, target)
        migration = self._open(session, session.server, target)
        migration.strategy = strategy or Strategy.STRATEGY_AUTO
        if isinstance(target, ToDevice):
            if session.file:
                self._return(migration)
            else:
                self._request(migration)
        elif isinstance(target, ToFile):
            migration.task = asyncio.ensure_future(self._attempt(migration, self._suspend(migration, target)))
        else:
            migration.task = asyncio.ensure_future(self._attempt(migration, self._leave(migration, target)))
        if timeout:
            reason = f"not over within {timeout:g} s"
            asyncio.get_running_loop().call_later(timeout, self.cancel, migration, reason)
        return migration

    def carry_out(self, decision: Migrate, session: Session | None) -> None:
        """A decision of the policy's, entered in its books; the session may be over, but for its memory."""
        number, target, worker = decision.session, decision.target, decision.worker
        migration = self._asked.pop(number, None)
        if session is None or (migration is None and (number in self._active or not session.running)):
            self._placer.on_migrated(number, False)
            self._placer.on_idle(target, worker)
            return
        if migration is None:
            migration = self._open(session, session.server, ToDevice(target))
        assert self.pool
        migration.destination_holds = True
        self._to_device(migration, self.pool.servers[worker], target)

    def comes_back(self, session: Session, placement: Placement) -> None:
        """The queue has let a suspended session through."""
        migration = self._active[session.id]
        assert self.pool
        migration.destination_holds = True
        self._to_device(migration, self.pool.servers[placement.server], placement.device)

    def cannot_come_back(self, session: Session, reason: str) -> None:
        """It never will be let through."""
        self._fail(self._active[session.id], reason)

    def _open(self, session: Session, source: ApiServer | None, target: Target) -> Migration:
        came_from = session.file or (f"gpu {source.device}" if source else "")
        migration = Migration(next(self._numbers), session, source, target, came_from)
        migration.source_holds = source is not None and not source.is_keeper
        self._active[session.id] = migration
        self.recent.append(migration)
        log.info("migration begins", session=session.id, source=came_from, target=str(target))
        self._tell(self._event(migration, Kind.MIGRATE))
        return migration

    def _event(self, migration: Migration, kind: Kind) -> Event:
        target = migration.target.device if isinstance(migration.target, ToDevice) else None
        device = migration.source.device if migration.source else -1
        return Event(
            kind,
            migration.session.id,
            device,
            reason=migration.reason,
            target=-1 if target is None else target,
            migration=migration,
        )

    # -- to a device

    def _request(self, migration: Migration) -> None:
        """By way of the policy, whose next decision it is; or when there is an API server for it."""
        assert isinstance(migration.target, ToDevice)
        assert migration.target.device is not None
        session, device = migration.session, migration.target.device
        if self._wait_for_server(migration, device):
            return
        self._asked[session.id] = migration
        reason = self._placer.request_migration(session.id, device)
        if reason:
            del self._asked[session.id]
            self._fail(migration, reason)
            return
        self._dispatch()

    def _return(self, migration: Migration) -> None:
        """A suspended session: to the device that was chosen, or through the queue."""
        assert isinstance(migration.target, ToDevice)
        session, device = migration.session, migration.target.device
        if device is None:
            function, now = session.hello.function, time.monotonic()
            self._placer.arrive(session.id, session.quota, frozenset(), now, function=function)
            self._dispatch()
            return
        if self._wait_for_server(migration, device):
            return
        found = self._placer.on_return(session.id, device, session.quota, session.hello.function)
        if isinstance(found, str):
            self._fail(migration, found)
            return
        self.comes_back(session, Placement(session.id, device, found, session.quota))

    def _wait_for_server(self, migration: Migration, device: int) -> bool:
        """Whether one must be started first."""
        assert self.pool
        room = self._placer.devices.get(device)
        if not room or room.out or room.gpu.idle:
            return False
        if migration.wish is None:
            migration.wish = device
            self.pool.wish(device, 1)
        return True

    def _wish_no_more(self, migration: Migration) -> None:
        if migration.wish is not None:
            assert self.pool
            device, migration.wish = migration.wish, None
            self.pool.wish(device, -1)

    def server_ready(self, device: int) -> None:
        """There is an idle API server: who moves goes before who waits."""
        for migration in [one for one in self._active.values() if one.wish == device]:
            (self._return if migration.session.file else self._request)(migration)

    def _to_device(self, migration: Migration, destination: ApiServer, device: int) -> None:
        session, source = migration.session, migration.source
        assert session.grant
        assert source
        self._wish_no_more(migration)
        migration.destination, migration.ordered = destination, True
        migration.target = ToDevice(device)
        destination.restore(session.id)
        grant = node_pb2.Grant()
        grant.CopyFrom(session.grant)
        grant.restore, grant.welcomed, grant.age_seconds = True, False, session.age
        local = migration_pb2.LocalTarget(device=device)
        one, other = socket.socketpair()
        with one, other:
            try:
                destination.send(node_pb2.ToServer(grant=grant), other)
            except ChannelBroken:
                destination.kill()  # its end says that there is no migration
            order = self._order(migration, local=local)
            with contextlib.suppress(ChannelBroken):  # its end is the session's
                source.send(order, one)
        migration.changed()

    def _order(
        self,
        migration: Migration,
        *,
        local: migration_pb2.LocalTarget | None = None,
        remote: migration_pb2.RemoteTarget | None = None,
        file: migration_pb2.FileTarget | None = None,
    ) -> node_pb2.ToServer:
        session = migration.session
        if session.file:
            return node_pb2.ToServer(
                play=node_pb2.Play(session=session.id, path=session.file, local=local, remote=remote)
            )
        return node_pb2.ToServer(
            migrate=migration_pb2.Migrate(
                session=session.id,
                strategy=migration.strategy,
                drain_seconds=DRAIN_SECONDS,
                local=local,
                remote=remote,
                file=file,
            )
        )

    # -- to a file, or to another GPU server

    async def _attempt(self, migration: Migration, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except CannotMove as error:
            self._fail(migration, error.reason)
        except ChannelBroken as error:
            self._fail(migration, f"a process ended that was to take part: {error}")

    async def _suspend(self, migration: Migration, target: ToFile) -> None:
        keeper = await self._keeper(migration)
        file = migration_pb2.FileTarget(path=target.path)
        self._to_keeper(migration, keeper, node_pb2.Keep(file=file), self._order(migration, file=file))

    async def _leave(self, migration: Migration, target: ToServer) -> None:
        assert self.connect
        session = migration.session
        link = await self.connect(session, target.name)
        migration.remote = link.remote
        with link.connection:
            order = self._order(migration, remote=link.remote)
            if session.file:  # it has its keeper already, which plays
                assert migration.source
                migration.ordered = True
                migration.source.send(order, link.connection)
                return
            keeper = await self._keeper(migration)
            keep = node_pb2.Keep(remote=link.remote)
            self._to_keeper(migration, keeper, keep, order, link.connection)

    async def _keeper(self, migration: Migration) -> ApiServer:
        assert self.pool
        keeper = migration.destination = self.pool.start_keeper()
        await keeper.there.wait()
        if not keeper.ready:
            raise CannotMove(f"no process for the program's connection: {keeper.end_reason or 'it ended'}")
        return keeper

    def _to_keeper(
        self,
        migration: Migration,
        keeper: ApiServer,
        keep: node_pb2.Keep,
        order: node_pb2.ToServer,
        *link: socket.socket,
    ) -> None:
        session, source = migration.session, migration.source
        assert session.grant
        assert source
        migration.ordered = True
        keeper.restore(session.id)
        keep.grant.CopyFrom(session.grant)
        keep.grant.restore = True
        keep.session_seconds = session.age
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with one, other:
            keeper.send(node_pb2.ToServer(keep=keep), other)
            source.send(order, *link, one)
        migration.changed()

    # -- what is heard of it

    def moving(self, server: ApiServer, moving: migration_pb2.Moving) -> None:
        """The source says how far it is."""
        migration = self._active.get(moving.session)
        if migration and migration.source is server:
            migration.phase = moving.phase
            migration.bytes_done, migration.bytes_total = moving.bytes_done, moving.bytes_total
            migration.changed()

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        """The source says how it ended."""
        migration = self._active.get(moved.session)
        if not migration or migration.source is not server:
            return
        if moved.HasField("report"):
            migration.report = moved.report
        if moved.moved:
            if migration.destination:
                self._take_over(migration)
            elif isinstance(migration.target, ToServer):  # a suspended session, and its keeper is the source
                self._gone(migration)
            else:  # whoever has it has not come back to this monitor yet
                migration.lost = True
                self._start_timer(migration)
            self._conclude(migration)
        elif moved.lost:
            migration.lost, migration.reason = True, moved.reason
            self._weigh(migration)
        elif not migration.taken:
            self._fail(migration, moved.reason)

    def taken_over(self, server: ApiServer, number: int) -> None:
        """The destination says that it has it."""
        migration = self._active.get(number)
        if migration and migration.destination is server:
            self._take_over(migration)

    def _take_over(self, migration: Migration) -> None:
        if migration.taken or migration.over:
            return
        session, destination = migration.session, migration.destination
        assert destination
        migration.taken = True
        self._stop_timer(migration)
        if migration.source:
            destination.carry_on(migration.source.stats)
            migration.source.let_go()
        destination.take(session.id)
        session.watched = False
        session.server = destination
        if destination.is_keeper:
            session.placement = None
            if isinstance(migration.target, ToFile):
                session.suspend(migration.target.path)
            else:
                session.remote = migration.remote
        else:
            if session.file:
                session.unsuspend()
            session.placement = Placement(session.id, destination.device, destination.key, session.quota)
        log.info(
            "session taken over", session=session.id, target=str(migration.target), server=destination.pid
        )
        if migration.state is State.FAILED:  # who has it is right, whoever said otherwise
            log.error("session was taken over after its source gave up", session=session.id)
        room = self._placer.devices.get(destination.device)
        if session.revoked:
            self._revoke(session, session.revoked)
        elif room and room.out:
            self._revoke(session, f"GPU {destination.device} failed")
        if not migration.source or migration.source in migration.released:
            self._conclude(migration)
        self._settle(migration)

    def _gone(self, migration: Migration) -> None:
        """From its file to another GPU server: its keeper stays until the guest has followed."""
        migration.taken = True
        migration.session.file, migration.session.remote = "", migration.remote

    def released(self, server: ApiServer, number: int) -> None:
        """What it had of the session is free."""
        migration = self._active.get(number)
        if migration and server in (migration.source, migration.destination):
            migration.released.add(server)
            if server is migration.source and migration.taken:
                self._conclude(migration)
            self._weigh(migration)
            self._settle(migration)

    def server_lost(self, server: ApiServer) -> None:
        """It is gone, and what it held is free."""
        for migration in list(self._active.values()):
            if server in (migration.source, migration.destination):
                self.released(server, migration.session.id)

    def may_go_on(self, session: Session, server: ApiServer) -> bool:
        """Whether the destination may have the session of a source that is gone; it will say."""
        migration = self._active.get(session.id)
        if not migration or migration.source is not server or migration.taken or not migration.ordered:
            return False
        destination = migration.destination
        return destination is not None and destination not in migration.released

    def forward(self, session: Session | None, resume: Resume) -> bytes | None:
        """For a guest that lost its connection while its session was moved to another GPU server: MOVED."""
        number = resume.session
        key, remote = (session.resume_key, session.remote) if session else self._away.get(number, (b"", None))
        proof = resume.answer(key) if remote else None
        if not remote or not proof:
            return None
        if resume.asks:
            return resumed(proof)
        there = int.from_bytes(remote.welcome[32:40], "little")
        return moved_frame(key, remote.key, there, remote.address)

    def ends(self, session: Session, reason: str) -> bool:
        """The session is over. Whether its memory is accounted for here, as soon as all of it is free."""
        if session.remote:
            self._away[session.id] = session.resume_key, session.remote
            asyncio.get_running_loop().call_later(AWAY_SECONDS, self._away.pop, session.id)
        migration = self._active.get(session.id)
        if not migration:
            return False
        migration.over = True
        if migration.taken:
            self._conclude(migration)
        else:
            self._fail(migration, f"the session ended: {reason}")
        self._settle(migration)
        return True

    def device_lost(self, device: int) -> None:
        """Nobody shall move there."""
        for migration in list(self._active.values()):
            if isinstance(migration.target, ToDevice) and migration.target.device == device:
                self.cancel(migration, f"GPU {device} failed")

    def cancel(self, migration: Migration, reason: str) -> None:
        """Unless it is past the point of no return."""
        if migration.state is not State.RUNNING or migration.taken:
            return
        if not migration.ordered:
            self._fail(migration, reason)
        elif migration.source:
            order = migration_pb2.Cancel(session=migration.session.id, reason=reason)
            with contextlib.suppress(ChannelBroken):
                migration.source.send(node_pb2.ToServer(cancel=order))

    # -- who has it

    def _weigh(self, migration: Migration) -> None:
        """One of the two is gone, or has given up: what does that mean?"""
        if migration.taken or migration.over or (migration.state is not State.RUNNING and not migration.lost):
            return
        source_gone = migration.source is None or migration.source in migration.released
        destination_gone = migration.destination in migration.released
        if (source_gone or migration.lost) and destination_gone:
            reason = migration.reason or "its API server ended while it moved"
            self._end(migration.session, reason)
        elif source_gone or migration.lost or destination_gone:
            self._start_timer(migration)

    def _start_timer(self, migration: Migration) -> None:
        if not migration.timer:
            loop = asyncio.get_running_loop()
            migration.timer = loop.call_later(VERDICT_SECONDS, self._no_verdict, migration)

    def _stop_timer(self, migration: Migration) -> None:
        if migration.timer:
            migration.timer.cancel()
            migration.timer = None

    def _no_verdict(self, migration: Migration) -> None:
        if migration.taken or migration.settled:
            return
        destination = migration.destination
        if destination and destination not in migration.released:
            destination.kill()  # whose end is the verdict
        elif migration.lost:
            self._end(migration.session, migration.reason or "whoever took it over did not come back")
        elif migration.state is State.RUNNING:
            self._fail(migration, "the destination ended, and the source did not say why")

    def _conclude(self, migration: Migration) -> None:
        """It is done."""
        if migration.state is not State.RUNNING or not migration.taken:
            return
        migration.state, migration.ended = State.DONE, time.monotonic()
        report = migration.report or migration_pb2.Report()
        log.info(
            "migration done",
            session=migration.session.id,
            source=migration.came_from,
            target=str(migration.target),
            seconds=round(migration.seconds, 3),
            pause=round(report.pause_seconds, 4),
            bytes=report.copied_bytes,
        )
        self._tell(self._event(migration, Kind.MIGRATED))
        migration.changed()
        self._settle(migration)

    def _fail(self, migration: Migration, reason: str) -> None:
        if migration.state is not State.RUNNING:
            return
        session = migration.session
        migration.state, migration.ended, migration.reason = State.FAILED, time.monotonic(), reason
        log.warning("migration failed", session=session.id, target=str(migration.target), reason=reason)
        self._wish_no_more(migration)
        self._asked.pop(session.id, None)
        if session.file and not migration.ordered and session.id in self._placer.waiting():
            self._placer.on_leave(session.id)
        if migration.task and migration.task is not asyncio.current_task():
            migration.task.cancel()
        destination = migration.destination
        if destination and destination.is_keeper:
            destination.dismiss("its session did not come")
            self._insist(migration, destination)
        self._tell(self._event(migration, Kind.NOT_MIGRATED))
        migration.changed()
        self._settle(migration)

    def _insist(self, migration: Migration, server: ApiServer) -> None:
        """Who does not have the session any more has this long to clear what is left of it."""
        if server not in migration.told_to_go:
            migration.told_to_go.add(server)
            asyncio.get_running_loop().call_later(LEAVE_SECONDS, self._end_process, migration, server)

    def _end_process(self, migration: Migration, server: ApiServer) -> None:
        if server not in migration.released:
            log.error(
                "API server does not let go of a session", session=migration.session.id, server=server.pid
            )
            server.kill()

    def _settle(self, migration: Migration) -> None:
        """The books are right again when whoever does not have the session any more holds nothing."""
        if migration.settled or (migration.state is State.RUNNING and not migration.over):
            return
        holders = set[ApiServer]()
        if migration.source and migration.source_holds:
            holders.add(migration.source)
        if migration.destination and migration.destination_holds:
            holders.add(migration.destination)
        owner = migration.destination if migration.taken else migration.source
        due = holders if migration.over else holders - {owner}
        if not due <= migration.released:
            for server in due - migration.released:
                self._insist(migration, server)
            return
        migration.settled = True
        migration.changed()
        self._stop_timer(migration)
        del self._active[migration.session.id]
        session = migration.session.id
        if due and due == holders:
            self._placer.on_complete(session, time.monotonic())
        elif due:
            pause = migration.report.pause_seconds if migration.report else 0.0
            self._placer.on_migrated(session, migration.taken, pause)
        self._dispatch()

    # -- a monitor before this one

    def adopt(self, session: Session, server: ApiServer, returned: node_pb2.Returned) -> None:
        """The first that comes back with a session that this monitor did not know."""
        if returned.grant.restore:
            # Not its own yet. If the source does not come back either, this is all that is left of it.
            target = _target(returned, server)
            migration = self._open(session, None, target)
            migration.ordered, migration.destination = True, server
            migration.destination_holds = not server.is_keeper
            migration.remote = returned.migrating.remote if returned.migrating.HasField("remote") else None
            self._start_timer(migration)
        elif server.is_keeper:
            target = _target(returned, server)
            if isinstance(target, ToFile):
                session.suspend(target.path)
            else:
                session.remote = returned.migrating.remote
        elif returned.HasField("migrating"):
            migration = self._open(session, server, _target(returned, server))
            migration.ordered = True
            if returned.migrating.HasField("remote"):
                migration.remote = returned.migrating.remote

    def adopt_other(self, session: Session, server: ApiServer, returned: node_pb2.Returned) -> None:
        """Another comes back with a session that came back already."""
        migration = self._active.get(session.id)
        if migration and returned.migrating.HasField("remote"):
            migration.remote = returned.migrating.remote
        restoring, leaving = returned.grant.restore, returned.HasField("migrating") and not server.is_keeper
        if migration is None and restoring:
            # The source has told of its end already, or it is a keeper that plays.
            migration = self._open(session, session.server, _target(returned, server))
            migration.ordered = True
            self._add_destination(migration, server)
            if migration.source_holds:
                self._fail(migration, "the monitor was restarted meanwhile")
        elif migration is None and leaving:
            migration = self._open(session, server, _target(returned, server))
            migration.ordered = migration.taken = True
            destination = migration.destination = session.server
            assert destination
            server.let_go()
            self._enter_source(migration, server)
            self._conclude(migration)
        elif migration and migration.destination is None:
            self._add_destination(migration, server)
            if not restoring:
                self._take_over(migration)
        elif migration and migration.source is None:
            migration.source = session.server = server
            self._stop_timer(migration)
            self._enter_source(migration, server)
            session.placement = Placement(session.id, server.device, server.key, session.quota)
            if not leaving:
                self._fail(migration, "the monitor was restarted meanwhile")
        else:
            log.error("two API servers have the same session", session=session.id, server=server.pid)
            server.kill()

    def _add_destination(self, migration: Migration, server: ApiServer) -> None:
        migration.destination = server
        if server.is_keeper:
            return
        migration.destination_holds = True
        if migration.source_holds:
            self._placer.adopt_move(migration.session.id, server.device)
        else:
            session = migration.session
            self._placer.adopt(session.id, server.device, session.quota, session.hello.function)

    def _enter_source(self, migration: Migration, source: ApiServer) -> None:
        """The destination was entered already, as if the session had always been there."""
        session, destination = migration.session, migration.destination
        assert destination
        migration.source_holds = True
        migration.destination_holds = not destination.is_keeper
        if migration.destination_holds:
            self._placer.on_complete(session.id, time.monotonic())
        self._placer.adopt(session.id, source.device, session.quota, session.hello.function)
        if migration.destination_holds:
            self._placer.adopt_move(session.id, destination.device)


def _target(returned: node_pb2.Returned, server: ApiServer) -> Target:
    kind = returned.migrating.WhichOneof("target")
    if kind == "file":
        return ToFile(returned.migrating.file.path)
    if kind == "remote":
        return ToServer(returned.migrating.remote.address)
    return ToDevice(returned.migrating.local.device if kind == "local" else server.device)
