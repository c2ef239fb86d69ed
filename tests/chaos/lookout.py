"""Sees whose memory leaves its device although nobody sent it away: others needed the room."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection

from gpuferry.specs._generated import control_pb2

from tests.chaos.server import GpuServer

LOOK_SECONDS = 0.05


class Lookout:
    """Watches guests that no porter touches."""

    def __init__(self, server: GpuServer, guests: Collection[int], over: threading.Event) -> None:
        self._server, self._guests, self._over = server, guests, over
        self.seen: Counter[str] = Counter()  # how often their memory was found somewhere else than before

    def work(self) -> None:
        """Look until it is over."""
        last = dict.fromkeys(self._guests, control_pb2.RESIDENCY_RESIDENT)
        while not self._over.wait(LOOK_SECONDS):
            status = self._server.status()
            for session in status.sessions if status else ():
                if session.guest_pid in last and session.residency != last[session.guest_pid]:
                    last[session.guest_pid] = session.residency
                    self.seen[control_pb2.Residency.Name(session.residency)] += 1

    @property
    def evictions(self) -> int:
        """How often one of them was found in host memory or on the disk."""
        return self.seen["RESIDENCY_HOST"] + self.seen["RESIDENCY_DISK"]
