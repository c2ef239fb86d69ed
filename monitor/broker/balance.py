"""What the policy must hear so that sessions move by themselves: time, how busy devices are, who launches."""

from __future__ import annotations

import asyncio
import contextlib

from gpuferry.specs._generated import node_pb2

from ..devices.gpus import GpuStats
from ..pool.channel import ChannelBroken
from ..pool.pool import Pool
from .broker import Broker

TICK = 0.25  # seconds (policies.md §1.1)


class Balance:
    """Feeds the policy what it needs to move sessions by itself. Asks a session for its next launch once."""

    def __init__(self, broker: Broker, pool: Pool, gpus: GpuStats) -> None:
        self._broker = broker
        self._pool = pool
        self._gpus = gpus

    async def run(self) -> None:
        """Tell the policy four times a second how busy each device is, until cancelled."""
        while True:
            await asyncio.sleep(TICK)
            crowded = self._broker.tick(self._utilisation())
            if crowded is not None:
                self._ask_for_launches(crowded)

    def _utilisation(self) -> dict[int, float]:
        """The last sample of each device, as far as NVML has one."""
        gpus = {device: self._gpus.get(uuid) for device, uuid in self._pool.uuids().items()}
        return {device: gpu.latest for device, gpu in gpus.items() if gpu and gpu.latest is not None}

    def _ask_for_launches(self, device: int) -> None:
        for session in self._broker.running():
            server = session.server
            if server and server.device == device and session.running and not session.watched:
                session.watched = True
                message = node_pb2.ToServer(next_launch=node_pb2.NextLaunch(session=session.id))
                with contextlib.suppress(ChannelBroken):
                    server.send(message)
