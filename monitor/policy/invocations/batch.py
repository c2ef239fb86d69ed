"""Batches: all that waits of one function goes at once."""

from __future__ import annotations

import sys

from .flows import FlowPolicy
from .interface import Invocation
from .state import Flow, Running


class Batch(FlowPolicy):
    """The function of the invocation that waits longest runs all that waits of it then, before any other."""

    def __init__(self, *, tokens: int = 1, pool: int = sys.maxsize, evict: str = "send") -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        self._batches: dict[Flow, set[int]] = {}  # what is left of those that were begun

    def _rank(self, flow: Flow) -> tuple[float | str, ...]:
        return (flow not in self._batches, self._turn[flow.head.id])

    def _started(self, running: Running) -> None:
        flow = running.flow
        if flow not in self._batches:
            self._batches[flow] = set(flow.waiting)
        self._leave_batch(flow, running.invocation)
        super()._started(running)

    def _withdrawn(self, flow: Flow, invocation: Invocation) -> None:
        if flow in self._batches:
            self._leave_batch(flow, invocation)
        super()._withdrawn(flow, invocation)

    def _leave_batch(self, flow: Flow, invocation: Invocation) -> None:
        batch = self._batches[flow]
        batch.discard(invocation.id)
        if not batch:
            del self._batches[flow]
