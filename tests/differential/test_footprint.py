"""What gpuferry costs in memory, on both sides."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor
from tests.helpers.paths import GUEST_LIBRARY
from tests.helpers.running import real_gpu, run, skip_environment
from tests.monitor.harness import wait_until

MIB = 1 << 20


def test_guest(shared_monitor: Monitor) -> None:
    """The guest library adds less than 5 MiB to a program; with TLS, the machine's libssl 5 more."""
    executable = toolchain.program(programs.program("footprint").source)
    environment = {**os.environ, **shared_monitor.settings(), "LD_LIBRARY_PATH": str(GUEST_LIBRARY.parent)}
    outcome = run([executable], environment)
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    added = re.search(r"^added (\d+)$", outcome.stdout, re.MULTILINE)
    assert added
    assert int(added[1]) < (5 if shared_monitor.authority is None else 10) * MIB


def test_without_work_the_guest_program_fails() -> None:
    """It measures a program that did its work."""
    executable = toolchain.program(programs.program("footprint").source)
    assert run([executable], skip_environment()).status == 1


def test_idle_api_server(shared_monitor: Monitor) -> None:
    """An API server on the simulated device that waits for a session has less than 120 MiB resident."""
    if real_gpu():
        pytest.skip("needs the simulated device: a GPU's driver alone takes more")

    def idle() -> Any:
        """Once each of them has told: one may just be starting, or be slow to answer."""
        servers = shared_monitor.status()["servers"]
        told = servers and all(server["state"] == "idle" and int(server["rss"]) for server in servers)
        return servers if told else None

    servers = wait_until(idle, "idle API servers")
    assert all(int(server["rss"]) < 120 * MIB for server in servers), servers
