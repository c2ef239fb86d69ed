"""What API servers say of their devices, kept while none lives there."""

from __future__ import annotations

import asyncio

from gpuferry.specs._generated import frames, node_pb2

from .api_server import ApiServer, PoolListener
from .pool import Pool

PLACE = frames.Header.SIZE + frames.Welcome.SIZE  # where WELCOME describes its device


class Descriptions(PoolListener):
    """By a device's ordinal, the last WELCOME frame of an API server on it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._news = asyncio.Event()
        self.welcomes: dict[int, bytes] = {}

    def of(self, device: int) -> frames.Device:
        """What API servers said of the device. Raises KeyError if none did."""
        return frames.Device.unpack(self.welcomes[device], PLACE)

    def driver_version(self, device: int) -> int:
        """The CUDA version of the device's driver. Raises KeyError as `of`."""
        return frames.Welcome.unpack(self.welcomes[device], frames.Header.SIZE).driver_version

    async def several(self, wanted: int) -> None:
        """Wait until so many devices are described, or all on which API servers live."""
        while len(self.welcomes) < wanted and self._awaited():
            self._news.clear()
            await self._news.wait()

    def _awaited(self) -> bool:
        return bool(set(range(self._pool.devices)) - self.welcomes.keys() - self._pool.problems().keys())

    def server_ready(self, server: ApiServer) -> None:
        self._note(server)

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        self._note(server)

    def server_lost(self, server: ApiServer) -> None:
        self._news.set()

    def device_lost(self, device: int, reason: str) -> None:
        self._news.set()

    def _note(self, server: ApiServer) -> None:
        if len(server.welcome) >= PLACE + frames.Device.SIZE:
            self.welcomes[server.device] = server.welcome
        self._news.set()
