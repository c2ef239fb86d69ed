"""What a jail costs: time to a ready API server, and memory."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time

from tests.helpers.monitor import Monitor, monitor

from .rows import Row, cost

STARTS = 9  # of each kind; the quickest counts, because what disturbs only ever adds


def rows() -> list[Row]:
    """Rows of an API server in a jail, beside one without."""
    (jailed, jailed_memory), (free, free_memory) = _measured("on"), _measured("off")
    return [
        cost("jail_ready", jailed * 1e3, free * 1e3, "ms"),
        cost("jail_memory", jailed_memory / 2**20, free_memory / 2**20, "MiB"),
    ]


def _measured(jail: str) -> tuple[float, float]:
    """Seconds from start to ready, and bytes of an idle API server with what its jail adds."""
    memory = []
    with monitor("--pool", "1", "--jail", jail) as server:
        for number in range(1, STARTS + 1):
            ages = _ages(server, number)
            (pid,) = [one["pid"] for one in server.status()["servers"] if one["state"] == "idle"]
            memory.append(
                sum(_proportional(each) for each in (pid, _parent(pid)) if each != server.process.pid)
            )
            os.kill(pid, signal.SIGKILL)
    return min(ages), statistics.median(memory)


def _ages(server: Monitor, number: int) -> list[float]:
    """Wait until so many API servers are ready. Returns the age of each when it became so, in seconds."""
    while True:
        events = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
        ages = [event["age"] for event in events if event["event"] == "server ready"]
        if len(ages) >= number:
            return ages
        time.sleep(0.01)


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def _proportional(pid: int) -> int:
    """Bytes of memory, shared pages by their share."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        (line,) = [line for line in rollup if line.startswith("Pss:")]
    return int(line.split()[1]) << 10
