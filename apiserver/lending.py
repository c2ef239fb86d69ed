"""A session whose memory is not on its device, as it is for whoever moves it: out of its copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from gpuferry.migration.abc import Movable

from .copies import PAGE, Copies


class FromCopies:
    """The engine of a session that is away, but for its memory, which is read where it is. Nothing is mapped
    a second time, nor can it be shared or hashed on a device.
    """

    def __init__(self, core: Movable, copies: Copies) -> None:
        self._core = core
        self._copies = copies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    @property
    def movable(self) -> Movable:
        """The same, as whoever moves it wants it."""
        return cast(Movable, self)

    def alias(self) -> list[tuple[int, int]]:
        """Address and size of what is mapped, which does not change while the session is away."""
        return self._core.mappings()

    def drop_aliases(self) -> None:
        """Do nothing: the copies are read where they are, so nothing was mapped for it."""

    def read(self, address: int, buffer: memoryview) -> None:
        """What the session's memory holds there. Raises OSError: a disk cannot be read."""
        self._copies.read(address, buffer)

    def pointing(self, pages: Sequence[int], ranges: list[tuple[int, int]]) -> int:
        """A word within the first one to the last address of a range, if these pages hold one; 0: none."""
        page_of_it = memoryview(bytearray(PAGE))
        for page in pages:
            self._copies.read(page, page_of_it)
            if word := self._core.pointing_here(page_of_it, ranges, False):
                return word
        return 0
