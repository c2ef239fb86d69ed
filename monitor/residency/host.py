"""How much of this machine's memory is to be had, as the kernel and our control groups say."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from ..jail.cgroups import memory_groups
from ..service.rates import Sparing

RECENT_SECONDS = 0.02  # in which no copy takes more than a small part of the reserve
RESERVE = 1 << 30  # bytes that stay free for everybody else, or where there is little:
RESERVED_PART = 8  # this part of what there is

log = structlog.get_logger()

# The limit of a group, what it has, and what of that is only remembered from files: version 2, version 1.
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.high", "memory.current", "inactive_file"),  # beyond which all of the group is slowed down
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available(root: Path = Path("/sys/fs/cgroup"), machine: Path = Path("/proc/meminfo")) -> int:
    """Return how many bytes may be taken, so that a reserve is left, and nobody is ended for want of it."""
    figures = {name.rstrip(":"): int(size) << 10 for name, size, *_ in _lines(machine)}
    whole, left = figures["MemTotal"], figures["MemAvailable"]
    for limit, free in _groups(root):
        whole, left = min(whole, limit), min(left, free)
    return max(left - min(RESERVE, whole // RESERVED_PART), 0)


class Recent:
    """The same, as it was a moment ago at most: to look takes half a millisecond, and it is asked again and
    again where somebody waits for room. What was found last holds where nobody can look.
    """

    def __init__(
        self, look: Callable[[], int] = available, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._clock = look, clock
        self._found, self._until = 0, 0.0
        self._complaints = Sparing(log.warning)

    def __call__(self) -> int:
        """Return how many bytes may be taken."""
        if self._clock() >= self._until:
            try:
                self._found = self._look()
            except OSError as error:  # no descriptor is free, say
                self._complaints.say("nobody knows how much host memory is free", "host", error=str(error))
            self._until = self._clock() + RECENT_SECONDS
        return self._found


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit, and what is left of it, of each group that has one."""
    for folder in memory_groups(root):
        for limit, used, remembered in _FILES:
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                most = int((folder / limit).read_text())
                figures = {name: int(size) for name, size in _lines(folder / "memory.stat")}
                yield most, most - int((folder / used).read_text()) + figures.get(remembered, 0)


def _lines(file: Path) -> Iterator[list[str]]:
    return (line.split() for line in file.read_text().splitlines())
