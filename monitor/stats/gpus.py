"""The figures of the devices: keeps a sampler process alive, and averages what it says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

SAMPLES = 5  # of the moving average
SILENCE_FACTOR, SILENCE_LEAST = 10, 3.0  # intervals, seconds: after that a sampler is taken to hang
BACKOFF_FIRST, BACKOFF_MOST = 1.0, 60.0  # seconds
LINE_MOST = 1 << 20

log = structlog.get_logger()


@dataclass(frozen=True)
class Process:
    """A process that holds memory of a device."""

    pid: int
    memory: int
    name: str


@dataclass
class Gpu:
    """One device, as NVML describes it. None: it does not say."""

    uuid: str
    pci_bus_id: str = ""
    lost: bool = False
    memory_total: int | None = None
    memory_used: int | None = None
    temperature: float | None = None
    power: float | None = None
    processes: list[Process] = field(default_factory=list)
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    @property
    def utilization(self) -> float | None:
        """Part of the time in which kernels ran, 0 to 1: the mean of the last five samples."""
        return sum(self._rates) / len(self._rates) if self._rates else None

    def update(self, sample: Mapping[str, Any]) -> None:
        """Take over one answer of the sampler."""
        self.pci_bus_id = sample.get("pci", self.pci_bus_id)
        self.lost = sample["lost"]
        self.memory_total = sample.get("memory_total", self.memory_total)
        self.memory_used = sample.get("memory_used")
        self.temperature = sample.get("temperature")
        self.power = sample.get("power")
        self.processes = [Process(p["pid"], p["memory"], p["name"]) for p in sample.get("processes", ())]
        if sample.get("utilization") is None:
            self._rates.clear()
        else:
            self._rates.append(sample["utilization"])


class GpuStats:
    """All devices, by UUID. Nothing here can block: a sampler that hangs is killed and started anew."""

    def __init__(self, interval: float, environment: Mapping[str, str], library: str | None) -> None:
        self._interval = interval
        self._environment = environment
        self._library = library
        self._by_uuid: dict[str, Gpu] = {}
        self._order: dict[int, str] = {}
        self.problem = "not sampled yet" if interval else "switched off"

    def get(self, uuid: bytes) -> Gpu | None:
        """The device with the UUID that the CUDA driver gave; None if NVML does not know it (now)."""
        return None if self.problem else self._by_uuid.get(text_of_uuid(uuid))

    async def run(self) -> None:
        """Until cancelled."""
        pause = BACKOFF_FIRST
        while self._interval:
            before = self.problem
            if await self._sample():
                pause = BACKOFF_FIRST
            if self.problem != before:
                log.warning("no figures of the devices", reason=self.problem)
            await asyncio.sleep(pause)
            pause = min(pause * 2, BACKOFF_MOST)

    async def _sample(self) -> bool:
        """One sampler process from start to end; whether it ever answered."""
        command = [sys.executable, "-m", f"{__package__}.sampler", "--interval", str(self._interval)]
        command += ["--library", self._library] if self._library else []
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(self._environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=LINE_MOST,
                start_new_session=True,
            )
        except OSError as error:
            self.problem = f"the sampler does not start: {error.strerror or error}"
            return False
        try:
            return await self._read(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # One that is stuck in the driver cannot even be killed: it is not waited for.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), SILENCE_LEAST)

    async def _read(self, process: asyncio.subprocess.Process) -> bool:
        assert process.stdout
        answered = False
        patience = max(self._interval * SILENCE_FACTOR, SILENCE_LEAST)
        while True:
            # The first answer takes longer: the interpreter starts, and a real driver may have to wake up.
            limit = patience if answered else patience + SILENCE_LEAST * 5
            try:
                line = await asyncio.wait_for(process.stdout.readline(), limit)
            except asyncio.TimeoutError:
                self.problem = f"NVML has not answered for {limit:g} s"
                return answered
            if not line:
                self.problem = self.problem or f"the sampler ended with status {await process.wait()}"
                return answered
            answer = json.loads(line)
            if "problem" in answer:
                self.problem = answer["problem"]
                return answered
            self.take(answer)
            answered = True

    def take(self, answer: Mapping[str, Any]) -> None:
        """One line of the sampler."""
        self.problem = ""
        for sample in answer["gpus"]:
            # A device that is lost may not even tell its UUID: it is the one that was there before.
            uuid = sample.get("uuid") or self._order.get(sample["index"])
            if uuid is None:
                continue
            self._order[sample["index"]] = uuid
            self._by_uuid.setdefault(uuid, Gpu(uuid)).update(sample)


def text_of_uuid(uuid: bytes) -> str:
    """As NVML and nvidia-smi write it."""
    digits = uuid.hex()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
