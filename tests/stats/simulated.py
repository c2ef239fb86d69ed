"""Processes on the simulated devices, and what NVML says of them."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuferry.guest import paths

HERE = Path(__file__).parent
DEVICE = struct.Struct("QQ")  # live_file.h: busy_ns, lost
FIRST_DEVICE = 8  # behind the magic
SIZE = FIRST_DEVICE + 64 * DEVICE.size + 2048 * (8 + 64 * DEVICE.size)


def environment(figures: Path, **settings: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("GPUFERRY_")},
        "GPUFERRY_SIM_STATS": str(figures),
        "GPUFERRY_SIM_PYTHON": sys.executable,
        **settings,
    }


class User:
    """See device_user.py."""

    def __init__(self, figures: Path, ordinal: int = 0, **settings: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "device_user.py"), paths.simulated_driver(), str(ordinal)],
            env=environment(figures, **settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == "ok\n"

    def tell(self, order: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        self._answer()

    def __enter__(self) -> User:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def sampler(figures: Path, interval: float = 0.11, **settings: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The monitor's sampler process: what it says, line by line."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "gpuferry.monitor.devices.sampler"),
            *("--interval", str(interval), "--library", paths.simulated_nvml()),
        ],
        env=environment(figures, **settings),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        yield (json.loads(line) for line in process.stdout)
    finally:
        process.kill()
        process.communicate()


def lose(figures: Path, ordinal: int, lost: bool = True) -> None:
    """As if the device had fallen off the bus, or were back."""
    with figures.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        place = FIRST_DEVICE + ordinal * DEVICE.size
        busy, _ = DEVICE.unpack_from(content, place)
        DEVICE.pack_into(content, place, busy, int(lost))
