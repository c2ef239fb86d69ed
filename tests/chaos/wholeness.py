"""Whether anything is left of what was: processes, descriptors, device memory, files."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.cluster import REPLICAS
from tests.chaos.server import GpuServer
from tests.load.footprint import device_mappings


@dataclass(frozen=True)
class Holdings:
    """Of a GPU server at rest."""

    processes: int
    server_pids: frozenset[int]
    monitor: Counter[str]  # descriptors, by what they are
    servers: Counter[str]  # the most that any API server has
    device_mappings: int  # likewise
    device_memory: int  # bytes, as NVML counts them
    files: Counter[str]  # those of API servers by their folder

    def excess(self, fresh: Holdings) -> dict[str, Any]:
        """What is more than it was then."""
        found: dict[str, Any] = {
            name: (getattr(fresh, name), getattr(self, name))
            for name in ("processes", "device_mappings", "device_memory")
            if getattr(self, name) > getattr(fresh, name)
        }
        # For each API server that it did not start itself, and each replica that it ever asked.
        allowed = Counter({"anon_inode:[pidfd]": len(self.server_pids), "socket:[]": REPLICAS})
        if more := self.monitor - fresh.monitor - allowed:
            found["monitor"] = more
        if more := self.servers - fresh.servers:
            found["servers"] = more
        if self.files != fresh.files:
            found["files"] = {**(self.files - fresh.files), **(fresh.files - self.files)}
        return found


def holdings(server: GpuServer, status: Any) -> Holdings:
    pids = [one.pid for one in status.servers]
    most = Counter[str]()
    for pid in pids:
        most |= descriptors(pid)
    books = server.runtime / "leases"  # is made for the first book, and stays
    files = [path.relative_to(server.runtime) for path in server.runtime.rglob("*") if path != books]
    return Holdings(
        processes=len(server.processes()),
        server_pids=frozenset(pids),
        monitor=descriptors(server.pid),
        servers=most,
        device_mappings=max(map(device_mappings, pids)),
        device_memory=sum(device.memory_used for device in status.devices),
        files=Counter(map(kind, files)),
    )


def kind(file: Path) -> str:
    """Its name, or its folder: there each API server has as many as another."""
    return str(file.parent if file.parent.name else file)


def descriptors(pid: int) -> Counter[str]:
    """How many of each kind."""
    kinds = Counter[str]()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            kinds[re.sub(r"\d+", "", os.readlink(entry.path))] += 1
    return kinds
