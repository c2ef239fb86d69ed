"""Room for copies that must be left, so that whoever is away can come back in place of others."""

from __future__ import annotations

from collections.abc import Callable

from .books import Books, Entry
from .copies import Copies
from .outlook import exchange_bytes


class Spare:
    """What it takes for the sessions that there are now. On the event loop's thread."""

    def __init__(
        self, books: Books, copies: Copies, used: Callable[[Entry], int], stays: Callable[[Entry], bool]
    ) -> None:
        """`used`: bytes that a session has; `stays`: whether it never leaves its device."""
        self._books = books
        self._copies = copies
        self._used = used
        self._stays = stays

    def needed(self, grows: Entry | None = None, size: int = 0) -> int:
        """Room for copies that whoever leaves must spare, for the worst exchange of any device: the copies of
        all devices are in the same host memory, and on the same disk.
        """
        if self._has_copies_for_all(grows, size):
            return 0
        return max(self._exchange_bytes(device, grows, size) for device in self._books.memory())

    def shuts_out(self, entry: Entry, size: int) -> bool:
        """Whether those that are away could not come back in place of this session if it had so many bytes:
        there would be no room for its copy.
        """
        if self._stays(entry) or self._has_copies_for_all(entry, size):
            return False
        return any(
            self._exchange_bytes(device, entry, size) > self._copies.left()
            for device in entry.devices
            if any(one.away for one in self._books.on(device) if one is not entry)
        )

    def _exchange_bytes(self, device: int, grows: Entry | None = None, size: int = 0) -> int:
        """Room for copies that is needed so that whoever is away can come back in place of others. `grows`:
        one that has so many bytes then.
        """
        memory, sizes = self._books.memory().get(device, 0), []
        for one in self._books.on(device):
            used = size if one is grows else self._used(one)
            if self._stays(one):
                memory -= used
            else:
                sizes.append(used)
        return exchange_bytes(sizes, memory)

    def _has_copies_for_all(self, grows: Entry | None, size: int) -> bool:
        """Whether all sessions could have copies at once: then any of them finds room for its own."""
        whole = 0
        for one in self._books:
            if not self._stays(one):
                used = size if one is grows else self._used(one)
                whole += max(used, one.copy_bytes)
        return self._copies.room >= whole
