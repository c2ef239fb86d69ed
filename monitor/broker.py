"""Sessions: from a guest that proved itself, through the queue, to an API server, to the end."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import socket
import time
from collections.abc import Callable, Iterable

import structlog
from gpuferry.specs._generated import node_pb2

from .config import Config
from .guests import Farewells, Guest
from .handshake import CudaError, Reason, Refusal
from .node import ChannelBroken
from .placement import DeviceRoom, FirstCome, Placement, Request
from .pool import ApiServer

GRANULARITY = 2 << 20
QUEUE_MOST = 1000
REVOKE_SECONDS = 2.0  # then an API server that does not end its session is ended

log = structlog.get_logger()


class Phase(enum.Enum):
    """Where a session is."""

    WAITING = "waiting"
    GRANTED = "granted"  # the API server was told, and did not confirm yet
    RUNNING = "running"


class Session:
    """One guest process's use of a device."""

    def __init__(self, number: int, guest: Guest) -> None:
        self.id = number
        self.guest = guest
        self.phase = Phase.WAITING
        self.arrived = self.since = time.monotonic()  # `since`: of this phase
        self.placement: Placement | None = None
        self.server: ApiServer | None = None
        self.timer: asyncio.TimerHandle | None = None

    def enter(self, phase: Phase) -> None:
        """Phases have time limits of their own: each starts without one."""
        self.phase = phase
        self.since = time.monotonic()
        self.stop_timer()

    def stop_timer(self) -> None:
        """Whatever was to happen did not have to."""
        if self.timer:
            self.timer.cancel()
            self.timer = None


class Broker:
    """Brings guests and API servers together. Everything happens on the event loop's thread."""

    def __init__(self, config: Config, on_pool_change: Callable[[], None]) -> None:
        self._config = config
        self._on_pool_change = on_pool_change
        self._policy = FirstCome()
        self._servers: dict[int, ApiServer] = {}
        self._numbers = itertools.count(1)
        self._farewells = Farewells()
        self._closing = False
        self.drained = False  # by the registry: only guests that it sent may still come
        self.sessions: dict[int, Session] = {}
        self.granted = 0
        self.refused = 0
        self._session_over = asyncio.Event()

    # -- guests

    def arrive(self, guest: Guest) -> None:
        """A guest proved itself: grant, queue or refuse."""
        if self._closing:
            self._refuse(guest, Reason.SHUTTING_DOWN, "the monitor is shutting down")
            return
        if self.drained and not guest.invited:
            self._refuse(guest, Reason.SHUTTING_DOWN, "this GPU server is being drained: ask the registry")
            return
        if len(self._policy.waiting()) >= QUEUE_MOST:
            self._refuse(guest, Reason.NO_CAPACITY, f"{QUEUE_MOST} guests wait already")
            return
        impossible = self._policy.refusal(guest.hello.memory)
        if impossible:
            self._refuse(guest, Reason.NO_CAPACITY, impossible, CudaError.OUT_OF_MEMORY)
            return
        session = Session(next(self._numbers), guest)
        self.sessions[session.id] = session
        self._queue(session)
        self._dispatch()

    def turn_away(self, connection: socket.socket, peer: str, refusal: Refusal) -> None:
        """Tell a guest why not, in the background."""
        self.refused += 1
        log.info("refused", reason=refusal.reason.name, text=refusal.text, peer=peer)
        self._farewells.send(connection, refusal.frame())

    def _refuse(self, guest: Guest, reason: Reason, text: str, error: CudaError | None = None) -> None:
        self.turn_away(guest.connection, guest.peer, Refusal(reason, text, error))

    def _queue(self, session: Session, first: bool = False) -> None:
        session.enter(Phase.WAITING)
        session.placement = session.server = None
        loop = asyncio.get_running_loop()
        session.timer = loop.call_later(self._config.max_wait, self._give_up, session)
        session.guest.connection.setblocking(False)
        loop.add_reader(session.guest.connection, self._spoke_while_waiting, session)
        self._policy.on_arrival(Request(session.id, session.guest.hello.memory), first)

    def end_tenant(self, tenant: str) -> None:
        """The tenant's token was revoked, and its sessions shall end."""
        text = f"the token of {tenant} was revoked"
        for session in [one for one in self.sessions.values() if one.guest.hello.tenant == tenant]:
            log.info("session revoked", session=session.id, tenant=tenant)
            if session.phase is Phase.WAITING or not session.server:
                self._withdraw(session)
                self._refuse(session.guest, Reason.DENIED, text)
                continue
            revoke = node_pb2.Revoke(session=session.id, reason=text)
            with contextlib.suppress(ChannelBroken):
                session.server.send(node_pb2.ToServer(revoke=revoke))
            loop = asyncio.get_running_loop()
            loop.call_later(REVOKE_SECONDS, self._insist, session, session.server)

    def _insist(self, session: Session, server: ApiServer) -> None:
        if session.server is server and server.session == session.id and session.id in self.sessions:
            server.kill()

    def _leave_queue(self, session: Session) -> None:
        session.stop_timer()
        asyncio.get_running_loop().remove_reader(session.guest.connection)

    def _withdraw(self, session: Session) -> None:
        self._leave_queue(session)
        self._policy.on_leave(session.id)
        del self.sessions[session.id]
        self._dispatch()

    def _give_up(self, session: Session) -> None:
        position = self._policy.waiting().index(session.id) + 1
        self._withdraw(session)
        text = f"no API server became free within {self._config.max_wait:g} s (place {position} in the queue)"
        self._refuse(session.guest, Reason.NO_CAPACITY, text)

    def _spoke_while_waiting(self, session: Session) -> None:
        """A waiting guest may only hang up."""
        try:
            data = session.guest.connection.recv(1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._withdraw(session)
        if data:
            self._refuse(session.guest, Reason.MALFORMED, "bytes between HELLO and WELCOME")
        else:
            log.info("left the queue", session=session.id, program=session.guest.hello.program)
            session.guest.connection.close()

    # -- matching

    def _dispatch(self) -> None:
        while not self._closing and (placement := self._policy.next()):
            session = self.sessions[placement.session]
            self._leave_queue(session)
            self._grant(session, placement)

    def _grant(self, session: Session, placement: Placement) -> None:
        server = self._servers[placement.server]
        hello, connection = session.guest.hello, session.guest.connection
        session.placement, session.server = placement, server
        session.enter(Phase.GRANTED)
        server.take(session.id)
        grant = node_pb2.Grant(
            session=session.id,
            memory_quota=placement.quota,
            welcome_proof=session.guest.welcome_proof,
            tenant=hello.tenant,
            function=hello.function,
            program=hello.program,
            guest_pid=hello.pid,
        )
        connection.setblocking(True)  # a property of the open file, so the API server inherits it
        try:
            server.send(node_pb2.ToServer(grant=grant), connection)
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
        """It joins the idle ones; the first of a device says how much memory there is."""
        assert server.ready
        self._servers[server.key] = server
        grantable = max(server.ready.device_memory - self._config.headroom_of(server.ready.simulated), 0)
        usual = self._config.memory or grantable // self._config.pool // GRANULARITY * GRANULARITY
        self._policy.add_device(DeviceRoom(server.device, grantable, min(usual, grantable)))
        self._policy.on_idle(server.device, server.key)
        log.info("server ready", server=server.pid, device=server.device, age=round(server.age, 3))
        self._refuse_impossible()
        self._dispatch()
        self._on_pool_change()

    def _refuse_impossible(self) -> None:
        """Guests that came before a device was known may ask for more than it has."""
        for number in self._policy.waiting():
            session = self.sessions[number]
            impossible = self._policy.refusal(session.guest.hello.memory)
            if impossible:
                self._withdraw(session)
                self._refuse(session.guest, Reason.NO_CAPACITY, impossible, CudaError.OUT_OF_MEMORY)

    def session_started(self, number: int) -> None:
        """From here on the guest is the API server's alone: its end must be the guest's end."""
        session = self.sessions.get(number)
        if session and session.phase is Phase.GRANTED and session.placement and session.server:
            session.enter(Phase.RUNNING)
            session.guest.connection.close()
            self.granted += 1
            log.info(
                "session started",
                session=number,
                device=session.server.device,
                server=session.server.pid,
                program=session.guest.hello.program,
                function=session.guest.hello.function,
                quota=session.placement.quota,
            )

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        """The API server says so; its memory can be granted again if it is clean, else when it is gone."""
        session = self.sessions.get(ended.session)
        if session and session.server is server and ended.clean:
            self._end(session, ended.reason)

    def server_lost(self, server: ApiServer) -> None:
        """Its session is over; a guest that it never served goes back to the head of the queue."""
        self._servers.pop(server.key, None)
        self._policy.on_server_lost(server.device, server.key)
        session = self.sessions.get(server.session)
        if session and session.server is server:
            if session.phase is Phase.GRANTED and session.placement and not self._closing:
                self._policy.on_complete(session.placement)
                self._queue(session, first=True)
            else:
                self._end(session, f"API server: {server.end_reason}")
        self._dispatch()
        self._on_pool_change()

    def _end(self, session: Session, reason: str) -> None:
        session.stop_timer()
        session.guest.connection.close()
        del self.sessions[session.id]
        if session.placement:
            self._policy.on_complete(session.placement)
        seconds = round(time.monotonic() - session.since, 3)
        log.info("session ended", session=session.id, reason=reason, seconds=seconds)
        self._session_over.set()
        self._dispatch()

    # -- the end, and looking in

    async def drain(self, grace: float) -> None:
        """No new sessions; running ones have `grace` seconds."""
        self._closing = True
        for number in self._policy.waiting():
            session = self.sessions[number]
            self._withdraw(session)
            self._refuse(session.guest, Reason.SHUTTING_DOWN, "the monitor is shutting down")
        deadline = time.monotonic() + grace
        while self.sessions and (left := deadline - time.monotonic()) > 0:
            log.info("waiting for sessions", count=len(self.sessions), seconds=round(left, 1))
            self._session_over.clear()
            try:
                await asyncio.wait_for(self._session_over.wait(), left)
            except asyncio.TimeoutError:
                break
        await self._farewells.finish()

    @property
    def draining(self) -> bool:
        """Whether guests are sent away."""
        return self._closing or self.drained

    def rooms(self) -> Iterable[DeviceRoom]:
        """The devices that are known, for status."""
        return self._policy.devices.values()

    def queue(self) -> list[Session]:
        """Waiting sessions, first come first."""
        return [self.sessions[number] for number in self._policy.waiting()]

    def running(self) -> list[Session]:
        """Sessions that have an API server."""
        return [session for session in self.sessions.values() if session.server]
