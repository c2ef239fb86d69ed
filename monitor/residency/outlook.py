"""What somebody who comes would find of a device's memory, and how much of a program's is where. No I/O."""

from __future__ import annotations

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
