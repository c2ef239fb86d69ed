"""What ended while there was no monitor holds nothing, once all have come back to the next one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from gpuferry.monitor.broker.strays import Strays
from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.sessions.book import DEVICES, HAS, Book
from gpuferry.monitor.sessions.session import Session
from gpuferry.specs._generated.frames import EXTENTS, Seat, SeatDevices

HELLO = Hello(nonce=b"", pid=1, memory=0, tenant="", function="", program="")


def claim(book: Book, seat: int) -> None:
    """Memory of the first device and of another, and an extent."""
    with book.open() as file:
        os.pwrite(file.fileno(), b"\1" * Seat.SIZE, seat * Seat.SIZE)
        os.pwrite(file.fileno(), b"\1" * EXTENTS, HAS + seat * EXTENTS)
        os.pwrite(file.fileno(), b"\1" * SeatDevices.SIZE, DEVICES + seat * SeatDevices.SIZE)


def claims(book: Book) -> list[int]:
    """The seats that have something of the first device."""
    with book.open() as file:
        page = file.read(HAS)
    return [seat for seat in range(HAS // Seat.SIZE) if any(page[seat * Seat.SIZE : (seat + 1) * Seat.SIZE])]


def test_what_a_process_had_is_given_back_when_the_others_of_its_program_are_back(tmp_path: Path) -> None:
    """It was killed with the monitor. Its program never got that memory again."""
    session = Session(4, HELLO, "", None)
    book = session.lease.book = Book(tmp_path, 4)
    left = Book(tmp_path, 5)
    for each in (book, left):
        each.make()
    for seat in range(3):
        claim(book, seat)
    session.lease.seats = {4: 1}
    asyncio.run(Strays(tmp_path, 0.0, {4: session}).run())
    assert claims(book) == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["4.book"]
    with book.open() as file:
        there = file.read()
    assert there.count(1) == Seat.SIZE + EXTENTS + SeatDevices.SIZE
