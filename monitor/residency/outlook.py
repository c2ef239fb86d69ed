"""What somebody who comes would find of a device's memory, and what an exchange of sessions needs. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from .books import Entry
from .policy import Candidate


class Outlook(NamedTuple):
    """Bytes of one device's memory."""

    memory: int  # that sessions may have of it at once
    resident: int  # of them, what sessions have, or may have at any moment
    idle: int  # of that, what would leave for somebody else at once
    away: int  # of its sessions, and elsewhere


def exchange_bytes(sizes: Iterable[int], memory: int) -> int:
    """Room for copies with which any of these sessions of a device can come back in place of others, while
    its own copies are still there; 0: its memory holds all of them. If several leave, they were there at
    once, and have less in all than what it lacks and one of them, which is smaller than that: else they would
    be fewer.
    """
    ordered = sorted(sizes)
    total, most = sum(ordered), 0
    for place, size in enumerate(ordered):
        lack = min(size, total - memory)
        if lack <= 0:
            continue
        largest = ordered[-1] if place < len(ordered) - 1 else max(ordered[-2:-1], default=0)
        smaller = bisect_left(ordered, lack)
        several = lack + ordered[smaller - 1] if smaller else 0
        most = max(most, min(total - size, max(largest, several), memory))
    return most


def idle_bytes(resident: Iterable[tuple[Entry, Candidate]], copies_left: int) -> int:
    """Bytes that sessions on a device would leave to somebody at once: what they may have and do not use, and
    all of those without work, as far as there is room for their copies. `copies_left`: bytes of that.
    """
    unused = leaving = known = 0
    for entry, one in resident:
        unused += entry.allowance - one.size
        if one.idle > 0 and one.may_leave(0):
            leaving += one.size
            known += min(entry.copy_bytes, one.size)
    return unused + min(leaving, known + copies_left)
