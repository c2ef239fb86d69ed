"""The commands as the README shows them, with the real API server and the real libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.helpers import toolchain
from tests.helpers.programs import ROUND_TRIP, program
from tests.monitor import harness

PROGRAM = ROUND_TRIP + "sys.exit(42)\n"
COMMAND = [sys.executable, "-c", PROGRAM]


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", server=None) as running:
        yield running


def ran(completed: subprocess.CompletedProcess[str]) -> None:
    assert (completed.returncode, completed.stdout, completed.stderr) == (42, "same\n", "")


def test_natively(monitor: harness.Monitor) -> None:
    ran(monitor.run("sim", "--", *COMMAND))


def test_remotely(monitor: harness.Monitor) -> None:
    before = monitor.wait_idle(1).monitor.sessions_granted
    ran(monitor.run("run", "--function", "e2e", "--memory", "64MiB", "--", *COMMAND))
    assert monitor.wait_idle(1).monitor.sessions_granted == before + 1


def test_by_hand(monitor: harness.Monitor) -> None:
    library = monitor.run("env", "--preload").stdout.strip()
    settings = {"LD_PRELOAD": library, "GPUFERRY_MONITOR": monitor.tcp, "GPUFERRY_TOKEN": monitor.token}
    ran(subprocess.run(COMMAND, env=os.environ | settings, capture_output=True, text=True, check=False))


@pytest.mark.system
def test_locally(monitor: harness.Monitor) -> None:
    ran(monitor.run("run", "--local", "--", *COMMAND, XDG_RUNTIME_DIR=monitor.runtime))


def test_statistics_of_the_guest(monitor: harness.Monitor) -> None:
    path = os.path.join(monitor.runtime, "stats.json")
    ran(monitor.run("run", "--stats", path, "--", *COMMAND))
    with open(path) as file:
        assert json.load(file)["calls"]["sync"] > 0


def test_doctor_finds_nothing_wrong(monitor: harness.Monitor) -> None:
    completed = monitor.run("doctor", "--json")
    report = json.loads(completed.stdout)
    assert completed.returncode == 0, report
    assert report["ok"]
    assert {check["result"] for check in report["checks"]} <= {"ok", "note"}


@pytest.mark.system
def test_a_failure_is_told_once(monitor: harness.Monitor) -> None:
    """Program and server share a terminal, and what a kernel did wrong is said by the program."""
    trap = program("trap")
    built = str(toolchain.program(trap.source, trap.flags))
    done = monitor.run("run", "--local", "--device", "sim", "--", built, XDG_RUNTIME_DIR=monitor.runtime)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("gpuferry sim[") == 1, done.stderr
