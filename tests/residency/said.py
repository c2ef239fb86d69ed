"""Two API servers as a steward knows them, which say what a test has them say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gpuferry.monitor.pool.api_server import ApiServer
from gpuferry.monitor.residency.steward import Steward
from gpuferry.specs._generated import node_pb2

GIB = 1 << 30
SMALL = 2 << 20
TOO_MUCH = 1 << 60


class Said:
    """An API server, as far as the steward knows it: what it was told stands in `orders`."""

    def __init__(self, key: int, memory: int) -> None:
        self.key = self.session = key
        self.device, self.devices, self.several, self.is_keeper = 0, (0,), 0, False
        self.over = asyncio.Event()
        self.orders: list[node_pb2.ToServer] = []
        self.beside: list[Any] = []
        self.stats = node_pb2.Stats(session=key, memory_mapped=memory)
        self.pid, self.killed = 0, 0
        self.noted: dict[str, int] = {}
        self.can_note = True
        self.handed_back: list[Any] = []
        self.trusted = False

    def send(self, message: node_pb2.ToServer, *beside: object) -> None:
        self.orders.append(message)
        self.beside += beside

    async def told(self, kind: str) -> Any:
        """The last order, once it is of this kind."""
        while not (self.orders and self.orders[-1].HasField(kind)):
            await asyncio.sleep(0.001)
        return getattr(self.orders[-1], kind)

    def note_files(self, session: int, files: Mapping[str, int]) -> bool:
        assert session == self.session
        if self.can_note:
            self.noted = dict(files)
        return self.can_note

    def noted_files(self, session: int) -> Mapping[str, int]:
        return self.noted

    def kill(self, reason: str) -> None:
        self.killed += 1
        self.why = reason

    async def refresh_stats(self, _: float) -> None:
        pass


def plenty() -> int:
    """Of host memory there is more than enough."""
    return TOO_MUCH


async def two(folder: Path, host: int = 4 * GIB, disk: int = 0) -> tuple[Steward, Any, Any]:
    """Two sessions of 1 GiB on a device of 2 GiB, of which more may be promised. Where copies may go to a
    disk each has little.
    """
    steward = Steward(2.0, host, disk, folder, plenty)
    steward.grantable(0, 2 * GIB)
    one, other = (cast(ApiServer, Said(key, SMALL if disk else GIB)) for key in (1, 2))
    for each in (one, other):
        steward.begin(each, node_pb2.Grant(session=each.key, memory_quota=GIB))
    return steward, one, other
