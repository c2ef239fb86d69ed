"""Who leaves a device, so that somebody else's memory fits. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

CONTENDED_SECONDS = 0.05  # after which those that work must make room, too, when nobody is idle
LEAST_STAY = 0.1  # seconds that one which works keeps its memory, however fast it comes and goes


class Candidate(NamedTuple):
    """A session on the device, as the policy sees it."""

    session: int
    size: int  # bytes that the device has more when it leaves
    idle: float  # seconds without work; 0: it works
    here: float = math.inf  # seconds since it came back; inf: it was never away
    round_trip: float = 0.0  # seconds that it took to leave and to return, when it last did
    stays: bool = False  # it cannot leave

    def may_leave(self, waited: float) -> bool:
        """Whether it may go to let somebody in who has waited for so many seconds. Who works stays, unless
        all work; who has just come back stays as long as that took.
        """
        if self.stays or not self.size or self.here < self.round_trip:
            return False
        if self.idle > 0:
            return True
        return waited >= CONTENDED_SECONDS and self.here >= max(LEAST_STAY, self.round_trip)


def leavers(candidates: Iterable[Candidate], needed: int, waited: float) -> list[Candidate]:
    """Who goes, so that the device has so many bytes more; empty: those that may go do not have as many.

    The one that was used longest ago goes first; of those that work, the one that has been here longest.
    """
    able = sorted(
        (one for one in candidates if one.may_leave(waited)),
        key=lambda one: (-one.idle, -one.here, one.session),
    )
    chosen: list[Candidate] = []
    for one in able:
        if needed <= 0:
            break
        chosen.append(one)
        needed -= one.size
    if needed > 0:
        return []
    for one in chosen[:-1]:  # what the later ones give may be enough without it
        if needed + one.size <= 0:
            chosen.remove(one)
            needed += one.size
    return chosen
