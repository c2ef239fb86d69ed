"""The wish that a daemon ends."""

from __future__ import annotations

import asyncio
import contextlib

from .waiting import within


class Stopping:
    """Asked once, the daemon ends gracefully; asked twice, now."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.asked_twice = asyncio.Event()

    def ask(self) -> None:
        """Ask the daemon to stop; a second time: now."""
        (self.asked_twice if self.asked.is_set() else self.asked).set()

    async def pause(self, seconds: float) -> bool:
        """Sleep so many seconds. Returns False if the daemon was asked to stop meanwhile."""
        with contextlib.suppress(asyncio.TimeoutError):
            await within(seconds, self.asked.wait())
        return not self.asked.is_set()
