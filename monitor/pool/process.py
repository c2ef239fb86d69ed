"""Processes that end: our children, and those of a monitor before us."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Launch:
    """How an API server is started."""

    command: Sequence[str]  # to which its options are added
    environment: Mapping[str, str]
    ready_timeout: float  # seconds until it must say Ready


class Process(Protocol):
    """A process whose end can be waited for, as asyncio has them."""

    @property
    def pid(self) -> int:
        """Process id, which is its group's too."""

    async def wait(self) -> int | None:
        """Wait until it is gone. Returns its status, negative for a signal; None: only its parent knows."""


class Adopted:
    """A process that is not our child: an earlier monitor's."""

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
        """Wait until it is gone. Returns None: only its parent could know how it ended."""
        await self._gone.wait()
        return None
