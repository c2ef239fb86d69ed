"""Processes that end: our children, and those of a monitor before us."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol


class Process(Protocol):
    """As asyncio has them."""

    @property
    def pid(self) -> int:
        """Also of its process group."""

    async def wait(self) -> int | None:
        """Returns when it is gone; its status, negative for a signal, if we may know it."""


class Adopted:
    """Somebody else's child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)  # ProcessLookupError, an OSError, if it is gone
        self._gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._gone.set()

    async def wait(self) -> int | None:
        """Only its parent could know how it ended."""
        await self._gone.wait()
        return None
