"""Guests that wait for an API server: they are told their place, may hang up, and do not wait for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping

from ..door.guests import Guest
from ..door.handshake import queued
from ..sessions.placement import Placer
from ..sessions.session import Session, holder

LOOK_SECONDS = 1.0  # between looks at who moved up
TELL_ANYWAY = 30  # looks after which a waiting guest is told that it still waits


class WaitingRoom:
    """The guests of the queue. Who is next is the policy's affair; here is what the others see of it."""

    def __init__(
        self,
        placer: Placer,
        sessions: Mapping[int, Session],
        max_wait: float,
        give_up: Callable[[Session], None],
        spoke: Callable[[Session], None],
    ) -> None:
        self._placer = placer
        self._sessions = sessions
        self._max_wait = max_wait
        self._give_up = give_up  # it has waited as long as it may
        self._spoke = spoke  # it said something, or hung up
        self._looking: asyncio.TimerHandle | None = None
        self._places: dict[int, tuple[int, int]] = {}  # by session, of this moment; empty: not looked at

    def enter(self, session: Session, told: bool = True) -> None:
        """The session begins to wait. A guest that has WELCOME already may speak, and expects no QUEUED; nor
        does one without a place in the queue, which is not `told`.
        """
        assert session.guest
        loop = asyncio.get_running_loop()
        session.timer = loop.call_later(self.patience(session), self._give_up, session)
        if session.welcome:
            return
        session.guest.connection.setblocking(False)
        loop.add_reader(session.guest.connection, self._spoke, session)
        if not told:
            return
        session.told_place = (0, 0)
        if self._looking is None:
            self._look()
        else:
            length = self._placer.standing(session.hello.tenant).waiting
            self._tell_place(session, length, length)

    def leave(self, session: Session) -> Guest:
        """The session does not wait any more, if it did at all. Returns its guest."""
        assert session.guest
        if session.timer:  # it had to wait
            session.stop_timer()
            asyncio.get_running_loop().remove_reader(session.guest.connection)
        return session.guest

    def patience(self, session: Session) -> float:
        """Seconds that the session may wait: the shorter of what its guest and what the operator allows."""
        return min(self._max_wait, session.hello.max_wait or self._max_wait)

    def place(self, session: Session) -> tuple[int, int]:
        """The session's place among those of its tenant, and how many those are: of others it learns
        nothing.
        """
        if session.id not in self._places:  # a crowd that came at once leaves at once: one look does for all
            asyncio.get_running_loop().call_soon(self._places.clear)
            for line in self._lines():
                self._places |= {one.id: (place, len(line)) for place, one in enumerate(line, 1)}
        return self._places[session.id]

    def _lines(self) -> list[list[Session]]:
        """Those of each tenant, in the order in which they stand in the queue."""
        lines: defaultdict[str, list[Session]] = defaultdict(list)
        for session in self._all():
            lines[session.hello.tenant].append(session)
        return list(lines.values())

    def _all(self) -> list[Session]:
        """In the order in which they stand in the queue."""
        return [holder(self._sessions, number) for number in self._placer.waiting()]

    def _look(self) -> None:
        lines = self._lines()
        for line in lines:
            for place, session in enumerate(line, 1):
                self._tell_place(session, place, len(line))
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(LOOK_SECONDS, self._look) if lines else None

    def _tell_place(self, session: Session, place: int, length: int) -> None:
        before, looks = session.told_place
        if session.guest is None or session.welcome or (before == place and looks < TELL_ANYWAY):
            session.told_place = before, looks + 1
            return
        session.told_place = place, 0
        with contextlib.suppress(OSError):  # one that hung up is noticed where it is read
            session.guest.connection.send(queued(place, length))
