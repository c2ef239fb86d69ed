"""Programs with known answers run while whatever can die or break does so, at random.

GPUFERRY_CHAOS_SEED repeats a run's choices (not its timing).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import picture
from tests.chaos.judge import judge
from tests.chaos.server import TOKEN, GpuServer
from tests.helpers import programs, toolchain
from tests.helpers.paths import ROOT
from tests.helpers.proxy import Proxy
from tests.helpers.running import Outcome, guest_environment, native_environment, run
from tests.load.footprint import device_mappings
from tests.monitor import harness

POOL, AT_ONCE = 2, 3
RETRY_SECONDS = 0.2  # a monitor takes a while to come back
ENDS_WITHIN = 60.0  # seconds, once nothing is broken any more
# None that goes on to write to memory that it was refused.
CAST = [
    "alloc_free_pairs",
    "contexts",
    "copies_2d",
    "destroy_pending",
    "device_copies",
    "event_ordering",
    "events",
    "histogram",
    "legacy_stream",
    "library_runtime",
    "many_handles",
    "memsets",
    "reuse_across_streams",
    "shared_memory",
    "symbols",
    "tiny_launches",
    "vector_add_driver",
    "vector_add_runtime",
]


@dataclass(frozen=True)
class Play:
    """A program, and what it says when all is well."""

    name: str
    command: tuple[str, ...]
    right: Outcome


@dataclass
class Part:
    """A program that runs now."""

    play: Play
    process: subprocess.Popen[str]
    killed: bool = False


def rehearse(name: str, *command: str | Path) -> Play:
    right = run(command, native_environment())
    assert right.status == 0, right
    return Play(name, tuple(map(str, command)), right)


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> list[Play]:
    found = [programs.program(name) for name in CAST]
    rehearsed = [rehearse(p.name, toolchain.program(p.source, p.flags)) for p in found]
    folder = tmp_path_factory.mktemp("chaos")
    photograph = picture.photograph()
    photograph.resize((photograph.width // 4, photograph.height // 4)).save(folder / "small.ppm")
    kmeans = toolchain.program(ROOT / "bench" / "workloads" / "kmeans" / "kmeans.cu")
    return [*rehearsed, rehearse("kmeans", kmeans, folder / "small.ppm", "/dev/null")]


class Stage:
    """Programs, one after another in each of a few threads, and what came of them."""

    def __init__(self, server: GpuServer, proxy: Proxy, plays: list[Play], chance: random.Random) -> None:
        self.parts: list[Part] = []
        self.verdicts: Counter[str] = Counter()
        self.over = threading.Event()
        self._addresses = [proxy.address, proxy.address, server.unix]
        self._plays = plays
        self._seeds = [chance.random() for _ in range(AT_ONCE)]

    def perform(self, number: int) -> None:
        """Until it is over, or something was wrong, which ends it for all."""
        chance = random.Random(self._seeds[number])
        try:
            while not self.over.is_set():
                verdict = self._one(chance.choice(self._plays), chance.choice(self._addresses))
                self.verdicts[verdict] += 1
                if verdict == "error":
                    self.over.wait(RETRY_SECONDS)
        finally:
            self.over.set()

    def _one(self, play: Play, address: str) -> str:
        part = Part(
            play,
            subprocess.Popen(
                play.command,
                env=guest_environment({"GPUFERRY_MONITOR": address, "GPUFERRY_TOKEN": TOKEN}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            ),
        )
        self.parts.append(part)
        try:
            stdout, stderr = part.process.communicate(timeout=ENDS_WITHIN)
        finally:
            part.process.kill()
            self.parts.remove(part)
        if part.killed:
            return "killed"
        return judge(play.name, play.right, Outcome(part.process.returncode, stdout, stderr))


class Chaos:
    """What goes wrong."""

    def __init__(self, server: GpuServer, proxy: Proxy, stage: Stage, chance: random.Random) -> None:
        self._server, self._proxy, self._stage, self._chance = server, proxy, stage, chance
        self.done: Counter[str] = Counter()

    def reign(self, seconds: float) -> None:
        """One thing after another, with breaths between."""
        deeds: list[tuple[Callable[[], None], int]] = [
            (self.kill_a_guest, 4),
            (self.kill_an_api_server, 4),
            (self.stop_an_api_server, 2),
            (self.cut_a_connection, 4),
            (self.stall_all_connections, 3),
            (self.kill_the_monitor, 1),
        ]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stage.over.wait(self._chance.uniform(0.05, 0.8)):
            (deed,) = self._chance.choices([d for d, _ in deeds], [weight for _, weight in deeds])
            self.done[deed.__name__] += 1
            deed()

    def kill_a_guest(self) -> None:
        running = list(self._stage.parts)
        if running:
            part = self._chance.choice(running)
            part.killed = True
            part.process.kill()

    def kill_an_api_server(self) -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self._chance.choice(self._api_servers()), signal.SIGKILL)

    def stop_an_api_server(self) -> None:
        """It is alive, and does nothing."""
        with contextlib.suppress(ProcessLookupError, IndexError):
            pid = self._chance.choice(self._api_servers())
            os.kill(pid, signal.SIGSTOP)
            self._stage.over.wait(self._chance.uniform(0.05, 0.5))
            os.kill(pid, signal.SIGCONT)

    def cut_a_connection(self) -> None:
        self._proxy.cut(self._chance)

    def stall_all_connections(self) -> None:
        self._proxy.stall()
        self._stage.over.wait(self._chance.uniform(0.05, 1.0))
        self._proxy.resume()

    def kill_the_monitor(self) -> None:
        self._server.kill()
        self._stage.over.wait(self._chance.uniform(0.0, 0.5))
        self._server.start()

    def _api_servers(self) -> list[int]:
        status = self._server.status()
        return sorted(server.pid for server in status.servers if server.pid) if status else []


def chaos(plays: list[Play], seconds: float) -> None:
    seed = int(os.environ.get("GPUFERRY_CHAOS_SEED") or time.time_ns() % 1_000_000)
    print(f"GPUFERRY_CHAOS_SEED={seed}")
    chance = random.Random(seed)
    with GpuServer(POOL) as server, Proxy(server.tcp) as proxy:
        fresh = {device_mappings(s.pid) for s in server.wait_whole().servers}
        stage = Stage(server, proxy, plays, chance)
        reign = Chaos(server, proxy, stage, chance)
        with ThreadPoolExecutor(AT_ONCE) as actors:
            acts = [actors.submit(stage.perform, number) for number in range(AT_ONCE)]
            try:
                reign.reign(seconds)
            finally:
                stage.over.set()
        for act in acts:
            act.result()
        print(dict(reign.done), dict(stage.verdicts))
        status = server.wait_whole()
        assert not status.sessions
        assert not status.queue
        assert all(device.memory_granted == 0 for device in status.devices)
        assert {device_mappings(s.pid) for s in status.servers} <= fresh
        assert stage.verdicts["right"] > 0
        assert stage.verdicts["error"] > 0
        assert server.stop() == 0
        harness.wait_until(lambda: not server.processes(), "end of all processes")


@pytest.mark.slow  # until it has passed many times since adoption last changed
@pytest.mark.timeout(400)
def test_no_answer_is_ever_wrong(plays: list[Play]) -> None:
    chaos(plays, 120.0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_answer_is_ever_wrong_for_long(plays: list[Play]) -> None:
    chaos(plays, 1200.0)
