"""What whoever moves a session that is away reads of its memory: out of its copies, wherever they are."""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path
from typing import Any, cast

import pytest
from gpuferry.apiserver.copies import PAGE, Copies
from gpuferry.apiserver.lending import FromCopies
from gpuferry.monitor.residency.files import CopyFile, in_memory, on_disk

BASE = 16 * PAGE
WORD = BASE + 3 * PAGE + 0x1230  # an address that a page holds


class Engine:
    """A session that has four pages: the second is zero everywhere."""

    changes = work = 1

    def __init__(self) -> None:
        self.pages = [bytes([n]) * PAGE if n != 1 else bytes(PAGE) for n in range(4)]
        self.pages[3] = bytes(PAGE - 8) + struct.pack("<Q", WORD)

    def layout(self) -> list[tuple[int, int]]:
        return [(BASE, 4 * PAGE)]

    mappings = layout

    def written(self) -> set[int]:
        return set()

    def read_pages(self, address: int, target: memoryview) -> None:
        target[:] = b"".join(self.pages)[address - BASE :][: len(target)]

    def pin_copy(self, _: memoryview) -> bool:
        return False

    def pointing_here(self, data: memoryview, ranges: list[tuple[int, int]], anywhere: bool) -> int:
        assert not anywhere
        words = struct.unpack(f"<{len(data) // 8}Q", data)
        return next((word for word in words if any(a <= word <= b for a, b in ranges)), 0)


@pytest.fixture
def lent(tmp_path: Path) -> Any:
    """Two pages in memory, two on a disk, and the session is away."""
    engine = cast(Any, Engine())
    copies = Copies(engine)

    def add(file: CopyFile) -> None:
        copies.add(os.dup(file.fileno()), file.size, file.on_disk)
        file.close()

    add(in_memory(2 * PAGE))
    add(asyncio.run(on_disk(tmp_path, 2 * PAGE)))
    copies.update(lambda: False)
    assert copies.on_disk
    yield FromCopies(engine, copies).movable
    copies.close()


def test_all_of_it_is_there(lent: Any) -> None:
    assert lent.alias() == [(BASE, 4 * PAGE)]
    buffer = memoryview(bytearray(4 * PAGE))
    lent.read(BASE, buffer)
    assert bytes(buffer) == b"".join(Engine().pages)
    lent.read(BASE + 2 * PAGE, buffer[:PAGE])
    assert bytes(buffer[:PAGE]) == Engine().pages[2]


def test_what_is_not_its_own_is_not_read(lent: Any) -> None:
    with pytest.raises(KeyError):
        lent.read(BASE + 4 * PAGE, memoryview(bytearray(PAGE)))


@pytest.mark.system
def test_addresses_are_found_in_it(lent: Any) -> None:
    pages = [BASE + n * PAGE for n in range(4)]
    assert lent.pointing(pages, [(WORD - 8, WORD)]) == WORD
    assert lent.pointing(pages, [(WORD + 1, WORD + 8)]) == 0
    assert lent.pointing(pages[:3], [(WORD, WORD)]) == 0
