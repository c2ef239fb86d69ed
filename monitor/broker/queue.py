"""Sessions that have no API server yet: they enter the queue, wait in it, and leave it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence

import structlog

from ..door.guests import Guest, address_of
from ..door.handshake import Reason
from ..service.rates import Sparing
from ..sessions.events import Announcer, Event, Kind
from ..sessions.placement import Placer
from ..sessions.session import Phase, Session, holder
from ..tenants.tenancy import Tenancy
from .admission import Admission
from .programs import Programs
from .refusals import Refusals
from .several import Several
from .waiting import WaitingRoom

GRANULARITY = 2 << 20

log = structlog.get_logger()


class Queue:
    """Who waits, and until when. Whose turn it is, is the policy's affair.

    `max_wait` in seconds. `stays_suspended` is called with a suspended session that is not resumed, and why
    not; `entered` with sessions that are in the queue anew; `changed` when others may have their turn
    earlier.
    """

    def __init__(
        self,
        max_wait: float,
        sessions: dict[int, Session],
        placer: Placer,
        tenancy: Tenancy,
        admission: Admission,
        programs: Programs,
        several: Several,
        stays_suspended: Callable[[Session, str], None],
        refusals: Refusals,
        announcer: Announcer,
        entered: Callable[[Iterable[Session]], None],
        changed: Callable[[], None],
    ) -> None:
        self._sessions = sessions
        self._placer = placer
        self._tenancy = tenancy
        self._admission = admission
        self._programs = programs
        self._several = several
        self._stays_suspended = stays_suspended
        self._refusals = refusals
        self._announcer = announcer
        self._entered = entered
        self._changed = changed
        self._notes = Sparing(log.info)  # of what a guest may do all the time
        self._waiting = WaitingRoom(placer, sessions, max_wait, self._give_up, self._spoke)

    # -- in

    def enter(self, session: Session, first: bool = False) -> None:
        """The session waits for a lease from now on; `first`: before all others."""
        hello = session.hello
        memory = hello.memory
        most = self._tenancy.limits(hello.tenant).memory
        if not memory and most is not None and most < math.inf:
            usual = min((room.default_quota for room in self._placer.devices.values()), default=0)
            each = most / hello.devices
            memory = int(min(each, usual or each)) // GRANULARITY * GRANULARITY or GRANULARITY
        self._placer.arrive(
            session.id,
            memory,
            session.labels,
            session.phase_began,
            first=first,
            function=hello.function,
            tenant=hello.tenant,
            devices=hello.devices,
            portion=hello.portion,
        )

    def let_wait(self, session: Session) -> None:
        """The session found no room at once: its guest is told its place, or that too many wait already."""
        if not session.founds or self._several.is_starting(session):  # its API server is on the way
            if not session.timer:
                self._waiting.enter(session, told=False)
            return
        why_not = self._admission.why_not_wait(session.hello.tenant)
        if why_not and not session.welcome:  # else it was promised a session already
            self.turn_out(session, Reason.NO_CAPACITY, why_not)
            return
        if displaced := self._admission.displaced():
            self.turn_out(holder(self._sessions, displaced[0]), Reason.NO_CAPACITY, displaced[1])
        if session.phase is Phase.WAITING and session.id in self._sessions:
            self._waiting.enter(session)
            self._announcer.tell(Event(Kind.QUEUED, session.id))

    # -- out

    def leave(self, session: Session) -> Guest:
        """The session has its API server, or will have none. Returns its guest."""
        return self._waiting.leave(session)

    def turn_out(self, session: Session, reason: Reason, text: str) -> None:
        """A waiting session has to go: it is a guest's, or it is suspended and stays so."""
        if session.file:
            self._stays_suspended(session, text)
        else:
            self._refusals.refuse(self.withdraw(session), reason, text)

    def withdraw(self, session: Session) -> Guest:
        """The session does not wait any more, and is forgotten. Returns its guest."""
        guest = self._waiting.leave(session)
        placed = self._several.withdraw(session)
        if not placed:
            self._placer.on_leave(session.id)
        if self.forget(session) and (placed or not session.founds):
            self._placer.on_complete(session.lease.number, time.monotonic())
        self._announcer.tell(Event(Kind.LEFT, session.id))
        self._changed()
        return guest

    def forget(self, session: Session) -> bool:
        """The session is over before it began. Whether its lease is over, too."""
        del self._sessions[session.id]
        return self.leave_lease(session)

    def leave_lease(self, session: Session) -> bool:
        """The session is over. Whether its lease is; if somebody was joining that, there is another."""
        over, orphans = self._programs.leave(session)
        self._enter_anew(orphans)
        return over

    def leave_the_gone(self) -> None:
        """Those that were about to join a program that has gone to another GPU server have another lease."""
        self._enter_anew(self._programs.left_behind())

    def _enter_anew(self, orphans: Sequence[Session]) -> None:
        for orphan in orphans:
            self._waiting.leave(orphan)
            if not self._programs.enter(orphan):
                self.enter(orphan)
        if orphans:
            asyncio.get_running_loop().call_soon(self._entered, orphans)

    def _give_up(self, session: Session) -> None:
        """It has waited as long as it may."""
        waited = self._waiting.patience(session)
        if self._several.is_starting(session):
            text = f"no API server for {session.hello.devices} GPUs was ready within {waited:g} s"
        elif not session.founds:
            text = f"no API server for one more process of the program within {waited:g} s"
        else:
            place, _ = self._waiting.place(session)
            text = f"no API server became free within {waited:g} s (place {place} in the queue)"
            if obstacle := self._placer.obstacle(session.id):
                text += f": {obstacle}"
            text += self._admission.why_waiting(session.hello)
        self._refusals.refuse(self.withdraw(session), Reason.NO_CAPACITY, text)

    def _spoke(self, session: Session) -> None:
        """A waiting guest may only hang up."""
        assert session.guest
        try:
            data = session.guest.connection.recv(1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        guest = self.withdraw(session)
        if data:
            self._refusals.refuse(guest, Reason.MALFORMED, "bytes between HELLO and WELCOME")
        else:
            key = address_of(session.peer)
            self._notes.say("left the queue", key, session=session.id, program=session.hello.program)
            guest.connection.close()
