"""The figures of the devices: keeps a sampler process alive, and averages what it says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from gpuferry.guest import paths
from gpuferry.guest.launch import clean_environment

from ..settings.monitor import Config
from .choice import INSTANCE_PREFIX

SAMPLES = 5  # of the moving average
SILENCE_FACTOR, SILENCE_LEAST = 10, 3.0  # intervals, seconds: after that a sampler is taken to hang
BACKOFF_FIRST, BACKOFF_MOST = 1.0, 60.0  # seconds
FIRST_FACTOR = 6
SECRETS = ("GPUFERRY_TOKEN", "GPUFERRY_TOKEN_FILE")
PREFIX = "GPU-"  # of a UUID; of an instance (MIG) NVML writes another, which is as long
LAST_MOMENT = 0.05  # seconds that a process may take to die before others have their turn

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
    peers: list[int] = field(default_factory=list)  # NVML's indices of the GPUs whose memory it reaches
    # MHz of multiprocessors and memory, generation and width of its PCIe link: now, and at most.
    now: list[int | None] = field(default_factory=lambda: [None] * 4)
    most: list[int | None] = field(default_factory=lambda: [None] * 4)
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    @property
    def utilization(self) -> float | None:
        """Share of time in which kernels ran, 0 to 1: the mean of the last five samples. None: not known."""
        return sum(self._rates) / len(self._rates) if self._rates else None

    @property
    def latest(self) -> float | None:
        """Share of time in which kernels ran, 0 to 1, in the last sample. None: not known."""
        return self._rates[-1] if self._rates else None

    def update(self, sample: Mapping[str, Any]) -> None:
        """Take over one answer of the sampler."""
        self.pci_bus_id = sample.get("pci", self.pci_bus_id)
        self.lost = sample["lost"]
        self.memory_total = sample.get("memory_total", self.memory_total)
        self.memory_used = sample.get("memory_used")
        self.temperature = sample.get("temperature")
        self.power = sample.get("power")
        self.peers = sample.get("peers", self.peers)
        self.now = sample.get("now", self.now)
        self.most = sample.get("most", self.most)
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
        self.driver = ""  # its version, as NVML writes it
        self.problem = "not sampled yet" if interval else "switched off"

    def get(self, uuid: bytes) -> Gpu | None:
        """The device with this UUID, as the CUDA driver gives it; None if NVML does not know it now."""
        return None if self.problem else self._by_uuid.get(text_of_uuid(uuid)[len(PREFIX) :])

    def reaches(self, one: bytes, other: bytes) -> bool:
        """Whether the one of these devices, by UUID, reaches the other's memory, as NVML says."""
        found = self.get(one)
        peers = found.peers if found else []
        return any(self._order.get(index) == text_of_uuid(other) for index in peers)

    async def run(self) -> None:
        """Sample every device each `interval` seconds, until cancelled."""
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
            process = subprocess.Popen(
                command,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self.problem = f"the sampler does not start: {error.strerror or error}"
            return False
        answers = _Answers(self.take, max(self._interval * SILENCE_FACTOR, SILENCE_LEAST))
        transport: asyncio.BaseTransport | None = None
        try:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_read_pipe(lambda: answers, process.stdout)
            self.problem = await answers.over
        finally:
            answers.stop()
            if transport:
                transport.close()
            await _end(process)
        self.problem = self.problem or f"the sampler ended with status {process.returncode}"
        return answers.any

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take over one answer of the sampler."""
        self.problem = ""
        self.driver = answer.get("driver", "")
        for sample in answer["gpus"]:
            # A device that is lost may not even tell its UUID: it is the one that was there before.
            uuid = sample.get("uuid") or self._order.get(sample["index"])
            if uuid is None:
                continue
            self._order[sample["index"]] = uuid
            self._by_uuid.setdefault(uuid[len(PREFIX) :], Gpu(uuid)).update(sample)


def gpu_stats(config: Config) -> GpuStats:
    """Figures of the devices that a monitor offers, from the NVML that belongs to them."""
    environment = {name: value for name, value in clean_environment().items() if name not in SECRETS}
    library = paths.simulated_nvml() if config.simulated else None
    return GpuStats(config.sample, environment, library)


class _Answers(asyncio.Protocol):
    """The sampler's lines; `over` is why there will be no more, empty if it just ended."""

    def __init__(self, take: Callable[[Mapping[str, Any]], None], patience: float) -> None:
        loop = asyncio.get_running_loop()
        self._take = take
        self._patience = patience
        self._rest = b""
        self._late: asyncio.TimerHandle | None = None
        self.any = False
        self.over: asyncio.Future[str] = loop.create_future()
        # The first answer takes longer: the interpreter starts, and a real driver may have to wake up.
        self._wait(patience * FIRST_FACTOR)

    def _wait(self, limit: float) -> None:
        self.stop()
        text = f"NVML has not answered for {limit:g} s"
        self._late = asyncio.get_running_loop().call_later(limit, self._finish, text)

    def stop(self) -> None:
        """Stop waiting for NVML: a late answer is no fault any more."""
        if self._late:
            self._late.cancel()

    def _finish(self, reason: str) -> None:
        if not self.over.done():
            self.over.set_result(reason)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if "problem" in answer:
                self._finish(answer["problem"])
            elif not self.over.done():
                self.any = True
                self._take(answer)
                self._wait(self._patience)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish("")


def text_of_uuid(uuid: bytes, instance: bool = False) -> str:
    """A UUID as NVML and nvidia-smi write it: `GPU-…`, or `MIG-…` of an instance of a GPU."""
    digits, prefix = uuid.hex(), INSTANCE_PREFIX if instance else PREFIX
    return f"{prefix}{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


async def _end(process: subprocess.Popen[bytes]) -> None:
    """One that is stuck in the driver cannot even be killed: it is not waited for for ever."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LAST_MOMENT)
        return
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LAST_MOMENT)
    deadline = time.monotonic() + SILENCE_LEAST
    while process.poll() is None and time.monotonic() < deadline:
        await asyncio.sleep(LAST_MOMENT)
