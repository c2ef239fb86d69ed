"""A monitor with fake API servers whose sessions move."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuferry.specs._generated import control_pb2

from tests.helpers.paths import ROOT
from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest

FAKE = f"{sys.executable} -m tests.monitor.fake_mover"
TOKEN = token_of("both monitors")
MIB = 1 << 20
STATE = control_pb2
SURPLUS = {"gpuferry.monitor.pool.pool:SURPLUS_SECONDS": 0.2}


@contextlib.contextmanager
def whole(monitor: harness.Monitor) -> Iterator[None]:
    """Two devices have one API server each and nothing else, before and after."""
    monitor.wait_idle(2)
    yield
    for name in ("go", "refuse"):
        Path(monitor.runtime, name).unlink(missing_ok=True)
    status = monitor.wait_idle(2)
    assert not status.sessions
    assert [device.memory_granted for device in status.devices] == [0, 0]


def start(
    *options: str,
    devices: int = 2,
    constants: Mapping[str, float] = harness.NONE,
    **changes: str | None,
) -> Any:
    settings: dict[str, Any] = {
        "GPUFERRY_SIM_DEVICES": str(devices),
        "GPUFERRY_KEEPER": FAKE,
        "GPUFERRY_TOKEN": TOKEN,
        "PYTHONPATH": str(ROOT),
    }
    return harness.monitor(*options, server=FAKE, constants=constants, **settings | changes)


def guest(monitor: harness.Monitor, function: str = "", **changes: Any) -> FakeGuest:
    return FakeGuest(monitor.address, TOKEN, function=function.encode(), memory=100 * MIB, **changes)


def session(monitor: harness.Monitor) -> Any:
    (one,) = monitor.status().sessions
    return one


def migrate(monitor: harness.Monitor, number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return monitor.run("migrate", str(number), *arguments)


def granted(monitor: harness.Monitor) -> list[int]:
    return [device.memory_granted // MIB for device in monitor.status().devices]


def settled(monitor: harness.Monitor, expected: list[int]) -> Any:
    return monitor.wait_for(
        lambda s: [device.memory_granted // MIB for device in s.devices] == expected, f"{expected} granted"
    )


def replace(monitor: harness.Monitor) -> harness.Monitor:
    monitor.process.kill()
    return monitor.succeed("--pool", "1", "--orphan-grace", "60")
