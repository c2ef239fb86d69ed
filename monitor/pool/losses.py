"""Devices that fail: NVML may know it before any API server does."""

from __future__ import annotations

import asyncio

from ..devices.gpus import GpuStats
from .pool import Pool

LOOK_SECONDS = 0.5


class LostDevices:
    """Tells the pool, once per loss, of each device that NVML says is lost."""

    def __init__(self, pool: Pool, gpus: GpuStats) -> None:
        self._pool = pool
        self._gpus = gpus
        self._lost: set[int] = set()

    async def run(self) -> None:
        """Look twice a second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Compare what NVML says now with what it said at the last look."""
        for device, uuid in self._pool.uuids().items():
            gpu = self._gpus.get(uuid)
            if gpu and gpu.lost and device not in self._lost:
                self._lost.add(device)
                self._pool.lose(device, "NVML says that the device is lost")
            elif gpu and not gpu.lost:
                self._lost.discard(device)
