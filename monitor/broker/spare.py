"""How much memory of a device nobody uses and nobody was promised: room for one more API server's context."""

from __future__ import annotations

from ..devices.gpus import GpuStats
from ..sessions.placement import Placer


class SpareMemory:
    """The smaller of what is not promised to sessions and what NVML says is not used."""

    def __init__(self, placer: Placer, gpus: GpuStats) -> None:
        self._placer = placer
        self._gpus = gpus

    def of(self, device: int, uuid: bytes) -> int:
        """Bytes, 0 at least. An empty `uuid`, or a device that NVML does not know: only promises count."""
        room, gpu = self._placer.devices.get(device), self._gpus.get(uuid)
        known = [room.gpu.free] if room else []
        if gpu and gpu.memory_used is not None and gpu.memory_total is not None:
            known.append(gpu.memory_total - gpu.memory_used)
        return max(min(known, default=0), 0)
