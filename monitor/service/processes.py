"""What the kernel says of processes."""

from __future__ import annotations

import signal
from pathlib import Path

PF_EXITING = 0x4  # of the kernel's flags of a process


def _figures(pid: int) -> list[bytes]:
    """What /proc/PID/stat says behind the name, which may be whatever bytes it likes. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def start_time(pid: int) -> int:
    """When the process began, in ticks since the machine did; 0 if it is gone."""
    try:
        return int(_figures(pid)[19])
    except (OSError, ValueError, IndexError):
        return 0


def is_ending(pid: int) -> bool:
    """Whether it has begun to end, which is before its connections close, or is gone."""
    try:
        return bool(int(_figures(pid)[6]) & PF_EXITING)
    except OSError:
        return True


def how_it_ended(status: int) -> str:
    """In words. `status`: of the process, negative for a signal."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # real-time signals between the first and the last
        return f"killed by signal {-status}"
