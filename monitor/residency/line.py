"""Those that wait for room on one device, in order, and who may pass whom. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..policy.queues import OVERTAKERS


@dataclass
class Wish:
    """What a session waits for: so many bytes on each of its devices."""

    bytes: int
    away: bool
    since: float
    ahead: bool = False  # it has no turn yet: others come first, and nobody who has one leaves for it
    spared: Collection[int] = ()  # sessions that do not leave for it


class Line(dict[int, Wish]):
    """Wishes by key of the API server, the oldest first. Who cannot have its room now is passed by those that
    can, but by no more than OVERTAKERS calls that want more than their sessions have. Sessions that want back
    what they had are not bound by that: there are never more of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moved_at = -math.inf  # when there was last more room, or somebody had what it wished for
        self.stuck: dict[int, float] = {}  # those that can have nothing, by key: since when
        self._passed: dict[int, int] = {}  # by how many calls, by key

    def first(self, able: Callable[[int, Wish], bool]) -> int | None:
        """Whose turn it is, of those that can have what they wish for; None: nobody's."""
        held_back, ahead = self.held_back(), None
        for key, wish in self.items():
            if key in held_back or (wish.ahead and ahead is not None) or not able(key, wish):
                continue
            if not wish.ahead:
                return key
            ahead = key
        return ahead

    def held_back(self) -> set[int]:
        """Calls that would pass somebody who was passed often enough."""
        found, bound = set(), False
        for key, wish in self.items():
            if bound and not wish.away:
                found.add(key)
            bound = bound or self._passed.get(key, 0) >= OVERTAKERS
        return found

    def grant(self, key: int, moment: float) -> None:
        """It has what it wished for, and waits no more."""
        if not self[key].away:
            for other in self.before(key):
                self._passed[other] = self._passed.get(other, 0) + 1
        self.moved_at = moment
        self.drop(key)

    def before(self, key: int) -> list[int]:
        """Those that came earlier, but for those that have no turn yet."""
        keys = list(self)
        return [other for other in keys[: keys.index(key)] if not self[other].ahead]

    def drop(self, key: int) -> None:
        """It wishes for nothing any more."""
        self.pop(key, None)
        self.stuck.pop(key, None)
        self._passed.pop(key, None)
