"""Runs `program.py` through gpuferry (or natively) and operates it."""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import sys
from pathlib import Path

from gpuferry.guest import launch
from gpuferry.guest.endpoint import Endpoint
from gpuferry.guest.paths import simulated_driver

from tests.adversity.program import pattern
from tests.helpers import processes
from tests.monitor.harness import DEADLINE, Monitor

PROGRAM = Path(__file__).with_name("program.py")


class Hangs(AssertionError):
    """A call that neither succeeds nor fails."""


class Program:
    """Use as a context manager; the process is gone afterwards."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def tell(self, verb: str, *arguments: int) -> None:
        """Without waiting for the answer."""
        assert self.process.stdin
        self.process.stdin.write(" ".join([verb, *map(str, arguments)]).encode() + b"\n")

    def answer(self, seconds: float = DEADLINE) -> tuple[int, str]:
        """Status and result of the oldest call that was not answered yet."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            stand = processes.where_they_stand()
            raise Hangs(f"{self.process.pid}: no answer within {seconds:g} s; {self._said()}\n{stand}")
        line = self.process.stdout.readline()
        assert line, f"the program is gone: {self.process.wait()}, {self.process.stderr.read()!r}"  # type: ignore[union-attr]
        status, _, result = line.decode().strip().partition(" ")
        return int(status), result

    def _said(self) -> str:
        """Of one that hangs."""
        self.process.kill()
        _, errors = self.process.communicate()
        return f"it said {errors.decode()!r}"

    def call(self, verb: str, *arguments: int) -> tuple[int, str]:
        self.tell(verb, *arguments)
        return self.answer()

    def must(self, verb: str, *arguments: int) -> str:
        status, result = self.call(verb, *arguments)
        assert status == 0, f"{verb} answered with error {status}"
        return result

    def finish(self) -> tuple[int, str]:
        """End of input: exit status and what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, errors.decode()


def _sanitized() -> dict[str, str]:
    """A sanitizer's runtime insists on being the first library."""
    runtime = os.environ.get("GPUFERRY_SANITIZER_RUNTIME")
    return {"LD_PRELOAD": runtime} if runtime else {}


def remote(monitor: Monitor, address: str | None = None, **settings: str) -> Program:
    """Through gpuferry, by another address if a proxy stands before the monitor."""
    endpoint = Endpoint(address or monitor.address, "test", monitor.token)
    return Program(launch.guest_environment(_sanitized() | launch.guest_settings(endpoint) | settings))


def native() -> Program:
    """On the simulated device of this machine."""
    environment = launch.clean_environment() | _sanitized() | {"GPUFERRY_SIM_PYTHON": sys.executable}
    return Program(launch.inject(environment, simulated_driver()))


def digest(seed: int, size: int) -> str:
    """Of what `write` sends."""
    return hashlib.sha256(pattern(seed, size)).hexdigest()


def zeros(size: int) -> str:
    return hashlib.sha256(bytes(size)).hexdigest()
