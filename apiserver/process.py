"""What this process takes of the machine."""

from __future__ import annotations

import os


def rss() -> int:
    """Resident memory of this process, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
