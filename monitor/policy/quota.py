"""How long a turn may last (policies.md 3.2): always the same, or as long as a session's bursts are."""

from __future__ import annotations

from collections import deque
from typing import Protocol

MERGED = 2 * 10**6  # nanoseconds: bursts closer to each other than that are one
REMEMBERED = 3 * 10**9  # for which a burst counts


class Quota(Protocol):
    """How many nanoseconds a turn may last."""

    def of(self, session: int, most: int, now: int) -> int:
        """For the turn that begins now; `most`: what its limit is of a window."""

    def asked(self, session: int, now: int) -> None:
        """Hear that a session asks for a turn."""

    def worked(self, session: int, begin: int, end: int) -> None:
        """Hear that a session has worked from `begin` to `end`."""

    def rested(self, session: int, now: int) -> None:
        """Hear that a session's turn is over."""

    def forget(self, session: int) -> None:
        """Forget a session that is gone."""


class Fixed:
    """A quota that is the same for all sessions whose limits allow as much."""

    def __init__(self, quota: int) -> None:
        self._quota = quota

    def of(self, session: int, most: int, now: int) -> int:
        return max(1, min(self._quota, most))

    def asked(self, session: int, now: int) -> None:
        pass

    def worked(self, session: int, begin: int, end: int) -> None:
        pass

    def rested(self, session: int, now: int) -> None:
        pass

    def forget(self, session: int) -> None:
        pass


class Bursts:
    """What one session has done at a stretch lately."""

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self.begun = 0  # nanoseconds of the burst that may still go on
        self.rested: int | None = None  # since when it has no turn
        self.cut = False  # it asked again at once: it had more to do
        self.past: deque[tuple[int, int]] = deque()  # (end, nanoseconds)


class Adaptive:
    """Half of the last quota and half of the longest burst of late, between a least and the limit's share of
    the window. A burst that was cut off says no more than that it is longer, so it counts twice.
    """

    def __init__(self, base: int, least: int, most: int | None = None) -> None:
        """`base`: while no burst is known. `most`: of any turn; None: the limit alone bounds it."""
        self._base, self._least, self._most = base, least, most
        self._sessions: dict[int, Bursts] = {}

    def of(self, session: int, most: int, now: int) -> int:
        bursts = self._bursts(session)
        while bursts.past and bursts.past[0][0] < now - REMEMBERED:
            bursts.past.popleft()
        if not bursts.past:
            bursts.quota = self._base
        else:
            longest = max(length for _, length in bursts.past)
            bursts.quota = (longest * (2 if bursts.cut else 1) + bursts.quota) // 2
        most = min(most, self._most or most)
        bursts.quota = max(min(self._least, most), min(bursts.quota, most))
        return bursts.quota

    def asked(self, session: int, now: int) -> None:
        bursts = self._bursts(session)
        bursts.cut = bursts.rested is not None and now - bursts.rested < MERGED

    def worked(self, session: int, begin: int, end: int) -> None:
        self._bursts(session).begun += end - begin

    def rested(self, session: int, now: int) -> None:
        bursts = self._bursts(session)
        bursts.past.append((now, bursts.begun))
        bursts.begun, bursts.rested = 0, now

    def forget(self, session: int) -> None:
        self._sessions.pop(session, None)

    def _bursts(self, session: int) -> Bursts:
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = Bursts(self._base)
        return found
