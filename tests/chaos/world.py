"""Everything that can break, how programs reach it, and what must be true of it when nothing is broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuferry.monitor.pool.returns import FOLDER

from tests.chaos.cluster import Clerk, Cluster, cluster
from tests.chaos.server import GpuServer
from tests.chaos.stage import RECONNECT, Play, Resident, Way, perform
from tests.chaos.wholeness import Holdings, holdings
from tests.helpers.ports import lasting_ports
from tests.helpers.proxy import Proxy
from tests.monitor import harness

FILES = 2  # of each API server in the monitor's folder: its socket and its record

DEVICES, POOL = 2, 3
# Leases for twice what a device holds, and turns. Three residents do not fit on a device, two do; copies of
# all that are elsewhere fit in host memory and on the disk together, not in one of them.
SHARED = ("--oversubscribe", "2", "--sharing", "time", "--away-memory", "128MiB", "--disk", "256MiB")
MEMORY = "256MiB"


@dataclass(frozen=True)
class World:
    """A GPU server behind a proxy, in a cluster."""

    server: GpuServer
    proxy: Proxy
    registries: Cluster

    @property
    def ways(self) -> list[Way]:
        """By which programs come."""
        registries = [replica.address for replica in self.registries.replicas]
        return [
            Way("tcp", self.proxy.address),
            Way("tcp, reconnecting", self.proxy.address, RECONNECT),
            Way("unix", self.server.unix),
            *(Way(f"registry {number}", address) for number, address in enumerate(registries)),
            Way("registry, reconnecting", registries[0], RECONNECT),
        ]

    def holdings(self, seed: int) -> Holdings:
        """At rest, when each API server has served: what it keeps after its first session it may keep."""
        self.server.wait_whole()
        with ExitStack() as stack:
            guests = [stack.enter_context(Resident(self.ways[0], seed)) for _ in range(self.server.pool)]
            for guest in guests:
                guest.work()
                guest.finish()

        def without_those_that_ended() -> Holdings | None:
            found = holdings(self.server, self.server.wait_whole())
            whole = 1 + FILES * len(found.server_pids)  # with the folder itself
            return found if found.files[FOLDER] == whole else None

        found: Holdings = harness.wait_until(without_those_that_ended, "no files of API servers that ended")
        return found

    def check_rest(self, fresh: Holdings) -> None:
        """Nothing is allocated, or left over."""
        status = self.server.wait_whole()
        assert not status.sessions
        assert not status.queue
        assert all(device.memory_granted == 0 for device in status.devices)
        # What ended may still be about to be gone.
        last: list[object] = []

        def as_before() -> bool:
            last[:] = [holdings(self.server, self.server.wait_whole()).excess(fresh)]
            return not last[0]

        try:
            harness.wait_until(as_before, "all that was held is released")
        except AssertionError:
            raise AssertionError(f"before and after: {last[0]}") from None

    def check_registries(self, clerk: Clerk) -> None:
        """Each knows all that was ever acknowledged, and nothing else."""
        for replica in self.registries.replicas:
            replica.wait_for(self.proxy.address, alive=True)
            known = {address: s.registration.drained for address, s in replica.servers().items()}
            assert known == clerk.registered

    def check_ways(self, play: Play) -> None:
        """Whichever way a program comes now, it is served."""
        verdicts = {way.name: perform(play, way, []) for way in self.ways}
        assert set(verdicts.values()) == {"right"}, verdicts

    def logs(self) -> list[Path]:
        return [self.server.log, *self.registries.logs()]


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Nothing of it is left afterwards."""
    with ExitStack() as stack:
        registries = stack.enter_context(cluster(folder))
        # Guests that come by way of a registry are sent through the proxy too.
        (port,) = stack.enter_context(lasting_ports(1))
        joined = (*registries.join, "--advertise", f"127.0.0.1:{port}")
        server = stack.enter_context(GpuServer(DEVICES, POOL, *SHARED, *joined, memory=MEMORY))
        proxy = stack.enter_context(Proxy(server.tcp, port=port))
        yield World(server, proxy, registries)
