"""The policy of turns that shares a GPU's time as settings say."""

from __future__ import annotations

from collections.abc import Callable

from .quota import Adaptive, Fixed, Quota
from .sharing import SECOND, Sharing
from .timeshare import Compat, TimeSharing
from .tokens import RoundRobin, Turns

GEMINI_BASE, GEMINI_LEAST = 3 * SECOND // 10, SECOND // 50  # as KubeShare starts Gemini's scheduler
LONGEST = 20  # a turn lasts such a part of the window at most, however long bursts are


def build_turns(sharing: Sharing, now: int) -> Turns:
    """The policy of one GPU whose time is shared so, from `now` on. Raises KeyError: nobody takes turns."""
    return _MADE[sharing.kind](sharing, now)


def _time(sharing: Sharing, now: int) -> Turns:
    compat = Compat(absolute=sharing.deficit == "absolute", newcomers=sharing.gemini)
    return TimeSharing(sharing.window, _quota(sharing), now, compat)


def _quota(sharing: Sharing) -> Quota:
    if sharing.rule == "fixed":
        return Fixed(sharing.quota)
    least = min(GEMINI_LEAST, sharing.window // LONGEST)
    return Adaptive(GEMINI_BASE, least, None if sharing.gemini else sharing.window // LONGEST)


def _turns(sharing: Sharing, now: int) -> Turns:
    return RoundRobin(sharing.window, sharing.quota or None, now)


_MADE: dict[str, Callable[[Sharing, int], Turns]] = {"time": _time, "turns": _turns}
