"""What an arbiter and an API server say to each other: packets of 24 bytes, and a page of memory.

core/rooms/turn.pxi has the same for the other side.
"""

from __future__ import annotations

import enum
import fcntl
import mmap
import os
import struct
from typing import NamedTuple

_PACKET = struct.Struct("<IIQQ")
SIZE = _PACKET.size
_PAGE = struct.Struct("<II")
PAGE_SIZE = mmap.PAGESIZE


class Word(enum.IntEnum):
    """The kinds of packets between an API server and its arbiter; who sends each is said first."""

    ASK = 1  # API server: it has something to do, and no turn
    BACK = 2  # API server: it has no turn, wants none, and its work is at rest; `value`: see Packet
    REST = 3  # API server, which waits for a turn: what it had begun before is done
    GO = 4  # arbiter: the turn that was asked for begins
    STOP = 5  # arbiter: it shall end; the page says so too
    TAKEN = 6  # arbiter: it did not end in time, and is over; what still runs is charged
    WANTED = 7  # arbiter: others wait; the page says so too


class Packet(NamedTuple):
    """One packet. `turn` is a number that the API server gives each request; what names another is void."""

    word: Word
    turn: int
    value: int = (
        0  # of BACK: nanoseconds of the server's own work since the last; of GO: the quota, 0 if none
    )


class NoPacket(Exception):
    """Whoever sent this does not speak the language."""


def pack(packet: Packet) -> bytes:
    """The packet as it is sent."""
    return _PACKET.pack(packet.word, 0, packet.turn, packet.value)


def unpack(data: bytes) -> Packet:
    """What an API server said. Raises NoPacket."""
    if len(data) != SIZE:
        raise NoPacket(f"{len(data)} bytes")
    word, spare, turn, value = _PACKET.unpack(data)
    if word not in (Word.ASK, Word.BACK, Word.REST) or spare:
        raise NoPacket(f"word {word}")
    return Packet(Word(word), turn, value)


class Page:
    """A page of memory that an arbiter writes and an API server reads between two frames."""

    def __init__(self, file: int) -> None:
        """Map the page. `file`: descriptor of a file of PAGE_SIZE bytes, which stays the caller's."""
        self._memory = mmap.mmap(file, PAGE_SIZE)

    def set(self, stop: bool, wanted: bool) -> None:
        """Say whether the turn shall end, and whether others wait for one."""
        _PAGE.pack_into(self._memory, 0, stop, wanted)

    def close(self) -> None:
        """Unmap the page."""
        self._memory.close()


def new_page() -> int:
    """A descriptor of a new page, of a size that nobody can change."""
    file = os.memfd_create("gpuferry-turn", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, PAGE_SIZE)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return file
