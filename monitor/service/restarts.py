"""How soon a process of ours that ends is started again."""

from __future__ import annotations

import asyncio
import time

PAUSE_MOST_SECONDS = 5.0
LIVED_SECONDS = 10.0  # who lived that long was well


class Restarts:
    """Pauses before a watched process is started again, each twice as long as the last, until one lives."""

    def __init__(self, first: float) -> None:
        """`first`: seconds of the first pause."""
        self._first = self._pause = first
        self._began = 0.0

    def begin(self) -> None:
        """Note that the process is started just now: how long it lives decides the next pause."""
        self._began = time.monotonic()

    async def pause(self) -> None:
        """Wait until another may be started in place of the one that has ended."""
        if time.monotonic() > self._began + LIVED_SECONDS:
            self._pause = self._first
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_MOST_SECONDS)
