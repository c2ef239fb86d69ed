"""How long a program waits while its session moves to another device: by its own clock, against what the
machine's memory allows."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import GPUFERRY, ROOT
from tests.helpers.running import guest_environment

from .rows import Row, cost

MIB = 1 << 20
CHUNK = 16 * MIB  # of the destination's copies
THREADS = os.cpu_count() or 1
LARGE = 4096 * MIB
HOT = 64 * MIB  # of them, written by the loop
CAUGHT_UP = 96 * MIB  # copied in the pause at most
MOVES = 5  # the best one counts: the machine is shared, and what disturbs only ever adds
READY_SECONDS = 60.0
MOVING_SECONDS = 60.0
DEVICES = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_DEVICES": "2", "GPUFERRY_SIM_MEMORY": "6GiB"}


def rows() -> list[Row]:
    """The pause of `stop`, which is linear in bytes, and of `precopy`, which hardly grows with them."""
    with monitor("--pool", "1", "--log-level", "warning", environment=DEVICES) as server:
        return [
            cost("migrate_stop_256m", pause(server, 256 * MIB), copying(256 * MIB), "ms"),
            cost("migrate_stop_1g", pause(server, 1024 * MIB), copying(1024 * MIB), "ms"),
            cost("migrate_stop_4g", pause(server, LARGE), copying(LARGE), "ms"),
            cost("migrate_precopy", pause(server, LARGE, HOT), reading(LARGE) + copying(CAUGHT_UP), "ms"),
        ]


def copying(size: int) -> float:
    """Milliseconds to copy as much into new memory, in chunks as large, with all cores."""
    return _floor("copy", size)


def reading(size: int) -> float:
    """Milliseconds to read as much once with all cores."""
    return _floor("read", size)


def _floor(what: str, size: int) -> float:
    program = toolchain.program(ROOT / "bench" / "micro" / "memory.c", ["-O3", "-march=native"])
    command = [str(program), what, str(size), str(CHUNK), str(THREADS)]
    return 1000 * min(float(subprocess.check_output(command, text=True)) for _ in range(MOVES))


def pause(server: Monitor, size: int, hot: int = 0) -> float:
    """Milliseconds that a program's loop stands still, by its own clock, when it moves to and fro."""
    strategy = "precopy" if hot else "stop"
    with resident(server, size, hot) as program:
        stood_still(program)
        found = []
        for move in range(MOVES):
            migrate(server, session(server), 1 - move % 2, strategy)
            found.append(stood_still(program))
    return 1000 * min(found)


@contextmanager
def resident(server: Monitor, size: int, hot: int) -> Iterator[subprocess.Popen[str]]:
    """The program, which must find its memory right at the end."""
    with subprocess.Popen(
        [resident_program(), str(size), str(hot)],
        env=guest_environment(server.settings()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            yield program
            output, _ = program.communicate()
        except BaseException:
            program.kill()
            raise
    if program.returncode != 0:
        raise RuntimeError(f"the program that moved failed:\n{output}")


@cache
def resident_program() -> Path:
    return toolchain.program(ROOT / "bench" / "micro" / "resident.c")


def stood_still(program: subprocess.Popen[str]) -> float:
    """Seconds, since this was asked last."""
    assert program.stdin
    assert program.stdout
    program.stdin.write("\n")
    program.stdin.flush()
    for line in program.stdout:
        if line.startswith("measured pause "):
            return float(line.split()[-1])
    raise RuntimeError("the program that moved ended early")


def session(server: Monitor) -> int:
    """The only one there is."""
    (found,) = json.loads(gpuferry(server, "session", "list", "--json"))["sessions"]
    return int(found["id"])


def migrate(server: Monitor, session: int, device: int, strategy: str) -> None:
    """Once the device has an idle API server."""
    deadline = time.monotonic() + READY_SECONDS
    while not server.status()["devices"][device]["pool_idle"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no idle API server on device {device} within {READY_SECONDS:g} s")
        time.sleep(0.1)
    gpuferry(server, "migrate", str(session), "--to", f"gpu:{device}", "--strategy", strategy)


def gpuferry(server: Monitor, *words: str) -> str:
    done = subprocess.run(
        [str(GPUFERRY), *words, "--control", server.control],
        env={**os.environ, **server.settings()},
        capture_output=True,
        text=True,
        timeout=MOVING_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"gpuferry {' '.join(words)}: {done.stderr}")
    return done.stdout
