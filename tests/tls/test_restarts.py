"""Monitors that are killed and followed by others, with other certificates, while guests work over TLS."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.service import authority
from gpuferry.specs._generated import control_pb2

from tests.helpers.certificates import Certificates
from tests.helpers.tokens import token_of
from tests.migration.rounds import Program, has_begun, migrate, native, program, session_of
from tests.monitor import harness
from tests.resume.cutter import Cutter

NAME = "moving_symbols"
ROUNDS = 3
OPTIONS = ("--pool", "1", "--orphan-grace", "60")
SIMULATED: dict[str, Any] = {
    "GPUFERRY_SIM_DEVICES": "2",
    "GPUFERRY_SIM_MEMORY": "512MiB",
    "GPUFERRY_TOKEN": token_of("the monitors of a restart"),
}
pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

undisturbed = functools.cache(native)


@pytest.fixture
def own(certificates: Certificates, tmp_path: Path) -> Certificates:
    """Files that a test may replace."""
    shutil.copytree(certificates.folder, tmp_path / "tls")
    return Certificates(tmp_path / "tls")


@pytest.fixture
def monitor(own: Certificates) -> Iterator[harness.Monitor]:
    with harness.monitor(*OPTIONS, *own.flags(), server=None, **SIMULATED) as running:
        running.wait_idle(2)
        yield running


def another(monitor: harness.Monitor, own: Certificates) -> harness.Monitor:
    """In its place, once that was killed in the middle of everything, with a certificate of its own."""
    name = f"server{next(NUMBERS)}"
    authority.issue(own.folder, name, ["localhost", "127.0.0.1"])
    monitor.process.kill()
    return monitor.succeed(*OPTIONS, *own.flags(name))


NUMBERS = itertools.count(1)


def guest(own: Certificates, address: str, loss: str) -> dict[str, str]:
    return {
        "GPUFERRY_MONITOR": address,
        "GPUFERRY_TLS_CA": str(own.authority),
        "GPUFERRY_ON_LOSS": loss,
    }


def ended_well(running: Program) -> None:
    status, stdout, stderr = running.finish()
    assert stdout.splitlines() == undisturbed(NAME, ROUNDS).splitlines()
    assert status == 0, stderr


@pytest.mark.parametrize("loss", ["error", "reconnect"])
def test_a_program_notices_no_restart(monitor: harness.Monitor, own: Certificates, loss: str) -> None:
    """Nor that the next monitor, which has its session only from its API server, moves it."""
    with program(NAME, monitor, ROUNDS, **guest(own, monitor.tcp, loss)) as running:
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            has_begun(monitor, session_of(monitor, running.pid).id)
            monitor = another(monitor, own)
            monitor.wait_for(lambda status: status.sessions, "adoption")
            before = session_of(monitor, running.pid)
            monitor.wait_for(lambda status: status.devices[1].pool_idle or status.devices[0].pool_idle, "one")
            request = {"device": 1 - before.device}
            done = migrate(monitor, before.id, **request)
            assert done.state == control_pb2.MIGRATION_STATE_DONE, done.reason
            running.go()
        ended_well(running)


def test_who_lost_the_connection_comes_back_to_another_certificate(
    monitor: harness.Monitor, own: Certificates
) -> None:
    with Cutter(monitor.tcp) as between:
        settings = guest(own, f"tls://{between.address}", "reconnect")
        with program(NAME, monitor, ROUNDS, **settings) as running:
            for number in range(1, ROUNDS + 1):
                running.to_round(number)
                monitor = another(monitor, own)
                between.target = monitor.tcp
                between.cut()
                running.go()
            ended_well(running)


def test_nobody_comes_back_to_a_server_of_another_authority(
    monitor: harness.Monitor, own: Certificates, tmp_path: Path
) -> None:
    """The program has lost its server, and nothing of it goes there, or in clear."""
    others = Certificates.make(tmp_path / "others")
    with Cutter(monitor.tcp) as between:
        settings = guest(own, f"tls://{between.address}", "reconnect")
        with program(NAME, monitor, ROUNDS, **settings) as running:
            running.to_round(1)
            monitor.process.kill()
            successor = monitor.succeed(*OPTIONS, *others.flags())
            between.target = successor.tcp
            between.cut()
            running.go()
            status, _, stderr = running.finish()
            assert status != 0
            assert "certificate" in stderr
