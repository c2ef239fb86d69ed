"""Sessions: from a guest that proved itself, through the queue, to an API server, to the end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from gpuferry.specs._generated import migration_pb2, node_pb2

from ..door.guests import Farewells, Guest
from ..door.handshake import CudaError, Hello, Reason, Refusal, Resume, queued, resumed, welcome
from ..moves.custody import Custody
from ..moves.forwarding import Forwarding
from ..moves.migration import CannotMove, Migration, Strategy, Target
from ..moves.orders import Migrations
from ..moves.reunion import Reunion
from ..policy import build
from ..pool.api_server import ApiServer
from ..pool.channel import ChannelBroken
from ..sessions.events import Announcer, Event, Kind
from ..sessions.placement import DeviceRoom, Impossible, Placement, Placer
from ..sessions.session import Phase, Session
from ..settings.monitor import Config

GRANULARITY = 2 << 20
QUEUE_MOST = 1000
TELL_PLACES = 1.0  # seconds between looks at who moved up
TELL_ANYWAY = 30  # looks after which a waiting guest is told that it still waits
LAST_WORDS = 1.0  # for sessions that are told at the end of the grace
HUSH_SECONDS = 0.002  # without another guest: then those of a crowd that were granted are handed over
HAND_OVER_SECONDS = 0.05  # for which a granted session may wait for that
REVOKE_SECONDS = 2.0  # then an API server that does not end its session is ended

log = structlog.get_logger()


def _shorter(ours: float, theirs: float) -> float:
    """Of two limits, of which 0 is none."""
    return min(ours, theirs) if ours and theirs else ours or theirs


class Broker:
    """Brings guests and API servers together. Everything happens on the event loop's thread."""

    def __init__(
        self, config: Config, on_pool_change: Callable[[], None], next_session: Callable[[], int]
    ) -> None:
        self._config = config
        self._on_pool_change = on_pool_change
        self._next_session = next_session
        self._placer = Placer(build(config.policy, config.queue, config.migration))
        self._servers: dict[int, ApiServer] = {}
        self._farewells = Farewells()
        self._closing = False
        self._announcer = Announcer()
        self.subscribe = self._announcer.subscribe
        self.custody = Custody(
            self._placer, self._announcer.tell, self._end, self.end_session, self._dispatch
        )
        self.migrations = Migrations(self._placer, self.custody, self._dispatch)
        self._reunion = Reunion(self._placer, self.custody)
        self._forwarding = Forwarding()
        self.drained = False  # by the registry: only guests that it sent may still come
        self.sessions: dict[int, Session] = {}
        self.granted = 0
        self.refused = 0
        self.complete_at = 0.0  # until then sessions of an earlier monitor may still come
        self._session_over = asyncio.Event()
        self._places: asyncio.TimerHandle | None = None  # the next look at who moved up
        self._granted: dict[int, Session] = {}  # by API server, which does not have the guest's socket yet
        self._handing_over: asyncio.TimerHandle | None = None
        self._welcomes: list[tuple[Guest, bytes]] = []  # of those granted that were not told yet
        self._latest = 0.0  # when the latest guest arrived

    @property
    def draining(self) -> bool:
        """No new sessions, running ones may end."""
        return self._closing or self.drained

    # -- guests

    def arrive(self, guests: Sequence[Guest]) -> None:
        """They proved themselves: grant, queue or refuse."""
        self._match_new([session for guest in guests if (session := self._let_in(guest))])
        if self._granted and not self._handing_over:
            self._wait_for_a_hush()

    def _let_in(self, guest: Guest) -> Session | None:
        if self._closing:
            self._refuse(guest, Reason.SHUTTING_DOWN, "the monitor is shutting down")
            return None
        if self.drained and (guest.hello.restore or not guest.invited):
            self._refuse(guest, Reason.SHUTTING_DOWN, "this GPU server is being drained: ask the registry")
            return None
        if len(self._placer) >= QUEUE_MOST:
            self._refuse(guest, Reason.NO_CAPACITY, f"{QUEUE_MOST} guests wait already")
            return None
        session = Session(self._next_session(), guest.hello, guest.peer, guest)
        self.sessions[session.id] = session
        self._latest = session.arrived
        self._enter_queue(session)
        return session

    def quiet(self) -> None:
        """No other guest is at the door. Where there was more than one, the next may be on its way."""
        if len(self._granted) == 1:
            self._hand_over()

    def _wait_for_a_hush(self) -> None:
        loop = asyncio.get_running_loop()
        self._handing_over = loop.call_later(HUSH_SECONDS, self._hand_over_in_a_hush)

    def _hand_over_in_a_hush(self) -> None:
        now = time.monotonic()
        since = min([session.since for session in self._granted.values()], default=now)
        if now < self._latest + HUSH_SECONDS and now < since + HAND_OVER_SECONDS:
            self._wait_for_a_hush()
        else:
            self._hand_over()

    def resume(self, connection: socket.socket, peer: str, resume: Resume) -> None:
        """To the API server that holds the session. A wrong key and no session are told alike."""
        session = self.sessions.get(resume.session)
        if frame := self._forwarding.frame(session, resume):
            self._farewells.send(connection, frame)
            return
        if session and session.welcome and not session.grant:
            self._hand_over()  # it is back before its API server knows of it
        server = session.server if session else None
        proof = resume.answer(session.resume_key) if session and session.resume_key else None
        if resume.asks and session and proof:
            self._tell_whether(connection, peer, session, proof)
            return
        if session.welcome and not server if session else time.monotonic() < self.complete_at:
            text = "no API server has the session yet"
            self.turn_away(connection, peer, Refusal(Reason.SHUTTING_DOWN, text))
            return
        if not server or not proof:
            self.turn_away(connection, peer, Refusal(Reason.NO_SESSION, "there is no such session any more"))
            return
        connection.setblocking(True)
        again = node_pb2.Resume(session=resume.session, proof=proof, received=resume.received)
        with contextlib.closing(connection), contextlib.suppress(ChannelBroken):
            server.send(node_pb2.ToServer(resume=again), connection)
            log.info("guest came back", session=resume.session, peer=peer)

    def _tell_whether(self, connection: socket.socket, peer: str, session: Session, proof: bytes) -> None:
        """Somebody who handed a session over wants to know whether it arrived."""
        if session.running:
            self._farewells.send(connection, resumed(proof))
        else:
            self.turn_away(connection, peer, Refusal(Reason.NO_CAPACITY, "it is being restored"))

    def turn_away(self, connection: socket.socket, peer: str, refusal: Refusal) -> None:
        """Tell a guest why not, in the background."""
        self.refused += 1
        log.info("refused", reason=refusal.reason.name, text=refusal.text, peer=peer)
        self._announcer.tell(Event(Kind.REFUSED, reason=refusal.text))
        self._farewells.send(connection, refusal.frame())

    def _refuse(self, guest: Guest, reason: Reason, text: str, error: CudaError | None = None) -> None:
        self.turn_away(guest.connection, guest.peer, Refusal(reason, text, error))

    # -- the queue

    def _enter_queue(self, session: Session, first: bool = False) -> None:
        hello = session.hello
        labels = frozenset([f"{name}={value}" for name, value in hello.labels])
        self._placer.arrive(
            session.id, hello.memory, labels, session.since, first=first, function=hello.function
        )

    def _match_new(self, sessions: Iterable[Session]) -> None:
        """Those that entered the queue get an API server, or wait in it."""
        self._match()
        for session in sessions:
            if session.phase is Phase.WAITING and session.id in self.sessions:
                self._wait(session)

    def _wait(self, session: Session) -> None:
        assert session.guest
        loop = asyncio.get_running_loop()
        session.timer = loop.call_later(self._patience(session), self._give_up, session)
        self._announcer.tell(Event(Kind.QUEUED, session.id))
        if session.welcome:
            return  # it may speak, and expects no QUEUED
        session.guest.connection.setblocking(False)
        loop.add_reader(session.guest.connection, self._spoke_while_waiting, session)
        session.told = (0, 0)
        if self._places is None:
            self._tell_places()
        else:
            self._tell_place(session, len(self._placer), len(self._placer))

    def _patience(self, session: Session) -> float:
        """Seconds that it may wait: the shorter of what it and what we want."""
        return min(self._config.max_wait, session.hello.max_wait or self._config.max_wait)

    def _tell_places(self) -> None:
        waiting = self._placer.waiting()
        for place, number in enumerate(waiting, 1):
            self._tell_place(self.sessions[number], place, len(waiting))
        loop = asyncio.get_running_loop()
        self._places = loop.call_later(TELL_PLACES, self._tell_places) if waiting else None

    def _tell_place(self, session: Session, place: int, length: int) -> None:
        before, looks = session.told
        if session.guest is None or session.welcome or (before == place and looks < TELL_ANYWAY):
            session.told = before, looks + 1
            return
        session.told = place, 0
        with contextlib.suppress(OSError):  # one that hung up is noticed where it is read
            session.guest.connection.send(queued(place, length))

    def _leave_queue(self, session: Session) -> Guest:
        assert session.guest
        if session.timer:  # it had to wait
            session.stop_timer()
            asyncio.get_running_loop().remove_reader(session.guest.connection)
        return session.guest

    def _withdraw(self, session: Session) -> Guest:
        guest = self._leave_queue(session)
        self._placer.on_leave(session.id)
        del self.sessions[session.id]
        self._announcer.tell(Event(Kind.LEFT, session.id))
        self._dispatch()
        return guest

    def _give_up(self, session: Session) -> None:
        position = self._placer.waiting().index(session.id) + 1
        waited = self._patience(session)
        text = f"no API server became free within {waited:g} s (place {position} in the queue)"
        self._refuse(self._withdraw(session), Reason.NO_CAPACITY, text)

    def _spoke_while_waiting(self, session: Session) -> None:
        """A waiting guest may only hang up."""
        assert session.guest
        try:
            data = session.guest.connection.recv(1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        guest = self._withdraw(session)
        if data:
            self._refuse(guest, Reason.MALFORMED, "bytes between HELLO and WELCOME")
        else:
            log.info("left the queue", session=session.id, program=session.hello.program)
            guest.connection.close()

    # -- matching

    def _dispatch(self) -> None:
        self._match()
        self._hand_over()

    def _match(self) -> None:
        while not self._closing and (decision := self._placer.next()):
            if isinstance(decision, Placement):
                self._grant(self.sessions[decision.session], decision)
            elif isinstance(decision, Impossible):
                self._reject(self.sessions[decision.session], decision)
            else:
                self.migrations.carry_out(decision, self.sessions.get(decision.session))
        welcomes, self._welcomes = self._welcomes, []
        for guest, frame in welcomes:
            guest.welcome(frame)

    def _reject(self, session: Session, why: Impossible) -> None:
        """What it asks for, this machine does not have."""
        if session.file:
            self.migrations.cannot_come_back(session, why.reason)
            return
        guest = self._leave_queue(session)
        del self.sessions[session.id]
        error = CudaError.OUT_OF_MEMORY if why.memory else None
        self._refuse(guest, Reason.NO_CAPACITY, why.reason, error)

    def _grant(self, session: Session, placement: Placement) -> None:
        """The guest hears of it at once, for WELCOME is known here; its API server a little later."""
        if session.file:
            self.migrations.comes_back(session, placement)
            return
        guest = self._leave_queue(session)
        server = self._servers[placement.server]
        grace = self._config.resume_grace if session.hello.resumable else 0
        proof = guest.welcome_proof
        frame = welcome(server.welcome, proof, session.id, placement.quota, int(grace * 1000))
        if not session.welcome:
            self._welcomes.append((guest, frame))
        elif session.welcome != frame:
            self._break_word(session, placement)
            return
        session.welcome, session.placement, session.server = frame, placement, server
        session.enter(Phase.GRANTED)
        server.take(session.id)
        self._granted[server.key] = session

    def _break_word(self, session: Session, placement: Placement) -> None:
        """The API server died that its WELCOME was about, and this one is not like it."""
        assert session.guest
        del self.sessions[session.id]
        self._placer.on_complete(session.id, time.monotonic())
        self._placer.on_idle(placement.device, placement.server)
        self._refuse(session.guest, Reason.NO_CAPACITY, "its API server died, and another has other terms")

    def _hand_over(self) -> None:
        """API servers that were granted get their guests, first come first."""
        if self._handing_over:
            self._handing_over.cancel()
            self._handing_over = None
        while self._granted:
            self._hand(self._granted.pop(next(iter(self._granted))))

    def _hand(self, session: Session) -> None:
        guest, server, placement = session.guest, session.server, session.placement
        assert guest
        assert server
        assert placement
        session.wall_limit = _shorter(self._config.wall_limit, session.hello.wall_limit)
        session.idle_limit = _shorter(self._config.idle_limit, session.hello.idle_limit)
        grant = node_pb2.Grant(
            session=session.id,
            memory_quota=placement.quota,
            welcome_proof=guest.welcome_proof,
            tenant=session.hello.tenant,
            function=session.hello.function,
            program=session.hello.program,
            guest_pid=session.hello.pid,
            guest_nonce=session.hello.nonce,
            peer=session.peer,
            wall_seconds=session.wall_limit,
            idle_seconds=session.idle_limit,
            resume_seconds=self._config.resume_grace if session.hello.resumable else 0,
            resume_key=guest.resume_key,
        )
        if restore := session.hello.restore:
            grant.restore, grant.age_seconds = True, restore.age
            session.restoring = True
        session.grant = grant
        guest.connection.setblocking(True)  # a property of the open file, so the API server inherits it
        try:
            message = node_pb2.ToServer(grant=grant)
            message.grant.welcomed = True
            server.send(message, guest.connection)
        except ChannelBroken:
            server.kill()  # its end brings the session back into the queue
            return
        limit = self._config.start_timeout
        session.timer = asyncio.get_running_loop().call_later(limit, self._never_started, session)

    def _never_started(self, session: Session) -> None:
        if session.server:
            log.error("grant not taken in time", session=session.id, server=session.server.pid)
            session.server.kill()

    # -- the pool's events

    def server_ready(self, server: ApiServer) -> None:
        """It joins the idle ones."""
        self._know(server)
        self._placer.on_idle(server.device, server.key)
        self.migrations.server_ready(server.device)
        log.info("server ready", server=server.pid, gpu=server.device, age=round(server.age, 3))
        self._announcer.tell(Event(Kind.SERVER_READY, device=server.device, server=server.pid))
        self._dispatch()
        self._on_pool_change()

    def withhold(self, device: int, size: int) -> None:
        """For API servers beyond those that the headroom is meant for; when they go, somebody may fit."""
        self._placer.withhold(device, size)
        self._dispatch()

    def _know(self, server: ApiServer) -> None:
        """The first API server of a device says how much memory there is."""
        assert server.ready
        self._servers[server.key] = server
        config = self._config
        grantable = max(server.ready.device_memory - config.reserved, 0)
        usual = config.memory or grantable // config.pool // GRANULARITY * GRANULARITY
        labels = frozenset((f"gpu={server.device}", f"name={server.ready.device_name}"))
        if self._placer.add_device(server.device, grantable, min(usual, grantable), labels):
            self._placer.let_in_early(time.monotonic())
            self._announcer.tell(Event(Kind.DEVICE_BACK, device=server.device))

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        """An earlier monitor granted this session."""
        grant = returned.grant
        if not server.is_keeper:
            self._know(server)
        if session := self.sessions.get(grant.session):
            self._reunion.another(session, server, returned)
            self._on_pool_change()
            return
        hello = Hello(
            nonce=grant.guest_nonce,
            pid=grant.guest_pid,
            memory=grant.memory_quota,
            tenant=grant.tenant,
            function=grant.function,
            program=grant.program,
        )
        session = Session(grant.session, hello, grant.peer, None)
        session.server = server
        session.wall_limit, session.idle_limit = grant.wall_seconds, grant.idle_seconds
        session.grant = grant
        session.enter(Phase.RUNNING)
        session.arrived = session.since = time.monotonic() - returned.session_seconds
        self.sessions[session.id] = session
        if not server.is_keeper:
            session.placement = Placement(session.id, server.device, server.key, grant.memory_quota)
            self._placer.adopt(session.id, server.device, grant.memory_quota, grant.function)
        self._reunion.first(session, server, returned)
        log.info("session adopted", session=session.id, gpu=server.device, server=server.pid)
        self._announcer.tell(Event(Kind.ADOPTED, session.id, server.device, server.pid))
        self._on_pool_change()

    def session_started(self, number: int) -> None:
        """From here on the guest is the API server's alone: its end must be the guest's end."""
        session = self.sessions.get(number)
        if session and session.phase is Phase.GRANTED and session.placement and session.server:
            session.enter(Phase.RUNNING)
            if session.hello.restore:
                session.since -= session.hello.restore.age
            if session.guest:
                session.guest.connection.close()
            self.granted += 1
            device, pid = session.server.device, session.server.pid
            log.info(
                "session started",
                session=number,
                gpu=device,
                server=pid,
                program=session.hello.program,
                function=session.hello.function,
                quota=session.placement.quota,
            )
            self._announcer.tell(Event(Kind.STARTED, number, device, pid))

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        """The API server says so; its memory can be granted again if it is clean, else when it is gone."""
        session = self.sessions.get(ended.session)
        if session and session.server is server and (ended.clean or server.is_keeper):
            self._end(session, ended.reason)
        if ended.clean:
            self.custody.released(server, ended.session)

    def moving(self, server: ApiServer, moving: migration_pb2.Moving) -> None:
        """How far a migration is."""
        self.custody.moving(server, moving)

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        """How it ended, says its source."""
        self.custody.moved(server, moved)

    def taken_over(self, server: ApiServer, number: int) -> None:
        """It has the session now."""
        if session := self.sessions.get(number):
            session.restoring = False
        self.custody.taken_over(server, number)

    def tick(self, utilisation: Mapping[int, float]) -> int | None:
        """Time passed; the device of which the next launch matters, if there is one."""
        self._placer.on_tick(time.monotonic(), utilisation)
        self._dispatch()
        crowded = self._placer.imbalance()
        return crowded[0] if crowded else None

    def launched(self, number: int) -> None:
        """It launched a kernel, which may be the moment for it to move."""
        if session := self.sessions.get(number):
            session.watched = False
        self._placer.on_launch(number, time.monotonic())
        self._dispatch()

    def server_lost(self, server: ApiServer) -> None:
        """Its session is over; a guest that it never served goes back to the head of the queue."""
        self._servers.pop(server.key, None)
        self._granted.pop(server.key, None)
        self._placer.on_server_lost(server.device, server.key)
        self._announcer.tell(
            Event(Kind.SERVER_LOST, device=server.device, server=server.pid, reason=server.end_reason)
        )
        session = self.sessions.get(server.session)
        if session and session.server is server:
            if session.phase is Phase.GRANTED and not self._closing:
                self._placer.on_complete(session.id, time.monotonic())
                session.enter(Phase.WAITING)
                session.placement = session.server = None
                self._enter_queue(session, first=True)
                self._match_new([session])
            elif not self.custody.may_go_on(session, server):
                self._end(session, f"API server: {server.end_reason}")
        self.custody.server_lost(server)
        self._dispatch()
        self._on_pool_change()

    def device_lost(self, device: int, reason: str) -> None:
        """Nothing is placed there until an API server is ready there again; its sessions are told."""
        if not self._placer.remove_device(device):
            return
        self._announcer.tell(Event(Kind.DEVICE_LOST, device=device, reason=reason))
        self.custody.device_lost(device)
        for session in self.running():
            if session.server and session.server.device == device:
                self.end_session(session, f"GPU {device} failed: {reason}")
        self._dispatch()
        self._on_pool_change()

    def _end(self, session: Session, reason: str) -> None:
        session.stop_timer()
        if session.guest:
            session.guest.connection.close()
        del self.sessions[session.id]
        self._forwarding.ended(session)
        if not self.custody.ends(session, reason) and session.placement:
            self._placer.on_complete(session.id, time.monotonic())
        seconds = round(time.monotonic() - session.since, 3)
        log.info("session ended", session=session.id, reason=reason, seconds=seconds)
        device = session.placement.device if session.placement else -1
        self._announcer.tell(Event(Kind.ENDED, session.id, device, reason=reason))
        self._session_over.set()
        self._dispatch()

    # -- moving sessions

    def migrate(
        self, number: int, target: Target, strategy: Strategy, timeout: float, dry_run: bool = False
    ) -> Migration | None:
        """An operator wants it. CannotMove says why not; None: it could begin."""
        session = self.sessions.get(number)
        if session is None:
            raise KeyError(number)
        if self._closing:
            raise CannotMove("the monitor is shutting down")
        if session.file:
            raise CannotMove(f"session {number} is suspended: `gpuferry session resume {session.file}`")
        if dry_run:
            self.migrations.check(session, target)
            return None
        return self.migrations.begin(session, target, strategy, timeout)

    def resume_session(self, path: str, target: Target, timeout: float) -> Migration:
        """Out of the file in which it is suspended."""
        found = [session for session in self.sessions.values() if session.file == path]
        if not found:
            raise KeyError(path)
        if self._closing:
            raise CannotMove("the monitor is shutting down")
        return self.migrations.begin(found[0], target, Strategy.STRATEGY_STOP, timeout)

    # -- ending sessions

    def end_session(self, session: Session, reason: str) -> None:
        """The guest is told why; an API server that does not let go is ended."""
        self._hand_over()
        log.info("session revoked", session=session.id, reason=reason)
        if session.phase is Phase.WAITING or not session.server:
            self._refuse(self._withdraw(session), Reason.DENIED, reason)
            return
        session.revoked = reason
        revoke = node_pb2.Revoke(session=session.id, reason=reason)
        with contextlib.suppress(ChannelBroken):
            session.server.send(node_pb2.ToServer(revoke=revoke))
        asyncio.get_running_loop().call_later(REVOKE_SECONDS, self._insist, session, session.server)

    def end_by_number(self, number: int, reason: str) -> bool:
        """False: there is no such session."""
        session = self.sessions.get(number)
        if session:
            self.end_session(session, reason)
        return session is not None

    def end_tenant(self, tenant: str) -> None:
        """The tenant's token was revoked, and its sessions shall end."""
        for session in [one for one in self.sessions.values() if one.hello.tenant == tenant]:
            self.end_session(session, f"the token of {tenant} was revoked")

    def _insist(self, session: Session, server: ApiServer) -> None:
        if session.server is server and server.session == session.id and session.id in self.sessions:
            server.kill()

    # -- the end, and looking in

    async def drain(self, grace: float) -> None:
        """No new sessions; running ones have `grace` seconds."""
        self._closing = True
        for number in self._placer.waiting():
            session, reason = self.sessions[number], "the monitor is shutting down"
            if session.file:
                self.migrations.cannot_come_back(session, reason)
            else:
                self._refuse(self._withdraw(session), Reason.SHUTTING_DOWN, reason)
        if not await self._sessions_over(grace):
            for session in self.running():
                self.end_session(session, "the GPU server is shutting down")
            await self._sessions_over(LAST_WORDS)
        await self._farewells.finish()

    async def _sessions_over(self, limit: float) -> bool:
        deadline = time.monotonic() + limit
        while self.sessions and (left := deadline - time.monotonic()) > 0:
            log.info("waiting for sessions", count=len(self.sessions), seconds=round(left, 1))
            self._session_over.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._session_over.wait(), left)
        return not self.sessions

    def rooms(self) -> Iterable[DeviceRoom]:
        """The devices that are known, for status."""
        return self._placer.devices.values()

    def queue(self) -> list[Session]:
        """Waiting sessions, first come first."""
        return [self.sessions[number] for number in self._placer.waiting()]

    def running(self) -> list[Session]:
        """Sessions that have an API server."""
        return [session for session in self.sessions.values() if session.server]
