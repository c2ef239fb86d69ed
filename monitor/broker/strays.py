"""Gives back what ended while there was no monitor: the books of leases, and seats in those that go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from ..sessions.book import books_of_others
from ..sessions.session import Session


class Strays:
    """What an earlier monitor has left in the folder of books, and nobody who came back has."""

    def __init__(
        self,
        books: Path,
        complete_at: float,
        sessions: Mapping[int, Session],
        all_back: asyncio.Event | None = None,
    ) -> None:
        """`complete_at`: the monotonic time until which sessions of an earlier monitor may come back by
        themselves; `all_back`: those that are waited for have, however late.
        """
        self._books = books
        self._complete_at = complete_at
        self._sessions = sessions
        self._all_back = all_back

    async def run(self) -> None:
        """Wait until all have come back who will, and give back what nobody has."""
        await asyncio.sleep(max(0.0, self._complete_at - time.monotonic()))
        if self._all_back:
            await self._all_back.wait()
        self.remove()

    def remove(self) -> None:
        """Remove the books of all leases but those that there are, and empty their seats that nobody has."""
        leases = {one.lease.number: one.lease for one in self._sessions.values()}
        for path in books_of_others(self._books, leases):
            path.unlink(missing_ok=True)
        for lease in leases.values():
            lease.empty_seats()
