"""What the kernel says of processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PF_EXITING = 0x4  # of the kernel's flags of a process


def _figures(pid: int) -> list[bytes]:
    """What /proc/PID/stat says behind the name, which may be whatever bytes it likes. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def start_time(pid: int) -> int:
    """When the process began, in ticks since the machine did; 0 if it is gone. Raises OSError if nobody can
    look now: no descriptor is free, say.
    """
    try:
        return int(_figures(pid)[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def age_of(began: int) -> float:
    """Seconds since this `start_time`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")


def starved(pid: int) -> float:
    """Seconds for which the process's first thread could have run, and had no processor; 0.0 if nobody can
    tell.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def is_ending(pid: int) -> bool:
    """Whether it has begun to end, which is before its connections close, or is gone."""
    try:
        return bool(int(_figures(pid)[6]) & PF_EXITING)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:  # nobody can look now
        return False


def let_children_be_ordinary() -> None:
    """Let processes that are started from now on take turns like all others where this one has a real-time
    policy (`chrt`): control groups refuse such, and with it sessions would keep everybody from the
    processors.
    """
    policy = os.sched_getscheduler(0)
    if policy in (os.SCHED_FIFO, os.SCHED_RR):
        os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, os.sched_getparam(0))


def how_it_ended(status: int) -> str:
    """In words. `status`: of the process, negative for a signal."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # real-time signals between the first and the last
        return f"killed by signal {-status}"
