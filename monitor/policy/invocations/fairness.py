"""Virtual time: how much service each had, and a clock that is the least of those that wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from .ranking import Ranking

K = TypeVar("K")


class VirtualTime(Generic[K]):
    """Start-time fair queueing. Who begins to compete starts no earlier than the clock: idleness earns
    nothing.
    """

    def __init__(self) -> None:
        self._time: dict[K, float] = {}
        self._competing: Ranking[K] = Ranking()
        self.clock = 0.0  # never goes back

    def lead(self, key: K) -> float:
        """By how much it is ahead of the clock."""
        return self._time.get(key, 0.0) - self.clock

    def ahead(self, keys: Iterable[K], bound: float) -> list[K]:
        """The keys whose virtual time is more than `bound` ahead of the clock."""
        time, clock = self._time, self.clock
        return [key for key in keys if time[key] - clock > bound]

    def compete(self, key: K) -> None:
        """Note that a flow waits for service."""
        if key not in self._competing:
            self._time[key] = max(self._time.get(key, 0.0), self.clock)
            self._competing.set(key, self._time[key])
            self._advance()

    def leave(self, key: K) -> None:
        """Note that a flow waits no longer; the service that it had is not forgotten."""
        self._competing.discard(key)
        self._advance()

    def forget(self, key: K) -> None:
        """Forget a flow, whose function is gone."""
        self.leave(key)
        self._time.pop(key, None)

    def charge(self, key: K, service: float) -> None:
        """Add service, divided by its weight, to a flow; negative if too much was charged before."""
        self._time[key] = self._time.get(key, 0.0) + service
        if key in self._competing:
            self._competing.set(key, self._time[key])
            self._advance()

    def first(self) -> K | None:
        """The competing key that has had the least service, or None."""
        return self._competing.first()

    def least(self, number: int) -> list[K]:
        """The `number` competing keys that have had the least service, in order."""
        return self._competing.least(number)

    def _advance(self) -> None:
        first = self._competing.first()
        if first is not None:
            self.clock = max(self.clock, self._time[first])
