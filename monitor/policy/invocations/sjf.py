"""Paella's shortest job first: the shortest mean, unless somebody was left out for too long."""

from __future__ import annotations

import sys

from .flows import FlowPolicy
from .ranking import Ranking
from .state import Flow

DEFICIT = 25.0


class Paella(FlowPolicy):
    """Shortest mean time first, except that a function whose deficit reached `deficit` goes before.

    With n functions, each turn takes 1 − 1/n from the deficit of who has it and gives 1/n to all others
    (policies.md §5.1). Of a function that never ran the mean is 0, unless it was declared.
    """

    def __init__(
        self,
        *,
        deficit: float = DEFICIT,
        tokens: int = 1,
        pool: int = sys.maxsize,
        evict: str = "send",
    ) -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        if deficit < 0:
            raise ValueError("deficit is not negative")
        self._limit = deficit
        self._given = 0.0  # what every function was given so far
        self._taken: dict[Flow, float] = {}  # a deficit is what was given less this
        self._owed: Ranking[Flow] = Ranking()

    def _rank(self, flow: Flow) -> tuple[float | str, ...]:
        return (flow.run.or_else(0.0), self._turn[flow.head.id])

    def deficit(self, function: str) -> float:
        """How many turns the function is behind an equal share."""
        return self._given - self._taken[self._flows[function]]

    def _changed(self, flow: Flow) -> None:
        self._taken.setdefault(flow, self._given)
        super()._changed(flow)

    def _forgotten(self, flow: Flow) -> None:
        del self._taken[flow]
        self._owed.discard(flow)
        super()._forgotten(flow)

    def _stand(self, flow: Flow) -> None:
        super()._stand(flow)
        if flow in self._line:
            self._owed.set(flow, self._taken[flow], self._turn[flow.head.id])
        else:
            self._owed.discard(flow)

    def _first(self) -> Flow | None:
        owed = self._owed.first()
        if owed and self._given - self._taken[owed] >= self._limit:
            flow: Flow | None = owed
        else:
            flow = self._line.first()
        return flow

    def _choose(self) -> bool:
        flow = self._first()
        if not super()._choose():
            return False
        assert flow is not None
        self._given += 1.0 / len(self._taken)
        self._taken[flow] += 1.0
        self._stand(flow)
        return True
