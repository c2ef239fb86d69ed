"""How long a process may take for something, by its own time: on a machine with too much to do it waits for
processors, and would wait no less after it was ended and begun anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .processes import starved

MOST = 12  # times the limit, whatever it waits for
HEARD_SECONDS = 0.2  # in which what an API server has said is heard, before it is ended


class Patience:
    """A limit of `seconds` for this process, without the time for which it waited for a processor."""

    def __init__(
        self,
        pid: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        starved: Callable[[int], float] = starved,
    ) -> None:
        self._pid, self._limit, self._clock, self._starved = pid, seconds, clock, starved
        self._began, self._before = clock(), starved(pid)

    def passed(self) -> float:
        """Seconds of wall time since this limit began."""
        return self._clock() - self._began

    def starved(self) -> float:
        """Seconds of wall time since then in which the process waited for a processor."""
        return max(0.0, self._starved(self._pid) - self._before)

    def left(self) -> float:
        """Seconds until it may be late; 0 or less: it is. Nothing is asked of the kernel before the limit has
        passed, and nearly nothing takes that long.
        """
        passed = self.passed()
        starved = self.starved() if passed >= self._limit else 0.0
        return min(self._limit + starved, MOST * self._limit) - passed
