"""What the kernel says of processes."""

from __future__ import annotations

import signal
from pathlib import Path


def start_time(pid: int) -> int:
    """When the process began, in ticks since the machine did; 0 if it is gone."""
    try:  # its name stands before, in whatever bytes it likes
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def how_it_ended(status: int) -> str:
    """In words. `status`: of the process, negative for a signal."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # real-time signals between the first and the last
        return f"killed by signal {-status}"
