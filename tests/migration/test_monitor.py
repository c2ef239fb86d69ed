"""Real programs, real monitors, real API servers: moved between rounds, to wherever a session can go."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.specs._generated import control_pb2

from tests.helpers.tokens import token_of
from tests.migration.rounds import migrate, native, program, resume, same_pointers, session_of
from tests.monitor import harness

TOKEN = token_of("both monitors")
PROGRAMS = (
    "moving_structures",
    "moving_functions",
    "moving_symbols",
    "moving_streams",
    "moving_settings",
    "moving_contexts",
    "moving_identity",
)
ROUNDS = 4
STRATEGIES = (1, 2, 3)
DONE, RUNNING = control_pb2.MIGRATION_STATE_DONE, control_pb2.MIGRATION_STATE_RUNNING
SIMULATED: dict[str, Any] = {
    "GPUFERRY_SIM_DEVICES": "2",
    "GPUFERRY_SIM_MEMORY": "512MiB",
    "GPUFERRY_SIM_DIRTY": "1",
    "GPUFERRY_TOKEN": TOKEN,
}
pytestmark = pytest.mark.timeout(180)

undisturbed = functools.cache(native)


@pytest.fixture(scope="module")
def here() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", server=None, **SIMULATED) as running:
        yield running


@pytest.fixture(scope="module")
def there() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", server=None, **SIMULATED) as running:
        yield running


def at_rest(monitor: harness.Monitor) -> None:
    """Two idle API servers, and nothing else: a keeper is told of the end of its session after them."""
    monitor.wait_for(
        lambda s: (
            [(one.pool_idle, one.memory_granted) for one in s.devices] == [(1, 0), (1, 0)] and not s.sessions
        ),
        "rest",
    )


@pytest.fixture(autouse=True)
def whole(here: harness.Monitor) -> Iterator[None]:
    """Every device is as it was, after each test too."""
    at_rest(here)
    yield
    at_rest(here)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_between_devices(here: harness.Monitor, name: str) -> None:
    with program(name, here, ROUNDS) as running:
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            before = session_of(here, running.pid)
            strategy = STRATEGIES[number % len(STRATEGIES)]
            done = migrate(here, before.id, device=1 - before.device, strategy=strategy)
            assert done.state == DONE, done.reason
            assert done.report.mapped_bytes > 0
            after = session_of(here, running.pid)
            assert (after.id, after.device) == (before.id, 1 - before.device)
            assert after.launches >= before.launches
            running.go()
        status, stdout, stderr = running.finish()
    assert stdout.splitlines() == undisturbed(name, ROUNDS).splitlines()
    assert status == 0, stderr
    same_pointers(stderr)


@pytest.mark.some(1)
@pytest.mark.some(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_into_a_file_and_out_of_it(here: harness.Monitor, name: str, tmp_path: Path) -> None:
    with program(name, here, ROUNDS) as running:
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            before = session_of(here, running.pid)
            file = tmp_path / f"snapshot{number}"
            done = migrate(here, before.id, file=str(file))
            assert done.state == DONE, done.reason
            here.wait_idle(2)
            assert session_of(here, running.pid).state == control_pb2.SESSION_STATE_SUSPENDED
            if number % 2:  # it calls while it is suspended, and waits
                running.go()
            done = resume(here, file, device=1 - before.device)
            assert done.state == DONE, done.reason
            assert number % 2 or session_of(here, running.pid).device == 1 - before.device
            if not number % 2:
                running.go()
            file.unlink()
        status, stdout, stderr = running.finish()
    assert stdout.splitlines() == undisturbed(name, ROUNDS).splitlines()
    assert status == 0, stderr
    same_pointers(stderr)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.some(1)
@pytest.mark.parametrize("loss", ["error", "reconnect"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_to_another_server_and_back(
    here: harness.Monitor, there: harness.Monitor, name: str, loss: str
) -> None:
    there.wait_idle(2)
    with program(name, here, ROUNDS, GPUFERRY_ON_LOSS=loss) as running:
        monitors = [here, there]
        for number in range(1, ROUNDS + 1):
            running.to_round(number)
            now, then = monitors
            session = now.wait_for(
                lambda s: [
                    one
                    for one in s.sessions
                    if one.guest_pid == running.pid and one.state == control_pb2.SESSION_STATE_RUNNING
                ],
                "its session",
            )
            (mine,) = [
                one
                for one in session.sessions
                if one.guest_pid == running.pid and one.state == control_pb2.SESSION_STATE_RUNNING
            ]
            done = migrate(now, mine.id, server=then.tcp)
            assert done.state == DONE, done.reason
            running.go()
            monitors.reverse()
        status, stdout, stderr = running.finish()
    assert stdout.splitlines() == undisturbed(name, ROUNDS).splitlines()
    assert status == 0, stderr
    same_pointers(stderr)
    there.wait_idle(2)


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("migration", ["dgsf", "auto"])
def test_one_of_two_on_a_device_moves_by_itself(migration: str) -> None:
    options = ("--pool", "2", "--policy", "best-fit", "--memory", "100MiB", "--migration", migration)
    with harness.monitor(*options, server=None, **SIMULATED) as monitor:
        monitor.wait_idle(4)
        rounds = 100
        with (
            program("moving_symbols", monitor, rounds) as one,
            program("moving_symbols", monitor, rounds) as two,
        ):
            one.to_round(1)
            two.to_round(1)
            assert [session.device for session in monitor.status().sessions] == [0, 0]
            for number in range(1, rounds + 1):
                one.go()
                two.go()
                status = monitor.status()
                if {session.device for session in status.sessions} == {0, 1}:
                    # Who has the session now may say so before who had it says that it is over.
                    status = monitor.wait_for(lambda s: s.migrations[0].state != RUNNING, "the end of it")
                    break
                one.to_round(number + 1)
                two.to_round(number + 1)
                time.sleep(0.1)  # it is the launches of some time that count, not their number
            assert status.migrations[0].state == DONE, status
            for each in (one, two):
                assert each.process.stdin
                each.process.stdin.close()
                each.process.stdin = None
                code, stdout, stderr = each.finish()
                assert stdout.splitlines() == undisturbed("moving_symbols", rounds).splitlines()
                assert code == 0, stderr
