"""Who may work on a GPU now (design D19): what a policy of turns is told, what it answers, and the plainest.

A policy of turns belongs to one GPU. Whoever runs it (`../arbiter`, the simulator) has D tokens, asks `next`
when one is free, and tells what comes of it. Times are nanoseconds of whoever tells them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .window import Window

THOUSAND = 1000


class Client(NamedTuple):
    """A session that may ask for turns."""

    session: int
    request: int = 0  # thousandths of the GPU's time that it shall have if it wants them; 0: none said
    limit: int = 0  # thousandths that it may have at most; 0: none said
    function: str = ""  # what is invoked, where that is known
    owner: str = ""  # whose next session goes on with what this one has had; "": nobody's


class Turn(NamedTuple):
    """This session may work, for so long (nanoseconds); None: until it has nothing left to do."""

    session: int
    quota: int | None


class Rest(NamedTuple):
    """Sessions wait, but none may work before this moment."""

    until: int


Answer = Turn | Rest | None


class Turns(Protocol):
    """Events change its books alone; `next` decides, and enters its decision at once."""

    def join(self, client: Client, now: int) -> None:
        """A session is on this GPU, or what it may have has changed."""

    def leave(self, session: int, now: int) -> None:
        """Remove a session: it waits no longer, and has no turn."""

    def on_arrival(self, session: int, now: int) -> None:
        """Note that a session without a turn, which was not waiting, wants one."""

    def on_withdraw(self, session: int, now: int) -> None:
        """Note that a waiting session wants no turn any more."""

    def on_use(self, session: int, begin: int, end: int) -> None:
        """Note that a session used the GPU in this interval, in its turn or after. Told in order."""

    def on_complete(self, session: int, now: int) -> None:
        """Note that a session's turn is over, and its token free."""

    def next(self, now: int) -> Answer:
        """Return the session that gets the free token; None if nobody waits."""

    def take(self, session: int, now: int) -> Turn | None:
        """This one gets the token that is free; None: it does not wait, or may not have it now."""

    def peek(self, now: int) -> int | None:
        """Return the session that would be next, as things are; nothing changes."""

    def renew(self, session: int, now: int) -> Turn | None:
        """The quota of its turn is used up: another one, if it would be next anyway; None: it has to stop."""

    def used(self, session: int, now: int) -> int:
        """Nanoseconds that it has had of the window."""

    def span(self, now: int) -> int:
        """Nanoseconds of which `used` is a part: the window, or what has passed of the first one."""

    def waiting(self) -> int:
        """How many wait."""


class RoundRobin:
    """First come, first served: with a quota they take turns, without one each works until it is done."""

    def __init__(self, window: int, quota: int | None, now: int) -> None:
        """`quota`: nanoseconds; None: there is none. `now`: when it begins."""
        self._window, self._quota, self._began = window, quota, now
        self._used: dict[int, Window] = {}
        self._queue: dict[int, None] = {}  # in the order in which they asked

    def join(self, client: Client, now: int) -> None:
        self._used.setdefault(client.session, Window(self._window))

    def leave(self, session: int, now: int) -> None:
        self._queue.pop(session, None)
        self._used.pop(session, None)

    def on_arrival(self, session: int, now: int) -> None:
        self._queue[session] = None

    def on_withdraw(self, session: int, now: int) -> None:
        self._queue.pop(session, None)

    def on_use(self, session: int, begin: int, end: int) -> None:
        if session in self._used:
            self._used[session].add(begin, end)

    def on_complete(self, session: int, now: int) -> None:
        pass

    def next(self, now: int) -> Answer:
        if not self._queue:
            return None
        session = next(iter(self._queue))
        del self._queue[session]
        return Turn(session, self._quota)

    def take(self, session: int, now: int) -> Turn | None:
        if session not in self._queue:
            return None
        del self._queue[session]
        return Turn(session, self._quota)

    def peek(self, now: int) -> int | None:
        return next(iter(self._queue), None)

    def renew(self, session: int, now: int) -> Turn | None:
        return None if self._queue else Turn(session, self._quota)

    def used(self, session: int, now: int) -> int:
        return self._used[session].used(now)

    def span(self, now: int) -> int:
        return max(1, min(self._window, now - self._began))

    def waiting(self) -> int:
        return len(self._queue)
