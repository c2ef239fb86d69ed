"""Sessions: from a guest that proved itself, through the queue, to an API server, to the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path

import structlog
from gpuferry.specs._generated import control_pb2, migration_pb2, node_pb2

from ..door.guests import Guest
from ..door.handshake import CudaError, Reason, membership, welcome
from ..moves.custody import Custody
from ..moves.migration import CannotMove, Migration, Strategy, Target, ToDevice
from ..moves.orders import Link, Orders
from ..moves.preparation import Preparations
from ..moves.snapshots import Snapshots
from ..policy.holdings import Share
from ..policy.interface import Standing
from ..pool.api_server import ApiServer, PoolListener
from ..pool.channel import HasFileno
from ..pool.pool import Pool
from ..residency.steward import Steward
from ..service.waiting import within
from ..sessions.decision import Impossible, Placement
from ..sessions.events import Announcer, Event, Kind
from ..sessions.placement import DeviceRoom, Placer
from ..sessions.session import Phase, Session, holder
from ..settings.monitor import Config
from ..tenants.tenancy import Tenancy
from .admission import Admission
from .adoption import Adoption
from .departures import Departures
from .endings import Endings
from .exchange import Exchange
from .handover import HandOver
from .portions import scoped
from .programs import Programs
from .queue import GRANULARITY, Queue
from .refusals import Refusals
from .returning import Returning
from .several import Several

OBSTACLES_MOST = 100  # of a long queue, those whose reasons are worked out for a status
LOSSES_MOST = 3  # API servers that may end before they serve a guest
JOINS = "another API server on its program's GPU is not ready yet"
LAST_WORDS = 1.0  # for sessions that are told at the end of the grace

log = structlog.get_logger()


class Broker(PoolListener):
    """Every session of this GPU server, from its guest's arrival to its end. On the event loop's thread."""

    def __init__(
        self,
        config: Config,
        placer: Placer,
        steward: Steward,
        announcer: Announcer,
        pool: Pool,
        snapshots: Snapshots,
        connect: Callable[[Session, str], Coroutine[None, None, Link]],
        next_session: Callable[[], int | None],
        complete_at: float,
        tenancy: Tenancy,
        queue_most: int,
        books: Path,
    ) -> None:
        self._config = config
        self._placer = placer
        self._steward = steward
        self._announcer = announcer
        self._next_session = next_session
        self._servers: dict[int, ApiServer] = {}
        self._complete_at = complete_at
        self._closing = False
        self._session_over = asyncio.Event()
        self.drained = False  # by the registry: only guests that it sent may still come
        self.sessions: dict[int, Session] = {}
        self.granted = 0  # sessions that began here
        preparations = Preparations(placer, pool)
        self.custody = Custody(placer, preparations, announcer.tell, self)
        self._snapshots = snapshots
        self._pool = pool
        self._orders = Orders(
            placer,
            self.sessions,
            self.custody,
            preparations,
            snapshots,
            pool,
            connect,
            self.dispatch,
            steward.begin,
            config.move_variables == "same",
        )
        revocations: dict[str, deque[float]] = {}
        self._handover = HandOver(config, tenancy, steward.begin, revocations)
        self._tenancy = tenancy
        self._programs = Programs(self.sessions, placer, pool, self.custody, tenancy, books, config.processes)
        self._adoption = Adoption(
            self.sessions, self._programs, placer, self.custody, announcer, config.label_scope
        )
        self._exchange = Exchange(self.sessions, self.custody.destination_of)
        self._several = Several(placer, pool)
        self._admission = Admission(placer, tenancy, queue_most, self._programs.more)
        self.refusals = Refusals(announcer)
        self._departures = Departures(self.sessions, config.resume_grace)
        self.returning = Returning(
            self.sessions,
            self.refusals,
            self.all_back,
            self._handover.flush,
            self._departures.watch,
        )
        self._queue = Queue(
            config.max_wait,
            self.sessions,
            placer,
            tenancy,
            self._admission,
            self._programs,
            self._several,
            self._orders.cannot_be_placed,
            self.refusals,
            announcer,
            self._match_new,
            self.dispatch,
        )
        self.endings = Endings(
            self.sessions, self.refusals, self._queue.withdraw, self._handover.flush, revocations
        )

    @property
    def draining(self) -> bool:
        """Whether no new sessions are taken; running ones may end."""
        return self._closing or self.drained

    def all_back(self) -> bool:
        """Whether no session of an earlier monitor is unknown any more."""
        return time.monotonic() >= self._complete_at and self._pool.all_back

    # -- guests

    def arrive(self, guests: Sequence[Guest]) -> None:
        """Guests proved themselves: each gets an API server, waits in the queue, or is refused."""
        self._match_new([session for guest in guests if (session := self._let_in(guest))])
        self._handover.flush_in_a_hush()

    def _let_in(self, guest: Guest) -> Session | None:
        if self._closing:
            self.refusals.refuse(guest, Reason.SHUTTING_DOWN, "the monitor is shutting down")
            return None
        if self.drained and (guest.hello.restore or not guest.invited):
            self.refusals.refuse(
                guest, Reason.SHUTTING_DOWN, "this GPU server is being drained: ask the registry"
            )
            return None
        if guest.hello.proven:
            if why_not := self._pool.why_no_tenants:
                text = f"this GPU server does not let tenants share it: {why_not}"
                self.refusals.refuse(guest, Reason.DENIED, text)
                return None
            self._pool.tenants_come()
        if why_not := self._admission.why_not_in(guest.hello.tenant):
            self.refusals.refuse(guest, Reason.NO_CAPACITY, why_not)
            return None
        if guest.hello.restore is None and (why_not := self._tenancy.why_no_start(guest.hello.tenant)):
            self.refusals.refuse(guest, Reason.NO_CAPACITY, why_not)
            return None
        number = self._next_session()
        if number is None:
            text = (
                "the runtime folder cannot be written, so no session can be numbered: see the monitor's log"
            )
            self.refusals.refuse(guest, Reason.NO_CAPACITY, text)
            return None
        session = Session(number, scoped(guest.hello, self._config.label_scope), guest.peer, guest)
        if why_not := self._programs.why_not(session):
            self.refusals.refuse(guest, Reason.NO_CAPACITY, why_not)
            return None
        self.sessions[session.id] = session
        self._handover.arrived(session.arrived)
        if not self._programs.enter(session):
            self._queue.enter(session)
        return session

    def quiet(self) -> None:
        """No other guest is at the door. Where there was more than one, the next may be on its way."""
        self._handover.quiet()

    def _match_new(self, sessions: Iterable[Session]) -> None:
        """Those that entered the queue get an API server, or wait in it."""
        self._match()
        for session in sessions:
            if session.phase is Phase.WAITING and session.id in self.sessions:
                self._queue.let_wait(session)

    # -- matching

    def dispatch(self) -> None:
        """The policy's books have changed: carry out what it decides now, and wait for no crowd."""
        self._match()
        self._handover.flush()

    def _match(self) -> None:
        self._queue.leave_the_gone()
        while not self._closing and (found := self._programs.next()):
            self._place(*found)
        for session, why_not in self._programs.hopeless():
            self._queue.turn_out(session, Reason.NO_CAPACITY, why_not)
        while not self._closing and (decision := self._placer.next()):
            if isinstance(decision, Placement):
                self._place(holder(self.sessions, decision.session), decision)
            elif isinstance(decision, Impossible):
                self._reject(holder(self.sessions, decision.session), decision)
            else:
                self._orders.carry_out(decision)
        self._handover.send_welcomes()

    def _reject(self, session: Session, why: Impossible) -> None:
        """What it asks for, this machine does not have."""
        if session.file:
            self._orders.cannot_be_placed(session, why.reason)
            return
        guest = self._queue.leave(session)
        self._queue.forget(session)
        error = CudaError.OUT_OF_MEMORY if why.memory else None
        self.refusals.refuse(guest, Reason.NO_CAPACITY, why.reason, error)

    def _place(self, session: Session, placement: Placement) -> None:
        """An API server is idle for the session; if it has several devices, or a part of one by MPS, one is
        started for it.
        """
        tenant = session.hello.tenant
        if session.founds and not session.file and (why_not := self._programs.why_no_more(tenant, counted=1)):
            self._give_up(session, why_not)
            for device, server in placement.taken:
                self._placer.on_idle(device, server)
            return
        if not session.file and self._pool.percentage(session.hello.portion.limit):
            placement = placement.to_start()
        if not placement.devices:
            self._grant(session, placement)
        elif why_not := self._several.begin(session, placement):
            guest = self._queue.leave(session)
            if self._queue.forget(session):
                self._placer.on_complete(session.lease.number, time.monotonic())
            self.refusals.refuse(guest, Reason.NO_CAPACITY, why_not)

    def _grant(self, session: Session, placement: Placement) -> None:
        """The guest hears of it at once, for WELCOME is known here; its API server a little later."""
        if session.file:
            self._orders.place_suspended(session, placement)
            return
        guest = self._queue.leave(session)
        server = self._servers[placement.server]
        grace = self._config.resume_grace if session.hello.resumable else 0
        proof = guest.welcome_proof
        agreed = session.hello.agreement.welcome
        if session.hello.program_id:
            agreed += membership(session.lease.number, not session.founds)
        frame = welcome(server.welcome, proof, session.id, placement.quota, int(grace * 1000), agreed)
        if not session.welcome:
            self._handover.welcome(guest, frame)
        elif session.welcome != frame:
            self._break_word(session, placement)
            return
        session.welcome, session.placement, session.server = frame, placement, server
        session.enter_phase(Phase.GRANTED)
        server.serve(session.id)
        self._handover.grant(session)

    def _break_word(self, session: Session, placement: Placement) -> None:
        """The API server died that its WELCOME was about, and this one is not like it."""
        assert session.guest
        if self._queue.forget(session):
            self._placer.on_complete(session.lease.number, time.monotonic())
        server = self._servers[placement.server]
        if server.own:
            server.dismiss("its session was promised other terms")
        else:
            self._placer.on_idle(placement.device, placement.server)
        self.refusals.refuse(
            session.guest, Reason.NO_CAPACITY, "its API server died, and another has other terms"
        )

    # -- the pool's events

    def server_ready(self, server: ApiServer) -> None:
        """The API server is idle: whoever moves to its device, or waits, may get it."""
        if server.own:
            self._servers[server.key] = server
            if server.key in self._orders.expected:
                return
            if found := self._several.ready(server):
                self._grant(*found)
                self.dispatch()
            else:
                server.dismiss("its session does not wait any more")
            return
        self._know(server)
        self._placer.on_idle(server.device, server.key)
        self._orders.server_ready(server.device)
        log.info("server ready", server=server.pid, gpu=server.device, age=round(server.age, 3))
        self._announcer.tell(Event(Kind.SERVER_READY, device=server.device, server=server.pid))
        self.dispatch()

    def contexts_withheld(self, device: int, size: int) -> None:
        """So many bytes of the device are not to be granted. If it was more before, somebody may fit now."""
        self._placer.withhold(device, size)
        self.dispatch()

    def _know(self, server: ApiServer, device: int | None = None) -> None:
        """The first API server of a device says how much memory there is."""
        device = server.device if device is None else device
        assert server.ready
        self._servers[server.key] = server
        config = self._config
        grantable = max(server.ready.device_memory - config.reserved, 0)
        promised = self._steward.grantable(device, grantable)
        usual = config.memory or promised // config.pool // GRANULARITY * GRANULARITY
        labels = frozenset((f"gpu={device}", f"name={server.ready.device_name}"))
        if self._placer.add_device(
            device, promised, min(usual, grantable), labels, config.pool, largest=grantable
        ):
            self._placer.let_in_early(time.monotonic())
            self._announcer.tell(Event(Kind.DEVICE_BACK, device=device))

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        """Take over a session that an earlier monitor granted."""
        if not server.is_keeper:
            for device in server.devices:
                self._know(server, device)
        if session := self._adoption.adopt(server, returned):
            self._departures.watch_returned(session.id, server.handed_back)
            self.endings.adopted(session)

    def session_started(self, number: int) -> None:
        """The guest is the API server's alone from now on: its end must be the guest's end."""
        session = self.sessions.get(number)
        if session and session.phase is Phase.GRANTED and session.placement and session.server:
            session.enter_phase(Phase.RUNNING)
            if session.hello.restore:
                session.phase_began -= session.hello.restore.age
            if session.guest:
                self._departures.watch(number, session.guest.connection)
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
            self.endings.mind_limit(session)
            if session.lease.joining:
                self.dispatch()

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        """The session is over. Its memory is free when the API server is clean, else when it is gone."""
        session = self.sessions.get(ended.session)
        moved = ended.cause == node_pb2.CAUSE_MOVED and self.custody.let_go(server, ended.session)
        not_its_own = moved or self.custody.destination_of(ended.session) is server
        if session and session.server is server and (ended.clean or server.is_keeper) and not not_its_own:
            self.end(session, ended.reason)
        if ended.clean:
            self.custody.memory_released(server, ended.session)

    def shared(self, number: int) -> None:
        """The session claims its memory in its lease's book: other processes may join."""
        self._programs.shared(number)
        self.dispatch()

    def wanted(self, server: ApiServer, fetch: node_pb2.Fetch) -> None:
        """Ask another process of the program for what it has exported."""
        self._exchange.wanted(server, fetch)

    def exported(
        self, server: ApiServer, exported: node_pb2.Exported, descriptors: Sequence[HasFileno]
    ) -> None:
        """Pass it on to whoever asked."""
        self._exchange.exported(server, exported, descriptors)

    def moving(self, server: ApiServer, moving: migration_pb2.Moving) -> None:
        """Note how far a migration is."""
        self.custody.moving(server, moving)

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        """Note how a migration ended, by its source's word."""
        self.custody.moved(server, moved)

    def taken_over(self, server: ApiServer, number: int) -> None:
        """Note that the destination of a migration has the session now."""
        if session := self.sessions.get(number):
            session.restoring = False
        self.custody.taken_over(server, number)

    def tick(self, utilisation: Mapping[int, float]) -> int | None:
        """Tell the policy the time, and the share of time for which each device was busy (0 to 1).

        Returns the device on which the next launch may bring a migration, or None.
        """
        self._placer.on_tick(time.monotonic(), utilisation)
        self.dispatch()
        crowded = self._placer.imbalance()
        return crowded[0] if crowded else None

    def launched(self, number: int) -> None:
        """The session launched a kernel, which may be the moment for it to move. Who was not asked is not
        heard: it could have itself moved as often as it likes, and keep the policy busy.
        """
        session = self.sessions.get(number)
        if session is None or not session.watched:
            return
        session.watched = False
        self._placer.on_launch(session.lease.number, time.monotonic())
        self.dispatch()

    def server_dismissed(self, server: ApiServer) -> None:
        """Nobody is placed on it while it ends."""
        self._placer.on_server_lost(server.device, server.key)

    def server_lost(self, server: ApiServer) -> None:
        """End the API server's session. A guest that it never served goes back to the head of the queue."""
        self._servers.pop(server.key, None)
        self._handover.forget(server.key)
        self._placer.on_server_lost(server.device, server.key)
        self._announcer.tell(
            Event(Kind.SERVER_LOST, device=server.device, server=server.pid, reason=server.end_reason)
        )
        if unlucky := self._several.lost(server):
            self._again(unlucky)
        session = self.sessions.get(server.session)
        if session and session.server is server:
            if session.phase is Phase.GRANTED and not self._closing:
                session.enter_phase(Phase.WAITING)
                session.placement = session.server = None
                session.losses += 1
                if session.losses < LOSSES_MOST:
                    self._again(session)
                    self._match_new([session])
                else:  # it may be what ends them
                    self._give_up(session, f"{LOSSES_MOST} API servers ended before they served it")
            elif not self.custody.may_go_on(session, server):
                self.end(session, f"API server: {server.end_reason}")
        self.custody.server_lost(server)
        self.dispatch()

    def _again(self, session: Session) -> None:
        """Its API server is gone, and it was never served: it gets another one, before others."""
        if session.founds:
            self._placer.on_complete(session.id, time.monotonic())
            self._queue.enter(session, first=True)
        elif session.lease.members != [session.id]:
            self._programs.again(session)
        else:  # nobody is left of its program whose place it could share
            text = "its API server died, and the other processes of its program have ended"
            self._give_up(session, text)

    def _give_up(self, session: Session, text: str) -> None:
        guest = self._queue.leave(session)
        if self._queue.forget(session):
            self._placer.on_complete(session.lease.number, time.monotonic())
        self.refusals.refuse(guest, Reason.NO_CAPACITY, text)

    def device_lost(self, device: int, reason: str) -> None:
        """End the device's sessions, and place nothing there until an API server is ready there again."""
        if not self._placer.remove_device(device):
            self._placer.let_in_early(time.monotonic())
            self.dispatch()
            return
        self._announcer.tell(Event(Kind.DEVICE_LOST, device=device, reason=reason))
        self.custody.device_lost(device)
        for session in self.running():
            if session.server and device in session.server.devices:
                self.end_session(session, f"GPU {device} failed: {reason}")
        self.dispatch()

    def end(self, session: Session, reason: str) -> None:
        """The session is over, nobody has it any more: forget it, and give its memory back."""
        session.stop_timer()
        session.stop_minding()
        if session.guest:
            session.guest.connection.close()
        del self.sessions[session.id]
        self._departures.ended(session.id)
        self._exchange.ended(session.id)
        self.returning.ended(session)
        elsewhere = self.custody.session_ended(session, reason)
        seconds = round(time.monotonic() - session.phase_began, 3)
        log.info("session ended", session=session.id, reason=reason, seconds=seconds)
        device = session.placement.device if session.placement else -1
        self._announcer.tell(Event(Kind.ENDED, session.id, device, reason=reason))
        lease = session.lease.number
        if self._queue.leave_lease(session) and not elsewhere and any(self._placer.whereabouts(lease)):
            self._placer.on_complete(lease, time.monotonic())
        self._session_over.set()
        self.dispatch()

    # -- moving sessions

    def migrate(
        self, number: int, target: Target, strategy: Strategy, timeout: float, dry_run: bool = False
    ) -> Migration | None:
        """Begin the migration of the session with this number, as an operator wants it.

        `timeout` in seconds, 0: none. A dry run that finds nothing in the way returns None. Raises KeyError
        (no such session) or CannotMove (why not).
        """
        session = self.sessions.get(number)
        if session is None:
            raise KeyError(number)
        if self._closing:
            raise CannotMove("the monitor is shutting down")
        if session.file:
            raise CannotMove(f"session {number} is suspended: `gpuferry session resume {session.file}`")
        if dry_run:
            self._orders.check_can_move(session, target)
            return None
        return self._orders.begin(session, target, strategy, timeout)

    def move_away(self, number: int, device: int) -> str | None:
        """Begin to move a session whose memory finds no place where it is. Returns why it cannot be."""
        try:
            self.migrate(number, ToDevice(device), Strategy.STRATEGY_AUTO, 0.0)
        except KeyError:
            return "it is over"
        except CannotMove as error:
            return error.reason
        return None

    def rehome(self, number: int, device: int) -> None:
        """Move the session with this number, as who invokes its program wants it: to a device that it did not
        ask for, too. Raises KeyError or CannotMove.
        """
        if session := self.sessions.get(number):
            self._placer.rehome(session.lease.number, device)
        self.migrate(number, ToDevice(device), Strategy.STRATEGY_AUTO, 0.0)

    def resume_session(
        self, path: str, target: Target, timeout: float, allow_unencrypted: bool = False
    ) -> Migration:
        """Bring the session that is suspended in this file back to `target`.

        `timeout` in seconds, 0: none. `allow_unencrypted`: out of a file of release 0.1. Raises KeyError (no
        such file) or CannotMove (why not).
        """
        found = [session for session in self.sessions.values() if session.file == path]
        if not found:
            raise KeyError(path)
        if self._closing:
            raise CannotMove("the monitor is shutting down")
        return self._orders.begin(found[0], target, Strategy.STRATEGY_STOP, timeout, allow_unencrypted)

    def inspect_file(self, path: str) -> control_pb2.InspectFileReply:
        """Return whose session a snapshot holds. Raises SnapshotError, or CannotMove if there is no key."""
        reply = self._snapshots.inspect(path)
        reply.suspended = any(session.file == path for session in self.sessions.values())
        return reply

    def end_session(self, session: Session, reason: str) -> None:
        """Tell the session's guest why it ends. An API server that does not let go is ended."""
        self.endings.end(session, reason)

    def came_from_elsewhere(self, number: int) -> bool:
        """Whether another GPU server handed the session over to this one."""
        session = self.sessions.get(number)
        return session is not None and session.hello.restore is not None

    # -- the end, and looking in

    async def drain(self, grace: float) -> None:
        """Take no new sessions, and give running ones `grace` seconds before they are ended."""
        self._closing = True
        for session in self.waiting():
            self._queue.turn_out(session, Reason.SHUTTING_DOWN, "the monitor is shutting down")
        if not await self._sessions_over(grace):
            for session in self.running():
                self.end_session(session, "the GPU server is shutting down")
            await self._sessions_over(LAST_WORDS)
        await self.refusals.finish()

    async def _sessions_over(self, limit: float) -> bool:
        deadline = time.monotonic() + limit
        while self.sessions and (left := deadline - time.monotonic()) > 0:
            log.info("waiting for sessions", count=len(self.sessions), seconds=round(left, 1))
            self._session_over.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await within(left, self._session_over.wait())
        return not self.sessions

    def rooms(self) -> Iterable[DeviceRoom]:
        """What each known device has to give and has granted."""
        return self._placer.devices.values()

    def share(self, tenant: str) -> Share:
        """What a tenant's sessions may have together."""
        return self._tenancy.share(tenant)

    def standing(self, tenant: str) -> Standing:
        """What a tenant has here: waiting, sessions, memory."""
        return self._placer.standing(tenant)

    def obstacles(self) -> Mapping[int, str]:
        """Why they wait, by number: of a long queue only the first OBSTACLES_MOST (see Placer), and nothing
        of those who wait only for others to go first.
        """
        joining = {session.id: JOINS for session in self._programs.joining}
        return joining | self._several.reasons() | dict(self._placer.obstacles(OBSTACLES_MOST))

    def waiting(self) -> list[Session]:
        """Sessions that wait for an API server: those that share a program's lease, those for which it is
        being started, then the others as they stand in the queue.
        """
        queue = [holder(self.sessions, number) for number in self._placer.waiting()]
        return [*self._programs.joining, *self._several.sessions().values(), *queue]

    def running(self) -> list[Session]:
        """Sessions that have an API server, or a keeper."""
        return [session for session in self.sessions.values() if session.server]
