"""`--migration dgsf|auto`: sessions move by themselves. API servers are fake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.monitor.broker.broker import Broker

from tests.monitor.fake_guest import FakeGuest
from tests.monitor.moves import MIB, STATE, TOKEN, start

TICK = 0.02  # seconds
TICKS = {"gpuferry.monitor.broker.balance:TICK": TICK}


def devices(status: object) -> list[int]:
    return sorted(one.device for one in status.sessions)  # type: ignore[attr-defined]


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("migration", ["dgsf", "auto"])
def test_one_of_two_on_a_device_moves_to_the_empty_one(migration: str) -> None:
    with start("--pool", "2", "--migration", migration, "--policy", "best-fit", constants=TICKS) as monitor:
        monitor.wait_idle(4)
        with (
            FakeGuest(monitor.address, TOKEN, function=b"busy", memory=100 * MIB) as one,
            FakeGuest(monitor.address, TOKEN, function=b"busy", memory=100 * MIB) as two,
        ):
            # The destination may say that it has the session before the source says that it is over.
            running = STATE.MIGRATION_STATE_RUNNING
            status = monitor.wait_for(
                lambda s: devices(s) == [0, 1] and all(m.state != running for m in s.migrations),
                "one on each device",
            )
            assert {m.state for m in status.migrations} == {STATE.MIGRATION_STATE_DONE}
            assert one.echo(b"1") + two.echo(b"2") == b"12"
            monitor.wait_for(lambda s: s.devices[0].memory_granted == 100 * MIB, "the books")


@pytest.mark.system
def test_idle_sessions_stay_and_are_not_asked_again() -> None:
    """DGSF moves whoever launches: a session that does not is left alone."""
    with start("--pool", "2", "--migration", "dgsf", "--policy", "best-fit", constants=TICKS) as monitor:
        monitor.wait_idle(4)
        with FakeGuest(monitor.address, TOKEN, memory=MIB), FakeGuest(monitor.address, TOKEN, memory=MIB):
            monitor.wait_for(lambda s: s.sessions and s.sessions[-1].age_seconds > 8 * TICK, "eight ticks")
            status = monitor.status()
            assert devices(status) == [0, 0]
            assert not status.migrations


def test_who_was_not_asked_for_its_launch_is_not_heard() -> None:
    """An API server that was taken over would have its session move, and the policy think, all the time."""
    broker, heard = hearing({1: watched(False, lease=1), 2: watched(True, lease=2)})
    for number in (1, 2, 2, 3):
        Broker.launched(broker, number)
    assert heard == [2]


def test_any_process_of_a_program_may_launch() -> None:
    """The policy, which knows one lease of all, heard of the launches of the first one only."""
    broker, heard = hearing({1: watched(True, lease=1), 2: watched(True, lease=1)})
    Broker.launched(broker, 2)
    assert heard == [1]


def watched(watched: bool, lease: int) -> SimpleNamespace:
    return SimpleNamespace(watched=watched, lease=SimpleNamespace(number=lease))


def hearing(sessions: dict[int, SimpleNamespace]) -> tuple[Any, list[int]]:
    """A broker with these sessions, and of which launches its policy hears."""
    heard: list[int] = []
    placer = SimpleNamespace(on_launch=lambda number, _: heard.append(number))
    return SimpleNamespace(sessions=sessions, _placer=placer, dispatch=lambda: None), heard


def test_off_is_off() -> None:
    with start("--pool", "2", "--policy", "best-fit", constants=TICKS) as monitor:
        monitor.wait_idle(4)
        busy: dict[str, Any] = {"function": b"busy", "memory": MIB}
        with FakeGuest(monitor.address, TOKEN, **busy), FakeGuest(monitor.address, TOKEN, **busy):
            status = monitor.wait_for(
                lambda s: s.sessions and s.sessions[-1].age_seconds > 4 * TICK, "four ticks"
            )
            assert devices(status) == [0, 0]
