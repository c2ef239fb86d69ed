"""Programs with known answers, one after another in each of a few threads, and what came of them."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.adversity.running import Program, digest
from tests.chaos.judge import Wrong, judge
from tests.chaos.server import TOKEN
from tests.helpers.running import Outcome, guest_environment, native_environment, run

RETRY_SECONDS = 0.2  # a monitor takes a while to come back
ENDS_WITHIN = 90.0  # seconds, whatever breaks
RECONNECT = (("GPUFERRY_ON_LOSS", "reconnect"),)
LASTS_SECONDS = 20.0
LOST = (46, 802)  # CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_SYSTEM_NOT_READY
SIZE = 5 << 20  # bytes that a resident writes and reads,
BALLAST = 86 << 20  # and that it holds all the time, where memory shall be short,
LOOKS = 0.1  # and looks at in so many of its rounds


@dataclass(frozen=True)
class Play:
    """A program, and what it says when all is well."""

    name: str
    command: tuple[str, ...]
    right: Outcome


@dataclass(frozen=True)
class Way:
    """How a program finds a GPU server, and what it does when it loses it."""

    name: str
    address: str
    settings: tuple[tuple[str, str], ...] = ()

    def environment(self) -> dict[str, str]:
        return guest_environment(
            {"GPUFERRY_MONITOR": self.address, "GPUFERRY_TOKEN": TOKEN, **dict(self.settings)}
        )


@dataclass
class Part:
    """A program that runs now."""

    play: Play
    process: subprocess.Popen[Any]
    killed: bool = False


def rehearse(name: str, *command: str | Path) -> Play:
    right = run(command, native_environment())
    assert right.status == 0, right
    return Play(name, tuple(map(str, command)), right)


def perform(play: Play, way: Way, parts: list[Part]) -> str:
    """`right`, `error` or `killed`; raises Wrong. While it runs it is among the parts."""
    part = Part(
        play,
        subprocess.Popen(
            play.command,
            env=way.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ),
    )
    parts.append(part)
    try:
        stdout, stderr = part.process.communicate(timeout=ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        raise Wrong(f"{play.name} by {way.name} hangs") from None
    finally:
        parts.remove(part)
        part.process.kill()
    if part.killed:
        return "killed"
    return judge(f"{play.name} by {way.name}", play.right, Outcome(part.process.returncode, stdout, stderr))


class Stage:
    """Which program comes when, and which way, is drawn from the seed."""

    def __init__(self, plays: Sequence[Play], ways: Sequence[Way], seed: int) -> None:
        self.parts: list[Part] = []
        self.verdicts: Counter[tuple[str, str]] = Counter()
        self.over = threading.Event()
        self._plays, self._ways, self._seed = plays, ways, seed

    def act(self, number: int) -> None:
        """Until it is over, or something was wrong, which ends it for all."""
        chance = random.Random(f"actor {number} of {self._seed}")
        try:
            while not self.over.is_set():
                play, way = chance.choice(self._plays), chance.choice(self._ways)
                verdict = perform(play, way, self.parts)
                self.verdicts[way.name, verdict] += 1
                if verdict == "error":
                    self.over.wait(RETRY_SECONDS)
        finally:
            self.over.set()

    def reside(self, resident: Resident) -> None:
        """One session for all the time, to which nothing may happen."""
        try:
            while not self.over.is_set():
                resident.work()
        finally:
            self.over.set()

    def travel(self, number: int) -> None:
        """One session after another, each for a while: what is there long is moved most."""
        chance = random.Random(f"traveller {number} of {self._seed}")
        try:
            while not self.over.is_set():
                way = chance.choice(self._ways)
                try:
                    with Resident(way, chance.getrandbits(30), BALLAST) as resident:
                        until = time.monotonic() + chance.uniform(1.0, LASTS_SECONDS)
                        while not self.over.is_set() and time.monotonic() < until:
                            resident.work()
                        resident.finish()
                    self.verdicts[way.name, "right"] += 1
                except Lost:
                    self.verdicts[way.name, "error"] += 1
                    self.over.wait(RETRY_SECONDS)
        finally:
            self.over.set()


class Lost(Exception):
    """A program got the error that CUDA has for it: its GPU server is gone."""


class Resident:
    """A program that holds memory. If neither it nor its API server is killed, it goes on whatever else is.
    A context manager."""

    def __init__(self, way: Way, seed: int, ballast: int = 0) -> None:
        self.way = way
        self.rounds = 0
        self._size = ballast
        self._chance = random.Random(f"resident by {way.name} of {seed}")
        self._program = Program({**way.environment(), "GPUFERRY_LOG": "info"})
        self.process = self._program.process
        self.pid = self.process.pid

    def __enter__(self) -> Resident:
        try:
            self._must("start")
            if self._size:
                self._ballast = int(self._must("alloc", self._size))
                self._weight = self._chance.getrandbits(30)
                self._must("write", self._ballast, self._size, self._weight)
            self._kept, self._content = int(self._must("alloc", SIZE)), self._chance.getrandbits(30)
            self._must("write", self._kept, SIZE, self._content)
        except BaseException:
            self._program.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._program.__exit__()

    def work(self) -> None:
        """Something that it wrote long ago is there, and something new comes back right."""
        seed = self._chance.getrandbits(30)
        new = int(self._must("alloc", SIZE))
        self._must("write", new, SIZE, seed)
        self._is(new, seed)
        self._is(self._kept, self._content)
        if self._size and self._chance.random() < LOOKS:
            self._is(self._ballast, self._weight, self._size)
        self._must("free", self._kept)
        self._kept, self._content = new, seed
        self.rounds += 1
        time.sleep(self._chance.uniform(0.0, 0.2))

    def finish(self) -> None:
        """Its last words are right, and there were no complaints."""
        self.work()
        if self._size:
            self._is(self._ballast, self._weight, self._size)
        status, errors = self._program.finish()
        if status != 0:
            raise Wrong(f"resident by {self.way.name}: exit status {status}: {errors}")

    def _must(self, verb: str, *arguments: int) -> str:
        status, result = self._program.call(verb, *arguments)
        if status:
            errors = self._program.finish()[1]
            text = f"resident by {self.way.name}: {verb} after {self.rounds} rounds: {status}: {errors}"
            raise (Lost if status in LOST else Wrong)(text)
        return result

    def _is(self, address: int, seed: int, size: int = SIZE) -> None:
        if self._must("read", address, size) != digest(seed, size):
            raise Wrong(f"resident by {self.way.name}: not what it wrote, after {self.rounds} rounds")
