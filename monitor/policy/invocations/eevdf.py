"""Earliest eligible virtual deadline first."""

from __future__ import annotations

import sys

from .flows import FlowPolicy
from .interface import Invocation
from .ranking import Ranking
from .state import Flow, Running

UNKNOWN = 1.0  # seconds that an invocation is supposed to take of which nothing is known


class Eevdf(FlowPolicy):
    """Functions get service in proportion to their weights; short invocations come sooner, not more often.

    Virtual time advances by the service begun over the weights of all that are busy. A function is eligible
    when its own virtual time is not ahead of it; of those, who has the earliest virtual deadline, own time
    plus τ/weight, runs. Where nobody is eligible time goes on to the first who will be. What an invocation
    really took is charged when it ends.
    """

    def __init__(self, *, tokens: int = 1, pool: int = sys.maxsize, evict: str = "send") -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        self._time = 0.0
        self._at: dict[Flow, float] = {}  # each one's own virtual time
        self._early: Ranking[Flow] = Ranking()  # who waits to become eligible
        self._busy: dict[Flow, float] = {}  # weights of those that wait or run
        self._weights = 0.0  # their sum
        self._charged: dict[int, float] = {}

    def _slice(self, flow: Flow) -> float:
        return flow.run.or_else(UNKNOWN)

    def _rank(self, flow: Flow) -> tuple[float | str, ...]:
        deadline = self._at[flow] + self._slice(flow) / flow.function.weight
        return (deadline, self._turn[flow.head.id])

    def _stand(self, flow: Flow) -> None:
        self._count(flow)
        if not flow.waiting or flow.limited:
            self._line.discard(flow)
            self._early.discard(flow)
        elif self._at[flow] <= self._time:
            self._early.discard(flow)
            self._line.set(flow, *self._rank(flow))
        else:
            self._line.discard(flow)
            self._early.set(flow, self._at[flow], self._turn[flow.head.id])

    def _count(self, flow: Flow) -> None:
        self._weights -= self._busy.pop(flow, 0.0)
        if flow.waiting or flow.in_flight:
            self._busy[flow] = flow.function.weight
            self._weights += flow.function.weight

    def _first(self) -> Flow | None:
        while early := self._early.first():
            if self._at[early] > self._time:
                if self._line.first():
                    break
                self._time = self._at[early]
            self._stand(early)
        return self._line.first()

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        if len(flow.waiting) == 1:
            self._at[flow] = max(self._at.get(flow, 0.0), self._time)
        super()._arrived(flow, invocation)

    def _started(self, running: Running) -> None:
        flow = running.flow
        charge = self._charged[running.invocation.id] = self._slice(flow)
        self._at[flow] += charge / flow.function.weight
        self._time += charge / (self._weights or flow.function.weight)
        super()._started(running)

    def _ended(self, running: Running, seconds: float | None) -> None:
        flow = running.flow
        charged = self._charged.pop(running.invocation.id)
        if seconds is not None and flow in self._at:
            self._at[flow] += (seconds - charged) / flow.function.weight
        super()._ended(running, seconds)

    def _forgotten(self, flow: Flow) -> None:
        self._at.pop(flow, None)
        self._early.discard(flow)
        self._count(flow)
        super()._forgotten(flow)
