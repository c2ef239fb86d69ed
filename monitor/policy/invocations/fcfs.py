"""First come, first served."""

from __future__ import annotations

from .flows import FlowPolicy
from .state import Flow


class Fcfs(FlowPolicy):
    """The invocation that waits longest goes first; functions at their limit of replicas are passed over."""

    TAKES_ALL = True

    def _rank(self, flow: Flow) -> tuple[float | str, ...]:
        return (self._turn[flow.head.id],)
