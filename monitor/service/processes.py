"""What the kernel says of processes."""

from __future__ import annotations

from pathlib import Path


def start_time(pid: int) -> int:
    """When the process began, in ticks since the machine did; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
