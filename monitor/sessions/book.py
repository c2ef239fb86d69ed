"""The book in which the API servers of one lease claim its memory: a file, open in each of them.

Each writes its own seat, and holds the file's lock while it claims. The monitor never takes that lock, which
an API server might keep: it makes the book, and empties the seats of those that are gone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

from gpuferry.specs._generated.frames import EXTENTS, SEATS, Seat, SeatDevices, SharedExtent

from ..service.files import emptied_if_larger

SUFFIX = ".book"
OVERHEAD = 1 << 20  # that a file system may take to know where a file lies
HAS = SEATS * Seat.SIZE + EXTENTS * SharedExtent.SIZE  # where it begins what the seats have of extents
DEVICES = HAS + SEATS * EXTENTS  # and where what they have claimed of the devices but the first
SIZE = DEVICES + SEATS * SeatDevices.SIZE


class Book:
    """A book of the lease with this number, in a folder that the next monitor finds too. A program that moves
    gets another edition where it goes.
    """

    def __init__(self, folder: Path, lease: int, edition: int = 0) -> None:
        self._folder, self._lease = folder, lease
        self.edition = edition
        self._path = folder / (f"{lease}.{edition}{SUFFIX}" if edition else f"{lease}{SUFFIX}")

    def next(self) -> Book:
        """The edition after this one, which is not made yet."""
        return Book(self._folder, self._lease, self.edition + 1)

    def make(self) -> None:
        """Make it, with empty seats, if it is not there. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        if not self._path.exists():
            fresh = self._path.with_suffix(".new")
            with open(fresh, "wb") as file:
                file.truncate(SIZE)
            fresh.rename(self._path)

    def open(self) -> IO[bytes]:
        """Open it for one API server, with a lock of its own. Raises OSError."""
        return open(self._path, "r+b", buffering=0)

    def takes_too_much(self) -> bool:
        """Whether an API server has made it larger than a book is. Then nothing of it is left."""
        return emptied_if_larger(self._path, SIZE + OVERHEAD)

    def empty(self, seat: int) -> None:
        """Whoever had this seat is gone, and has claimed nothing any more."""
        try:
            with self.open() as file:
                os.pwrite(file.fileno(), bytes(EXTENTS), HAS + seat * EXTENTS)
                os.pwrite(file.fileno(), bytes(SeatDevices.SIZE), DEVICES + seat * SeatDevices.SIZE)
                os.pwrite(file.fileno(), bytes(Seat.SIZE), seat * Seat.SIZE)
        except OSError:  # there was nobody else yet
            pass

    def remove(self) -> None:
        """Delete the file: the lease is over. API servers that still have it open are not disturbed."""
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def opened(book: Book | None) -> Iterator[list[IO[bytes]]]:
    """The open book, to be given away; nothing where there is none. Raises OSError."""
    if book is None:
        yield []
        return
    with book.open() as file:
        yield [file]


def books_of_others(folder: Path, leases: Collection[int]) -> Iterator[Path]:
    """Iterate over the books there, those that were being made too, of leases without these numbers."""
    for path in folder.glob("*"):
        if path.name.partition(".")[0] not in {str(number) for number in leases}:
            yield path


def remove_all(folder: Path) -> None:
    """Remove the books of leases of which no API server is left."""
    for path in books_of_others(folder, ()):
        path.unlink(missing_ok=True)
