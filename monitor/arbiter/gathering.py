"""How long a session of several GPUs keeps the turns that it has while it waits for others. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

UNLIMITED = 100_000_000  # nanoseconds: as if that were the quota of a turn without one
YIELDS = 3  # so often a session gives up what it has before it may keep it


@dataclass
class Gatherer:
    """A session that asked for the turns of several GPUs, and does not work yet."""

    patience: int = 0  # nanoseconds
    until: int | None = None  # when its patience ends; None: it has nothing, or may keep what it has
    yielded: int = 0


class Gathering:
    """Sessions that gather turns, by the key of their API servers.

    Whoever keeps a turn without working for longer than somebody else's turn would take gives it up if others
    wait. One that did so several times is the `elder` and keeps what it gets: all others give way to it, so
    it comes to work.
    """

    def __init__(self) -> None:
        self._gatherers: dict[int, Gatherer] = {}
        self._elder = 0

    def holds(self, key: int, quota: int | None, now: int) -> None:
        """Note that a session has a turn, and lacks another one."""
        gatherer = self._gatherers.setdefault(key, Gatherer())
        if gatherer.until is None and key != self._elder:
            gatherer.patience = 3 * (quota or UNLIMITED) // 2
            gatherer.until = now + gatherer.patience

    def is_over(self, key: int) -> None:
        """Note that a session works, or wants no turn any more."""
        self._gatherers.pop(key, None)
        if self._elder == key:
            self._elder = 0

    def due(self, now: int) -> int | None:
        """Somebody whose patience has ended."""
        found = (key for key, one in self._gatherers.items() if one.until is not None and one.until <= now)
        return next(found, None)

    def deadline(self) -> int | None:
        """When somebody's patience ends; None: nobody's."""
        return min((one.until for one in self._gatherers.values() if one.until is not None), default=None)

    def yields(self, key: int, wanted: bool, now: int) -> bool:
        """Whether one whose patience has ended gives up what it has; `wanted`: others wait for that."""
        gatherer = self._gatherers[key]
        if not wanted:
            gatherer.until = now + gatherer.patience
            return False
        gatherer.until = None
        if gatherer.yielded >= YIELDS and not self._elder:
            self._elder = key
            return False
        gatherer.yielded += 1
        return True
