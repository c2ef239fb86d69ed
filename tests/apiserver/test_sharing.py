"""What the book of a lease says of memory that another process made: whoever can map it has it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.monitor.sessions.book import HAS, Book
from gpuferry.specs._generated.constants import HAS_MADE, HAS_OPENED
from gpuferry.specs._generated.frames import EXTENTS, SEATS, Seat, SharedExtent

from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest
from tests.monitor.harness import wait_until

PAGE, SEAT, EXTENT = 2 << 20, 1, 0
INVALID_VALUE = 1
EXPORTER = 7  # a session


def unmap(guest: Guest, address: int) -> None:
    """Returns when the page is gone: the device may not have come there when the call itself is answered."""
    assert guest.call("sessionMemUnmap", address=address, size=PAGE).status == 0
    assert guest.call("sessionMemoryReturned", behind_work=1).status == 0


class Opener:
    """A session that shares its lease with seat 0, for which the test speaks."""

    def __init__(self, folder: Path, maker: Engine, engine: Engine) -> None:
        self.maker, self.engine = maker, engine
        self.source = maker.session()
        self.made = self.source.map(1)
        assert self.source.sync().status == 0
        self.guest: Guest = engine.session()
        book = Book(folder, 1)
        book.make()
        self.file = book.open()
        extent = SharedExtent(PAGE, 0, 0).pack()
        self.put(SEATS * Seat.SIZE + EXTENT * SharedExtent.SIZE, extent)
        self.put(HAS + EXTENT, bytes([HAS_MADE]))
        engine.call("open_book", SEAT, False, descriptors=[self.file.fileno()])

    def put(self, at: int, data: bytes) -> None:
        self.file.seek(at)
        self.file.write(data)

    @property
    def has(self) -> int:
        """What the book says that the session has of the extent."""
        self.file.seek(HAS + SEAT * EXTENTS + EXTENT)
        return self.file.read(1)[0]

    def ask(self) -> tuple[bytes, int, int]:
        """It wants something: the token, the request's number and the engine's."""
        token = secrets.token_bytes(32)
        asked = self.guest.ask("sessionImportFind", session=EXPORTER, token=token)
        number, _, _ = wait_until(lambda: self.engine.call("wanted"), "what it wants")
        return token, asked, number

    def deliver(self, asked: int, number: int) -> None:
        """The maker lends it, says so in the book, and sends it."""
        self.put(HAS + SEAT * EXTENTS + EXTENT, bytes([HAS_OPENED]))
        shared = self.maker.physical(self.made)
        self.engine.call("host_deliver", number, 1, EXTENT, descriptors=[shared])
        assert self.guest.answer(asked).status == 0

    def find(self) -> bytes:
        token, asked, number = self.ask()
        self.deliver(asked, number)
        return token

    def open(self, token: bytes, at: int = 0) -> int:
        address = self.guest.window + at * PAGE
        return self.guest.call("sessionImportMap", address=address, token=token).status

    def close(self, at: int = 0) -> None:
        unmap(self.guest, self.guest.window + at * PAGE)


@pytest.fixture
def opener(tmp_path: Path, pair: tuple[Engine, Engine]) -> Iterator[Opener]:
    made = Opener(tmp_path, *pair)
    yield made
    made.file.close()
    for engine, guest in ((made.engine, made.guest), (made.maker, made.source)):
        guest.close()
        engine.ended()


def test_what_was_found_and_is_not_mapped_yet(opener: Opener) -> None:
    first, second = opener.find(), opener.find()
    assert opener.open(first) == 0
    opener.close()
    assert opener.has == HAS_OPENED, "it can map it yet"
    assert opener.open(second, at=1) == 0
    opener.close(at=1)
    assert opener.has == 0


def test_what_is_on_its_way(opener: Opener) -> None:
    assert opener.open(opener.find()) == 0
    token, asked, number = opener.ask()
    opener.close()
    assert opener.has == HAS_OPENED
    opener.deliver(asked, number)
    assert opener.open(token) == 0
    opener.close()
    assert opener.has == 0


def test_what_was_on_its_way_and_never_came(opener: Opener) -> None:
    assert opener.open(opener.find()) == 0
    _, asked, _ = opener.ask()
    opener.close()
    opener.engine.call("give_up_imports")
    assert opener.guest.answer(asked).status == INVALID_VALUE
    assert opener.has == 0


def test_what_was_lent_and_could_not_be_sent(opener: Opener) -> None:
    """The maker's export failed behind its first part: nobody has that."""
    _, asked, _ = opener.ask()
    opener.put(HAS + SEAT * EXTENTS + EXTENT, bytes([HAS_OPENED]))
    opener.engine.call("give_up_imports")
    assert opener.guest.answer(asked).status == INVALID_VALUE
    assert opener.has == 0


def test_what_its_maker_unmaps_counts_once(tmp_path: Path, engine: Engine) -> None:
    """It counts for the process that has it open from there on, and no more for its maker."""
    guest = engine.session()
    book = Book(tmp_path, 1)
    book.make()
    with book.open() as file:
        engine.call("open_book", SEAT, False, descriptors=[file.fileno()])
        address = guest.map(1)
        assert guest.call("sessionMemoryClaim", wanted=PAGE).status == 0
        token = secrets.token_bytes(32)
        assert guest.call("sessionExportMemory", address=address, size=PAGE, token=token).status == 0
        assert engine.call("export", token, 0)[:2] == (0, PAGE)

        def says() -> tuple[int, int, int]:
            """What the maker has claimed, and what it and the other have of the extent."""
            file.seek(0)
            page = file.read()
            claimed = Seat.unpack(page[SEAT * Seat.SIZE :][: Seat.SIZE]).claimed
            return claimed, page[HAS + SEAT * EXTENTS + EXTENT], page[HAS + EXTENT]

        assert says() == (PAGE, HAS_MADE, HAS_OPENED)
        unmap(guest, address)
        assert says() == (0, 0, HAS_OPENED)
    guest.close()
    engine.ended()
