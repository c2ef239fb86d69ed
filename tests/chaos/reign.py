"""Carries out the score. What is broken for a while is whole again in its time, and all is in the end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.chaos.cluster import Cluster
from tests.chaos.score import Deed, score
from tests.chaos.server import GpuServer
from tests.chaos.stage import Part
from tests.helpers.proxy import Proxy

# The most that each may last, in seconds.
PAUSE, STALL, MONITOR_AWAY, REPLICA_AWAY, MEMBER_AWAY = 0.6, 1.0, 0.5, 3.0, 5.0
Victim = TypeVar("Victim")


@dataclass(frozen=True)
class Repair:
    """Of what is broken."""

    due: float
    what: str
    do: Callable[[], None]


class Reign:
    """One deed after another; of each kind of thing at most one is broken at any time."""

    def __init__(
        self,
        server: GpuServer,
        proxy: Proxy,
        cluster: Cluster,
        parts: list[Part],
        spared: set[int],
        over: threading.Event,
        log: list[str],
    ) -> None:
        self._server, self._proxy, self._cluster = server, proxy, cluster
        self._parts = parts
        self._spared = spared  # API servers that are not killed
        self._over = over
        self._log = log
        self._broken: dict[str, Repair] = {}
        self._began = time.monotonic()

    def last(self, seed: int, seconds: float) -> None:
        """So long, or until it is over."""
        self._began = time.monotonic()
        try:
            for deed in score(seed):
                if not self._wait(deed.pause) or time.monotonic() > self._began + seconds:
                    return
                self.note(f"{deed.name}: {getattr(self, deed.name)(deed)}")
        finally:
            while self._broken:
                self._repair(next(iter(self._broken)))

    def alone(self, deed: Deed) -> None:
        """Does it, and makes whole again what it broke."""
        self.note(f"{deed.name}: {getattr(self, deed.name)(deed)}")
        while self._broken:
            self._repair(next(iter(self._broken)))

    def note(self, text: str) -> None:
        """For whoever reads what happened."""
        self._log.append(f"{time.monotonic() - self._began:8.3f} {text}")

    def _wait(self, seconds: float) -> bool:
        """False: it is over. Repairs what is due meanwhile."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            for kind in [kind for kind, repair in self._broken.items() if repair.due <= now]:
                self._repair(kind)
            until = min([end, *(repair.due for repair in self._broken.values())])
            if self._over.wait(max(0.0, until - time.monotonic())):
                return False
        return not self._over.is_set()

    def _break(self, kind: str, what: str, seconds: float, repair: Callable[[], None]) -> str:
        self._broken[kind] = Repair(time.monotonic() + seconds, what, repair)
        return f"{what} for {seconds:.3f} s"

    def _repair(self, kind: str) -> None:
        repair = self._broken.pop(kind)
        repair.do()
        self.note(f"end of: {repair.what}")

    # -- deeds: each says what it did

    def kill_a_guest(self, deed: Deed) -> str:
        part = _one(list(self._parts), deed)
        if not part:
            return "none runs"
        part.killed = True
        part.process.kill()
        return f"{part.play.name} {part.process.pid}"

    def stop_a_guest(self, deed: Deed) -> str:
        part = _one(list(self._parts), deed)
        return self._stop("guest", part.process.pid if part else None, deed, PAUSE)

    def kill_an_api_server(self, deed: Deed) -> str:
        pid = _one([pid for pid in self._server.api_servers() if pid not in self._spared], deed)
        if pid:
            _signal(pid, signal.SIGKILL)
        return str(pid)

    def stop_an_api_server(self, deed: Deed) -> str:
        return self._stop("API server", _one(self._server.api_servers(), deed), deed, PAUSE)

    def kill_an_arbiter(self, deed: Deed) -> str:
        pid = _one(self._server.arbiters(), deed)
        if pid:
            _signal(pid, signal.SIGKILL)
        return str(pid)

    def stop_an_arbiter(self, deed: Deed) -> str:
        return self._stop("arbiter", _one(self._server.arbiters(), deed), deed, PAUSE)

    def cut_a_connection(self, deed: Deed) -> str:
        self._proxy.cut_one(random.Random(deed.which))
        return "one"

    def stall_all_connections(self, deed: Deed) -> str:
        if "connections" in self._broken:
            return "stalled already"
        self._proxy.stall()
        return self._break("connections", "stalled", deed.length * STALL, self._proxy.resume)

    def kill_the_monitor(self, deed: Deed) -> str:
        if "monitor" in self._broken:
            return "broken already"
        self._server.kill()
        return self._break("monitor", "no monitor", deed.length * MONITOR_AWAY, self._server.start)

    def stop_the_monitor(self, deed: Deed) -> str:
        return self._stop("monitor", self._server.pid, deed, PAUSE)

    def kill_a_registry(self, deed: Deed) -> str:
        if "registry" in self._broken:
            return "broken already"
        number = int(deed.which * len(self._cluster.replicas))
        replica = self._cluster.replicas[number]
        replica.kill()
        seconds = deed.length * REPLICA_AWAY
        return self._break("registry", f"no registry {number}", seconds, replica.start)

    def stop_a_registry(self, deed: Deed) -> str:
        replica = _one(self._cluster.replicas, deed)
        return self._stop("registry", replica.process.pid if replica else None, deed, REPLICA_AWAY)

    def kill_an_etcd_member(self, deed: Deed) -> str:
        if "etcd" in self._broken:
            return "broken already"
        number = int(deed.which * len(self._cluster.store.members))
        member = self._cluster.store.members[number]
        leads = member.leads()
        member.kill()
        what = f"no etcd member {number}{' (the leader)' if leads else ''}"
        return self._break("etcd", what, deed.length * MEMBER_AWAY, member.start)

    def stop_an_etcd_member(self, deed: Deed) -> str:
        member = _one(self._cluster.store.members, deed)
        return self._stop("etcd", member.process.pid if member else None, deed, MEMBER_AWAY)

    def _stop(self, kind: str, pid: int | None, deed: Deed, most: float) -> str:
        """It is alive, and does nothing."""
        if pid is None or kind in self._broken:
            return "none runs" if pid is None else "broken already"
        _signal(pid, signal.SIGSTOP)
        seconds = deed.length * most
        return self._break(kind, f"{kind} {pid} stopped", seconds, lambda: _signal(pid, signal.SIGCONT))


def _one(victims: Sequence[Victim], deed: Deed) -> Victim | None:
    return victims[int(deed.which * len(victims))] if victims else None


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
        os.kill(pid, number)
