"""What the monitor orders and is told, around one session at a time."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuferry.migration.errors import ARRIVING
from gpuferry.native.tls.stream import with_state
from gpuferry.specs._generated import migration_pb2, node_pb2, wire

from . import orders
from ._core import Core, DeviceError
from .book import Book
from .control import POLL_MOST, Control
from .dispatcher import Dispatcher
from .end import LOST, End, revoked
from .ipc import Ipc
from .log import Log
from .orders import RESIDENCE, Unsound
from .process import rss
from .session import Session
from .stats import stats_of

if TYPE_CHECKING:
    from .confinement import Confinement

HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR
LOOK_SECONDS = 0.05  # between looks at a session whose end takes longer
LATE_SECONDS = 0.3  # behind its time, at which this thread must have stood still
STOP_SECONDS = 30.0  # for a migration; what it waits for has shorter limits


class Server:
    """One API server: a warm context, the monitor's orders, one session at a time."""

    def __init__(
        self,
        devices: Sequence[int],
        control_fd: int,
        confinement: Confinement | None = None,
        ordinals: Sequence[int] | None = None,
    ) -> None:
        """`devices`: as the monitor counts them; `ordinals`: as the driver does, if otherwise."""
        self._devices = devices
        self._ordinals = ordinals or devices
        self._confinement = confinement
        self._control = Control(control_fd, orders.SERVERS)
        self._log = Log(gpu=devices[0], pid=os.getpid())
        self._session: Session | None = None
        self._comeback: tuple[node_pb2.Resume, socket.socket, bytes] | None = (
            None  # until it is known who has the session
        )
        self._untold: Session | None = None  # over, and there was no monitor to be told
        self._at_home = True
        self._dispatcher = Dispatcher()
        self._poller = select.poll()

    def run(self) -> int:
        """Serve sessions until the monitor says otherwise. Returns the exit status."""
        try:
            self._core = Core(*self._ordinals)
        except DeviceError as error:
            self._log.error("start failed", reason=str(error))
            self._control.send(node_pb2.FromServer(failed=node_pb2.Failed(reason=str(error))))
            return 1
        self._ipc = Ipc(self._core, self._control)
        if self._confinement:
            self._confinement.seal()  # the driver has what it needs, and no guest has come
        self._poller.register(self._control, select.POLLIN)
        self._poller.register(self._dispatcher, select.POLLIN)
        self._poller.register(self._core.bell, select.POLLIN)
        self._ready()
        while True:
            patience = self._patience()
            due = math.inf if patience is None else time.monotonic() + patience / 1000
            found = self._poller.poll(patience)
            if self._session is not None and time.monotonic() > due + LATE_SECONDS:
                self._session.stood_still()
            # What the monitor says comes last: it may replace a connection whose end was just seen.
            for fd, events in sorted(found, key=lambda event: event[0] == self._control.fileno()):
                if fd == self._control.fileno():
                    # What was told to the monitor just now may have found it gone.
                    if self._control.lost_at is None and not self._obey():
                        return 0
                elif fd == self._dispatcher.fileno():
                    if not self._ended():
                        return 1
                elif fd == self._core.bell:
                    os.eventfd_read(fd)
                    if self._session is not None:
                        self._rung(self._session)
                elif (
                    self._session is not None
                    and self._session.mover is not None
                    and (fd == self._session.mover.fileno())
                ):
                    self._tell_moving(self._session)
                elif self._session is not None and fd == self._session.residing.fileno():
                    self._tell_residing(self._session)
                elif self._session is not None and events & HUNG_UP:
                    self._poller.unregister(fd)
                    self._session.hung_up()
            if self._overdue():
                return 1
            if self._control.lost_at is not None and not self._find_home():
                return 0
            if self._session is not None and self._session.deadline is None:
                self._session.look_for_output()
                self._session.enforce_limits()

    def _find_home(self) -> bool:
        """False: there is no monitor, and no session that would need us."""
        if self._at_home:
            self._at_home = False
            self._poller.unregister(self._control)
            self._poller.register(self._control.door, select.POLLIN)
            self._log.info("no monitor")
            self._core.give_up_imports()
            self._wish_again()
        returned = node_pb2.Returned(spec_hash=wire.SPEC_HASH, ready=self._description())
        told = self._session or self._untold
        if told is not None:
            returned.grant.CopyFrom(told.grant)
            returned.session_seconds = time.monotonic() - told.started
            returned.resides.CopyFrom(told.residing.describe())
            if (order := told.mover.order if told.mover is not None else told.left) is not None:
                returned.migrating.CopyFrom(order)
        if self._control.look_for_monitor(returned, self._beside_returned):
            self._at_home, self._untold = True, None
            self._poller.unregister(self._control.door)
            self._poller.register(self._control, select.POLLIN)
            self._log.info("found a new monitor")
            self._wish_again()
            return True
        return self._session is not None or not self._control.forsaken()

    def _beside_returned(self) -> list[int]:
        """What the next monitor is to have an eye on: copies' files, and whether the guest is there."""
        told = self._session or self._untold
        files = told.residing.files() if told is not None else []
        guest = [] if self._session is None else [os.dup(self._session.guest.fileno())]
        return [*files, *guest]

    def _ready(self) -> None:
        self._log.info("ready", rss=rss())
        self._control.send(node_pb2.FromServer(ready=self._description()))

    def _description(self) -> node_pb2.Ready:
        core = self._core
        base, size = core.window
        return node_pb2.Ready(
            pid=os.getpid(),
            seals=True,
            device=self._devices[0],
            devices=self._devices if len(self._devices) > 1 else (),
            device_uuid=core.device_uuid,
            device_name=core.device_name,
            device_memory=core.device_memory,
            window_base=base,
            window_size=size,
            driver_version=core.driver_version,
            simulated=core.simulated,
            welcome=core.welcome(bytes(32), 0, 0, 0),
        )

    def _patience(self) -> float | None:
        """Milliseconds until there is something to do that nobody announces."""
        waits = []
        if self._session is not None:
            deadline = self._session.deadline
            if deadline is not None and self._session.mover is not None:
                deadline += STOP_SECONDS
            left = self._session.look_again() if deadline is None else deadline - time.monotonic()
            if left < 0:  # it may take longer
                left = LOOK_SECONDS
            if self._session.away_until is not None:
                left = min(left, max(0.0, self._session.away_until - time.monotonic()))
            if left < math.inf:
                waits.append(left * 1000 + 1)
        if self._control.lost_at is not None and self._session is None:
            waits.append(self._control.patience * 1000 + 1)
        return min([*waits, POLL_MOST]) if waits else None

    def _obey(self) -> bool:
        """Does what the monitor says; False: leave."""
        try:
            message, descriptors = self._control.receive()
        except Unsound as error:
            self._log.error("ordered what cannot be", reason=str(error))
            os._exit(1)
        if message is None:
            return True
        if self._session is not None:
            self._session.residing.heard()
        kind = message.WhichOneof("message")
        if kind == "migrate":
            self._migrate(message.migrate, descriptors, message.tls)
            return True
        if kind == "fetched":
            self._ipc.fetched(message.fetched, descriptors)
            return True
        if kind == "share" and descriptors:
            self._share(message.share, Book(descriptors[0], message.share.seat))
            return True
        if kind == "turns":
            self._take_turns(*descriptors)
            return True
        if kind in RESIDENCE:
            self._reside(message, descriptors)
            return True
        book = None
        if kind == "grant" and len(descriptors) > 1:
            book = Book(descriptors.pop(), message.grant.seat)
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        beside = sockets[0] if sockets else None
        if kind == "grant":
            self._grant(message.grant, beside, message.tls, book)
            return True
        if kind == "home":
            self._control.settle(message.home, beside)
            return True
        if kind == "resume" and beside is not None:
            self._resume(message.resume, beside, message.tls)
            return True
        for each in sockets:
            each.close()
        if kind == "revoke" and self._session is not None and message.revoke.session == self._session.id:
            self._session.end(revoked(message.revoke.reason))
        elif kind == "cancel" and self._session is not None and message.cancel.session == self._session.id:
            if self._session.mover is not None:
                self._session.mover.cancel(message.cancel.reason)
        elif kind == "export":
            self._ipc.export(self._session, message.export)
        elif kind == "stats":
            self._control.send(node_pb2.FromServer(stats=stats_of(self._core, self._session)))
        elif kind == "next_launch":
            self._tell_next_launch(message.next_launch.session)
        elif kind == "shutdown":
            return self._shut_down(message.shutdown.grace_seconds)
        return True

    def _take_turns(self, arbiter: int, page: int) -> None:
        """From here on this session, and those after it, work only while they have a turn."""
        if not self._core.open_turns(arbiter, page):
            self._log.error("no turns", reason="the arbiter's page cannot be read")
            os.close(arbiter)
        os.close(page)

    def _reside(self, message: node_pb2.ToServer, descriptors: list[int]) -> None:
        """The monitor says where the session's memory is to be."""
        kind = message.WhichOneof("message")
        order = getattr(message, str(kind))
        session = self._session
        if session is None or session.id != order.session or session.deadline is not None:
            for each in descriptors:
                os.close(each)
            over = node_pb2.Resides(session=order.session, number=order.number, reason="the session is over")
            self._control.send(node_pb2.FromServer(resides=over))
        elif kind == "leave":
            moves = session.mover is not None or not session.ours
            session.residing.leave(order, descriptors, "it is being moved" if moves else "")
        elif kind == "come_back":
            session.residing.come_back(order)
        elif kind == "allow":
            session.residing.allow(order)
        elif kind == "demote":
            session.residing.demote(order, *descriptors)
        else:
            session.residing.forget(order)

    def _tell_residing(self, session: Session) -> None:
        for message in session.residing.messages():
            self._control.send(message)

    def _tell_wish(self, session: Session) -> None:
        """The session waits for its memory, or for room. Where there is no monitor, the driver alone knows
        whether there is any.
        """
        if (wish := session.residing.wish()) is None:
            return
        if self._control.lost_at is None:
            self._control.send(node_pb2.FromServer(room_wanted=wish))
        elif wish.away:
            session.residing.come_back(node_pb2.ComeBack(session=session.id, allowance=wish.bytes))
        else:
            session.residing.limit(wish.bytes)

    def _wish_again(self) -> None:
        """Whoever was told what the session waits for is gone."""
        if self._session is not None:
            self._session.residing.wish_again()
            self._tell_wish(self._session)

    def _share(self, share: node_pb2.Share, book: Book) -> None:
        if self._session is not None and self._session.id == share.session and self._session.ours:
            self._session.share(book)
        else:
            book.close()
        self._control.send(node_pb2.FromServer(shared=node_pb2.Shared(session=share.session)))

    def _grant(
        self, grant: node_pb2.Grant, guest: socket.socket | None, tls: bytes, book: Book | None
    ) -> None:
        if guest is None or self._session is not None:
            self._log.error(
                "grant refused", session=grant.session, reason="no socket" if guest is None else "busy"
            )
            os._exit(1)  # monitor and server disagree on who holds what
        started = (
            time.monotonic() - grant.age_seconds
        )  # no later than for the monitor, or the next one would say less than it
        self._control.send(
            node_pb2.FromServer(started=node_pb2.SessionStarted(session=grant.session))
        )  # before WELCOME: until then the monitor may still give the guest to another server
        self._session = Session(self._core, grant, guest, self._log, started, tls, book)
        self._poller.register(self._session.residing, select.POLLIN)
        self._dispatcher.serve(self._session)
        self._poller.register(guest, select.POLLRDHUP)

    def _migrate(self, order: migration_pb2.Migrate, descriptors: list[int], tls: bytes) -> None:
        from .moving import Mover  # an API server that moves nothing need not hold it in memory

        session = self._session
        refusal = ""
        if session is None or session.id != order.session or session.deadline is not None:
            refusal = "the session is over"
        elif session.mover is not None:
            refusal = "it is being moved already"
        elif session.grant.restore:
            refusal = "it is just arriving"
        elif self._core.arriving:
            refusal = ARRIVING
        elif session.away_until is not None:
            refusal = "its program has lost its connection, and may come back"
        if session is None or refusal:
            for each in descriptors:
                os.close(each)
            moved = migration_pb2.Moved(session=order.session, reason=refusal)
            self._control.send(node_pb2.FromServer(moved=moved))
            return
        age = time.monotonic() - session.started
        mover = Mover(
            self._core,
            session.grant,
            age,
            session.guest,
            order,
            descriptors,
            tls,
            self._log,
            session.residing,
        )
        session.mover = mover
        self._poller.register(session.mover, select.POLLIN)
        session.mover.start()

    def _tell_moving(self, session: Session) -> None:
        """Passes on what the mover says; whatever waited for its end comes after it."""
        assert session.mover is not None
        over = False
        for message in session.mover.messages():
            self._control.send(message)
            over = message.WhichOneof("message") == "moved"
        if not over:
            return
        left = session.mover.left
        self._poller.unregister(session.mover)
        session.moving_over()
        self._tell_wish(session)
        if self._comeback is not None:
            (resume, guest, tls), self._comeback = self._comeback, None
            if left:
                guest.close()  # it asks again, and is led to where the session is
            else:
                self._resume(resume, guest, tls)

    def _rung(self, session: Session) -> None:
        """The engine has something to say."""
        if self._tell_taken_over(session):
            self._poller.register(session.guest, select.POLLRDHUP)  # it is another one now
        self._ipc.ask(session)
        self._tell_wish(session)
        session.launched()
        if session.watched:
            session.watched = False
            self._control.send(node_pb2.FromServer(launched=node_pb2.Launched(session=session.id)))

    def _tell_taken_over(self, session: Session) -> bool:
        """Once, and before anything else is said of a session that was restored here."""
        if not session.taken_over():
            return False
        self._control.send(node_pb2.FromServer(taken_over=migration_pb2.TakenOver(session=session.id)))
        return True

    def _tell_next_launch(self, number: int) -> None:
        """The monitor waits for a moment at which the session is at work."""
        if self._session is not None and self._session.id == number:
            self._session.watched = True
            self._core.rest()

    def _resume(self, resume: node_pb2.Resume, guest: socket.socket, tls: bytes) -> None:
        """Takes the guest's new connection, now or when it is known who has the session."""
        session = self._session
        if session is not None and session.id == resume.session and session.mover is not None:
            session.mover.cancel("its program lost its connection and came back with another")
            if self._comeback is not None:
                self._comeback[1].close()
            self._comeback = resume, guest, tls
            return
        if session is None or session.id != resume.session or not session.ours:
            pass  # the monitor is about to hear where it is, or that it is here: the guest asks again
        elif session.resume(guest, resume, tls):
            self._poller.register(session.guest, select.POLLRDHUP)
        else:
            with contextlib.suppress(OSError):
                with_state(guest, tls).send(self._core.no_session(), socket.MSG_DONTWAIT)
        guest.close()

    def _ended(self) -> bool:
        """Reports the end of the session; False: this process is not fit for another."""
        session = self._session
        assert session is not None
        self._dispatcher.over()
        self._tell_taken_over(session)
        if session.mover is not None:
            self._tell_moving(session)
        with contextlib.suppress(KeyError):  # it hung up first
            self._poller.unregister(session.guest)
        self._tell_residing(session)
        self._poller.unregister(session.residing)
        session.close()
        assert session.ended
        self._report(session, session.ended, session.clean)
        self._session = None
        self._untold = session if self._control.lost_at is not None else None
        if session.clean:
            self._ready()
        return session.clean

    def _overdue(self) -> bool:
        """Ends the process under a session that will not end: a kernel runs on, or the driver hangs."""
        session = self._session
        if session is not None and session.away_until is not None and time.monotonic() > session.away_until:
            session.does_not_come_back()
        if session is None or session.deadline is None or time.monotonic() < session.deadline:
            return False
        if session.mover is not None and time.monotonic() < session.deadline + STOP_SECONDS:
            return False  # it is being stopped
        if session.may_take_longer():
            return False
        end = session.ended or LOST
        if end.cause == node_pb2.CAUSE_MOVED:  # it goes on elsewhere: what is left here ends with the process
            self._log.info("session left more than is cleared in time", session=session.id)
        else:
            self._log.error("session does not end", session=session.id, reason=end.reason)
        self._report(session, end, clean=False)
        return True

    def _report(self, session: Session, end: End, clean: bool) -> None:
        stats = stats_of(self._core, self._session)
        ended = node_pb2.SessionEnded(
            session=session.id, reason=end.reason, cause=end.cause, clean=clean, stats=stats
        )
        self._control.send(node_pb2.FromServer(ended=ended))

    def _shut_down(self, grace: float) -> bool:
        if self._session is None:
            return False
        self._session.end(revoked("the server shuts down"))
        self._session.deadline = time.monotonic() + max(grace, 0.0)
        return True
