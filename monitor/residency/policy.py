"""Who leaves a device, so that somebody else's memory fits. No I/O, no clock."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import NamedTuple

CONTENDED_SECONDS = 0.05  # after which those that work must make room, too, when nobody is idle
LEAST_STAY = 0.1  # seconds that one which works keeps its memory, however fast it comes and goes


class Turn(enum.Enum):
    """What a session has of the GPU's time, where turns are taken (monitor/arbiter)."""

    NONE = 0
    WAITS = 1
    HAS = 2


class Candidate(NamedTuple):
    """A session on the device, as the policy sees it."""

    session: int
    size: int  # bytes that the device has more when it leaves
    idle: float  # seconds without work; 0: it works
    here: float = math.inf  # seconds since it came back; inf: it was never away
    round_trip: float = 0.0  # seconds that it took to leave and to return, when it last did
    stays: bool = False  # it cannot leave
    turn: Turn = Turn.NONE
    since_turn: float = math.inf  # seconds since its last turn ended

    @property
    def due(self) -> bool:
        """It came back for a turn that it waits for still."""
        return self.turn is Turn.WAITS and self.since_turn >= self.here

    def may_leave(self, waited: float, ahead: bool = False) -> bool:
        """Whether it may go to let somebody in who has waited for so many seconds. Who works stays, unless
        all work; who has just come back stays as long as that took. Who has had its turn may go at once,
        because the turn was as long as what it cost to bring it. `ahead`: for somebody who has no turn yet;
        nobody who has one goes for that.
        """
        if self.stays or not self.size:
            return False
        if self.turn is Turn.WAITS and not self.due:
            return True
        if self.here < self.round_trip or (ahead and self.turn is Turn.HAS):
            return False
        if self.idle > 0:
            return True
        return waited >= CONTENDED_SECONDS and self.here >= max(LEAST_STAY, self.round_trip)


def leavers(
    candidates: Iterable[Candidate], needed: int, waited: float, ahead: bool = False
) -> list[Candidate]:
    """Who goes, so that the device has so many bytes more; empty: those that may go do not have as many.

    The one that was used longest ago goes first. Then those that wait for their turns, and of them the one
    that had its own last, for its next one is farthest away. Of those that work, the one that has been here
    longest.
    """
    able = sorted((one for one in candidates if one.may_leave(waited, ahead)), key=_order)
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


def _order(one: Candidate) -> tuple[int, float, float, int]:
    if one.idle > 0:
        return 0, -one.idle, -one.here, one.session
    if one.turn is Turn.WAITS and not one.due:
        return 1, one.since_turn, -one.here, one.session
    return 2, 0.0, -one.here, one.session
