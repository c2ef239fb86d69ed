"""What a monitor and everything below it hold of this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.processes import descendants

# Threads of a monitor that begin when more work for them comes at once than before, and stay.
POOLED = min(32, (os.cpu_count() or 1) + 4)


@dataclass(frozen=True)
class Footprint:
    """At one moment."""

    monitor: int
    processes: frozenset[int]
    descriptors: dict[int, int]
    threads: dict[int, int]
    device_mappings: dict[int, int]
    memory: int  # bytes that nobody else shares

    def growth(self, earlier: Footprint) -> dict[str, tuple[object, object]]:
        """What is more than it was, memory aside: before and after. Who is not needed may have ended."""
        found: dict[str, tuple[object, object]] = {}
        if self.processes - earlier.processes:
            found["processes"] = (earlier.processes, self.processes)
        for name in ("descriptors", "threads", "device_mappings"):
            before, after = getattr(earlier, name), getattr(self, name)
            spare = {self.monitor: POOLED} if name == "threads" else {}
            if any(count > before.get(pid, 0) + spare.get(pid, 0) for pid, count in after.items()):
                found[name] = (before, after)
        return found


def footprint(monitor: int) -> Footprint:
    """Of the monitor with this process id."""
    processes = frozenset(descendants(monitor))
    return Footprint(
        monitor=monitor,
        processes=processes,
        descriptors={pid: _count(pid, "fd") for pid in processes},
        threads={pid: _count(pid, "task") for pid in processes},
        device_mappings={pid: device_mappings(pid) for pid in processes},
        memory=sum(private(pid) for pid in processes),
    )


def device_mappings(pid: int) -> int:
    """Ranges of the simulated device's memory that the process has mapped."""
    return _read(pid, "maps").count("memfd:")


def private(pid: int) -> int:
    """Bytes of memory that only this process uses."""
    return _field(pid, "Private_Dirty")


def proportional(pid: int) -> int:
    """Bytes of memory that this process uses, its part of what is shared."""
    return _field(pid, "Pss")


def processor_seconds(pid: int) -> float:
    """Spent by the threads that the process has now."""
    tasks = os.listdir(f"/proc/{pid}/task")
    return sum(int(_read(pid, f"task/{task}/schedstat").split()[0]) for task in tasks) / 1e9


def naps(pid: int) -> int:
    """How often a thread of the process went to sleep: one that sleeps on goes no more."""
    statuses = (_read(pid, f"task/{task}/status") for task in os.listdir(f"/proc/{pid}/task"))
    return sum(int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for status in statuses)


def _field(pid: int, name: str) -> int:
    lines = dict(line.split(":", 1) for line in _read(pid, "smaps_rollup").splitlines()[1:])
    return int(lines[name].split()[0]) << 10


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def _count(pid: int, name: str) -> int:
    return len(os.listdir(f"/proc/{pid}/{name}"))
