"""What a program was granted: a place on a device and memory, for all of its processes."""

from __future__ import annotations

import time
from itertools import count

from gpuferry.specs._generated.frames import SEATS

from ..door.handshake import Labels
from ..policy.portion import PLAIN
from .book import Book

LEAST_SECONDS = 0.001  # of a limit, for 0 would be none


class Lease:
    """The lease of one program. Its number is that of the program's first session, by which policies know it
    even when that session is over.
    """

    def __init__(self, number: int, program: bytes = b"") -> None:
        self.number = number
        self.program = program  # a digest of what its processes know; empty: it has one process only
        self.members: list[int] = [number]  # sessions that have, or wait for, its place; the oldest first
        self.joining: list[int] = []  # sessions of more processes, which get an API server at once
        self.asked: set[int] = set()  # members that were told of the book,
        self.sharing: set[int] = set()  # and that claim their memory in it
        self.seats: dict[int, int] = {number: 0}
        self.book: Book | None = None
        self.began = time.monotonic()
        self.wall_limit = self.idle_limit = 0.0  # seconds; 0: none
        # Of each of its devices, as its first process asked.
        self.portion = PLAIN
        self.labels: Labels = ()

    @property
    def processes(self) -> int:
        """How many there are, those that are just joining included."""
        return len(self.members) + len(self.joining)

    def limit(self, age: float, wall: float, idle: float) -> None:
        """Its first process has lived for so many seconds, and may live, and be idle, for so many; 0: as it
        likes.
        """
        self.began, self.wall_limit, self.idle_limit = time.monotonic() - age, wall, idle

    def wall_left(self) -> float:
        """Seconds that it may still live; 0: there is no limit."""
        if not self.wall_limit:
            return 0.0
        return max(self.began + self.wall_limit - time.monotonic(), LEAST_SECONDS)

    def take_seat(self, session: int) -> None:
        """A session that was joining becomes a member."""
        self.joining.remove(session)
        self.members.append(session)
        taken = set(self.seats.values())
        self.seats[session] = next(seat for seat in count() if seat not in taken)
        self.asked.add(session)
        self.sharing.add(session)

    def leave(self, session: int) -> None:
        """The session is over, or goes back to those that join."""
        for those in (self.members, self.joining):
            if session in those:
                those.remove(session)
        self.asked.discard(session)
        self.sharing.discard(session)
        seat = self.seats.pop(session, None)
        if self.book and seat is not None:
            self.book.empty(seat)

    def empty_seats(self) -> None:
        """Nobody has claimed anything but those who are members: others ended while there was no monitor."""
        if self.book:
            for seat in set(range(SEATS)) - set(self.seats.values()):
                self.book.empty(seat)
