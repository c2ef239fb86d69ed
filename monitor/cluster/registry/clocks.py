"""What the clocks of GPU servers show, by which tickets for them expire."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from gpuferry.specs._generated import registry_pb2


def clock_of(load: registry_pb2.Load) -> float:
    """What its clock showed when the server said this, in seconds."""
    return float(load.clock) / 1000


class Clocks:
    """What each server's clock shows, as its newest heartbeat said it, and as time has passed since that was
    seen: as much as it does, or less by how long the heartbeat was on its way. A registry that has just
    started may see one that is as old as heartbeats are apart. `steady`: seconds of a clock that nobody sets.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._seen: dict[tuple[bytes, int], float] = {}  # by the heartbeat

    def note(self, servers: Iterable[registry_pb2.Server]) -> None:
        """See the servers' newest heartbeats; those of before are forgotten."""
        now = self._steady()
        beats = [_beat(server.load) for server in servers if server.alive]
        self._seen = {beat: self._seen.get(beat, now) for beat in beats}

    def of(self, server: registry_pb2.Server) -> float:
        """What the server's clock shows now, in seconds."""
        load, now = server.load, self._steady()
        return clock_of(load) + now - self._seen.get(_beat(load), now)


def _beat(load: registry_pb2.Load) -> tuple[bytes, int]:
    return load.incarnation, load.sequence
