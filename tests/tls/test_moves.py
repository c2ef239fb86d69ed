"""Sessions whose guests come over TLS: between devices, through a file, to another GPU server and back."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.specs._generated import control_pb2

from tests.helpers.certificates import Certificates
from tests.helpers.tokens import token_of
from tests.migration.rounds import Program, migrate, native, program, resume, session_of
from tests.monitor import harness

TOKEN = token_of("both monitors")
NAME = "moving_symbols"
ROUNDS = 3
DONE, RUNNING = control_pb2.MIGRATION_STATE_DONE, control_pb2.SESSION_STATE_RUNNING
SIMULATED: dict[str, Any] = {
    "GPUFERRY_SIM_DEVICES": "2",
    "GPUFERRY_SIM_MEMORY": "512MiB",
    "GPUFERRY_TOKEN": TOKEN,
}
pytestmark = pytest.mark.timeout(180)

undisturbed = functools.cache(native)


@pytest.fixture(scope="module")
def here(certificates: Certificates) -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", *certificates.flags(), server=None, **SIMULATED) as running:
        yield running


@pytest.fixture(scope="module")
def there(certificates: Certificates) -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", *certificates.flags(), server=None, **SIMULATED) as running:
        yield running


def settings(monitor: harness.Monitor, certificates: Certificates, loss: str) -> dict[str, str]:
    assert monitor.tcp.startswith("tls://")
    return {
        "GPUFERRY_MONITOR": monitor.tcp,
        "GPUFERRY_TLS_CA": str(certificates.authority),
        "GPUFERRY_ON_LOSS": loss,
    }


def ended_well(running: Program) -> None:
    status, stdout, stderr = running.finish()
    assert stdout.splitlines() == undisturbed(NAME, ROUNDS).splitlines()
    assert status == 0, stderr


@pytest.mark.some(1)
@pytest.mark.parametrize("loss", ["error", "reconnect"])
def test_between_devices(here: harness.Monitor, certificates: Certificates, loss: str) -> None:
    here.wait_idle(2)
    with program(NAME, here, ROUNDS, **settings(here, certificates, loss)) as running:
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            before = session_of(here, running.pid)
            done = migrate(here, before.id, device=1 - before.device)
            assert done.state == DONE, done.reason
            assert session_of(here, running.pid).device == 1 - before.device
            running.go()
        ended_well(running)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("loss", ["error", "reconnect"])
def test_into_a_file_and_out_of_it(
    here: harness.Monitor, certificates: Certificates, loss: str, tmp_path: Path
) -> None:
    here.wait_idle(2)
    with program(NAME, here, ROUNDS, **settings(here, certificates, loss)) as running:
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            file = tmp_path / f"snapshot{number}"
            done = migrate(here, session_of(here, running.pid).id, file=str(file))
            assert done.state == DONE, done.reason
            here.wait_idle(2)
            if number % 2:  # it calls while it is suspended, and waits
                running.go()
            done = resume(here, file, device=number % 2)
            assert done.state == DONE, done.reason
            if not number % 2:
                running.go()
        ended_well(running)


@pytest.mark.some(1)
@pytest.mark.parametrize("loss", ["error", "reconnect"])
def test_to_another_server_and_back(
    here: harness.Monitor, there: harness.Monitor, certificates: Certificates, loss: str
) -> None:
    here.wait_idle(2)
    there.wait_idle(2)
    with program(NAME, here, ROUNDS, **settings(here, certificates, loss)) as running:
        monitors = [here, there]
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            now, then = monitors

            def mine(status: Any) -> list[Any]:
                return [s for s in status.sessions if s.guest_pid == running.pid and s.state == RUNNING]

            (session,) = mine(now.wait_for(mine, "its session"))
            done = migrate(now, session.id, server=then.tcp)
            assert done.state == DONE, done.reason
            running.go()
            monitors.reverse()
        ended_well(running)


@pytest.mark.system
def test_it_does_not_go_on_in_clear(here: harness.Monitor, certificates: Certificates) -> None:
    """A session that came over TLS is not sent where there is none: it goes on where it is."""
    with (
        harness.monitor("--pool", "1", server=None, **SIMULATED) as clear,
        program(NAME, here, ROUNDS, **settings(here, certificates, "error")) as running,
    ):
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            done = migrate(here, session_of(here, running.pid).id, server=clear.tcp)
            assert done.state != DONE
            assert "TLS" in done.reason
            running.go()
        ended_well(running)
