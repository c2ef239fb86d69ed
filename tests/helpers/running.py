"""Runs a program on this machine's device, through gpuferry, or on a driver that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuferry.guest import paths

from .paths import GUEST_LIBRARY, SIM_LIBRARY, SKIP_LIBRARY

Command = Sequence[str | Path]
TIMEOUT = 120.0


@dataclass(frozen=True)
class Outcome:
    """What a program did."""

    status: int
    stdout: str
    stderr: str


def run(command: Command, environment: Mapping[str, str], timeout: float = TIMEOUT) -> Outcome:
    """Run to the end; a program that does not end is killed, and fails the test that ran it."""
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@cache
def real_gpu() -> bool:
    """Whether the device of this machine is a GPU, by the monitor's own rule."""
    from gpuferry.monitor.devices.choice import choose

    return not choose(None).simulated


def native_environment() -> dict[str, str]:
    """A program's environment on the device of this machine."""
    return dict(os.environ) if real_gpu() else _on_simulated(SIM_LIBRARY)


def skip_environment() -> dict[str, str]:
    """A program's environment on the driver that accepts every call and executes no launch and no copy."""
    return _on_simulated(SKIP_LIBRARY)


def guest_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """A program's environment under the guest library."""
    return {**_preloaded(GUEST_LIBRARY), **settings}


def _on_simulated(library: Path) -> dict[str, str]:
    return {"GPUFERRY_SIM_PYTHON": sys.executable, **_preloaded(library)}


def _preloaded(library: Path) -> dict[str, str]:
    return {**os.environ, **loading(library)}


def loading(library: Path) -> dict[str, str]:
    """What has a program find this driver, with the library in front of it where there is one."""
    front = Path(paths.front(str(library)))  # drivers that only tests have are preloaded themselves
    preloaded = ":".join([*sanitizer_runtime(), str(front if front.exists() else library)])
    searched = ":".join(filter(None, [str(library.parent), os.environ.get("LD_LIBRARY_PATH")]))
    return {"LD_PRELOAD": preloaded, "LD_LIBRARY_PATH": searched}


def server_environment() -> dict[str, str]:
    """The environment of a monitor and its API servers. Without TSan: it sees races in gRPC, whose locks it
    does not see.
    """
    environment = dict(os.environ)
    if os.environ.get("GPUFERRY_SANITIZER") == "thread":
        environment.pop("GPUFERRY_SIM_LIBRARY", None)
    else:
        environment["LD_PRELOAD"] = ":".join(sanitizer_runtime())
    return environment


def sanitizer_runtime() -> list[str]:
    """The library that must come first in LD_PRELOAD when ours are built with a sanitizer."""
    runtime = os.environ.get("GPUFERRY_SANITIZER_RUNTIME")
    return [runtime] if runtime else []
