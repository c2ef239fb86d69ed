"""Real programs that are always busy take turns on the simulated device, whoever dies or moves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.specs._generated import control_pb2

from tests.helpers import toolchain
from tests.helpers.paths import ROOT
from tests.helpers.running import guest_environment
from tests.helpers.tokens import token_of
from tests.migration.rounds import has_begun, migrate, resume
from tests.monitor import harness

FUNCTION = ROOT / "bench" / "workloads" / "function" / "function.cu"
DONE = control_pb2.MIGRATION_STATE_DONE
LONG = "3600"  # seconds of work: more than a test lasts
SETTINGS: dict[str, Any] = {
    "GPUFERRY_SIM_DEVICES": "2",
    "GPUFERRY_SIM_MEMORY": "512MiB",
    "GPUFERRY_SHARES": "a=300:600,b=400:600,c=300:500",
    "GPUFERRY_TOKEN": token_of("turns"),
}
# A window is a tenth of the usual one, and so is a quota.
TIME = ("--sharing", "time", "--window", "1", "--quota", "0.01", "--policy", "best-fit")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def shared() -> Iterator[harness.Monitor]:
    with harness.monitor(*TIME, "--pool", "3", server=None, **SETTINGS) as running:
        running.wait_idle(6)
        yield running


@pytest.fixture
def monitor(shared: harness.Monitor) -> Iterator[harness.Monitor]:
    yield shared
    shared.wait_for(lambda s: not s.sessions, "the end of all sessions")
    shared.wait_idle(6)


class Program:
    """One that computes for so long, and checks its memory at the end."""

    def __init__(self, monitor: harness.Monitor, name: str, work: str = LONG) -> None:
        settings = {"GPUFERRY_MONITOR": monitor.address, "GPUFERRY_TOKEN": monitor.token}
        self.name = name
        self.process = subprocess.Popen(
            [str(toolchain.program(FUNCTION)), "0", work, "1.0", "1"],
            env=guest_environment({**settings, "GPUFERRY_FUNCTION": name}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def session(self, status: Any) -> Any:
        found = [one for one in status.sessions if one.guest_pid == self.process.pid]
        return found[0] if found else None

    def finish(self) -> None:
        _, stderr = self.process.communicate(timeout=harness.DEADLINE)
        assert self.process.returncode == 0, stderr


@contextlib.contextmanager
def programs(monitor: harness.Monitor, names: str, work: str = LONG) -> Iterator[list[Program]]:
    """These, with a session each; none of them is left afterwards."""
    running: list[Program] = []
    try:
        for name in names:
            running.append(Program(monitor, name, work))
            monitor.wait_for(running[-1].session, f"the session of {name}")
        yield running
    finally:
        for each in running:
            each.process.kill()
            each.process.communicate()


def shares(those: list[Program], expected: list[float]) -> Callable[[Any], bool]:
    """Whether what they have of the window is within 0.03 of this."""

    def come(status: Any) -> bool:
        found = [each.session(status) for each in those]
        return all(
            one is not None and abs(one.turns.share - share) <= 0.03
            for one, share in zip(found, expected, strict=True)
        )

    return come


def goes_on(monitor: harness.Monitor, *those: Program) -> None:
    """They have turns again and again."""
    before = {each.name: each.session(monitor.status()).turns.turns for each in those}

    def more(status: Any) -> bool:
        found = [(each.session(status), before[each.name]) for each in those]
        return all(one is not None and one.turns.turns >= turns + 5 for one, turns in found)

    monitor.wait_for(more, "turns")


def arbiter_of(monitor: harness.Monitor) -> int:
    """Its process id, once it runs. Where there is none the status says 0: to kill() our own group."""
    status = monitor.wait_for(lambda s: s.devices[0].turns.arbiter, "an arbiter")
    return int(status.devices[0].turns.arbiter)


def holder(monitor: harness.Monitor, those: list[Program], working: bool) -> Program:
    """One of those that has a turn, or waits for one, as just seen."""
    found: list[Program] = []

    def seen(status: Any) -> bool:
        sessions = [(each, each.session(status)) for each in those]
        found[:] = [each for each, one in sessions if one and one.turns.working == working]
        return bool(found)

    monitor.wait_for(seen, "a turn")
    return found[0]


@pytest.mark.system
def test_the_shares_of_kubeshares_figure_6(monitor: harness.Monitor) -> None:
    with programs(monitor, "a") as (a,):
        monitor.wait_for(shares([a], [0.6]), "A at its limit")
        with programs(monitor, "b") as (b,):
            monitor.wait_for(shares([a, b], [0.5, 0.5]), "A and B share")
            with programs(monitor, "c") as (c,):
                monitor.wait_for(shares([a, b, c], [0.3, 0.4, 0.3]), "all have what they request")
            monitor.wait_for(shares([a, b], [0.5, 0.5]), "A and B share again")


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("working", [True, False], ids=["holder", "waiter"])
@pytest.mark.parametrize("who", ["guest", "server"])
def test_whoever_dies_returns_its_turn(monitor: harness.Monitor, who: str, working: bool) -> None:
    with programs(monitor, "xyz") as those:
        victim = holder(monitor, those, working)
        pid = victim.process.pid if who == "guest" else victim.session(monitor.status()).server_pid
        os.kill(pid, signal.SIGKILL)
        goes_on(monitor, *(each for each in those if each is not victim))


def test_an_arbiter_that_dies_is_replaced_and_nobody_is_lost(monitor: harness.Monitor) -> None:
    with programs(monitor, "xy") as those, programs(monitor, "z", "0.5") as (short,):
        first = arbiter_of(monitor)
        os.kill(first, signal.SIGKILL)
        monitor.wait_for(lambda s: s.devices[0].turns.arbiter not in (0, first), "another arbiter")
        monitor.wait_for(lambda s: all(each.session(s).turns.turns for each in those), "turns of it")
        goes_on(monitor, *those)
        short.finish()


@pytest.mark.system
def test_an_arbiter_that_hangs_is_replaced() -> None:
    constants = {
        "gpuferry.monitor.arbiter.office:PING_SECONDS": 0.05,
        "gpuferry.monitor.arbiter.office:SILENT_SECONDS": 5.0,  # far more than the next one takes to start
    }
    options = (*TIME, "--pool", "1")
    with (
        harness.monitor(*options, server=None, constants=constants, **SETTINGS) as monitor,
        programs(monitor, "x") as (x,),
    ):
        first = arbiter_of(monitor)
        os.kill(first, signal.SIGSTOP)
        monitor.wait_for(lambda s: s.devices[0].turns.arbiter not in (0, first), "another arbiter")
        goes_on(monitor, x)


@pytest.mark.system
def test_a_monitor_that_dies_is_followed_and_turns_go_on() -> None:
    options = (*TIME, "--pool", "3", "--orphan-grace", "60")
    with harness.monitor(*options, server=None, **SETTINGS) as monitor:
        monitor.wait_idle(6)
        with programs(monitor, "xy") as those:
            goes_on(monitor, *those)
            monitor.process.kill()
            following = monitor.succeed(*options)
            following.wait_for(lambda s: len(s.sessions) == 2, "both sessions")
            goes_on(following, *those)


@pytest.mark.some(1)
@pytest.mark.parametrize("working", [True, False], ids=["holder", "waiter"])
def test_a_session_moves_to_another_gpu_with_or_without_its_turn(
    monitor: harness.Monitor, working: bool
) -> None:
    with programs(monitor, "xyz") as those:
        mover = holder(monitor, those, working)
        session = mover.session(monitor.status())
        moved = migrate(monitor, session.id, device=1 - session.device)
        assert moved.state == DONE, moved.reason
        goes_on(monitor, *those)


@pytest.mark.some(1)
@pytest.mark.parametrize("working", [True, False], ids=["holder", "waiter"])
def test_a_session_is_suspended_and_comes_back(
    monitor: harness.Monitor, tmp_path: Path, working: bool
) -> None:
    with programs(monitor, "xy") as those:
        one = holder(monitor, those, working)
        session = one.session(monitor.status())
        has_begun(monitor, session.id)
        request = control_pb2.MigrateRequest(session=session.id, file=str(tmp_path / "file"))
        *_, last = monitor.stub.Migrate(request, metadata=monitor.metadata, timeout=harness.DEADLINE)
        assert last.state == DONE, last.reason
        goes_on(monitor, *(each for each in those if each is not one))
        assert resume(monitor, tmp_path / "file", device=session.device).state == DONE
        goes_on(monitor, *those)


def test_programs_that_take_turns_are_right(monitor: harness.Monitor) -> None:
    with programs(monitor, "xyabc", "0.5") as those:
        for each in those:
            each.finish()
