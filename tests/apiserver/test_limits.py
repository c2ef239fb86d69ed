"""How long a session may live, and be silent: by a clock of the test's own, and without a device."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from gpuferry.apiserver import session
from gpuferry.apiserver.end import End
from gpuferry.apiserver.log import Log
from gpuferry.specs._generated import node_pb2


class Clock:
    """In place of `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Engine:
    """What it would say of its calls, and why it was ended."""

    awaits_room = False

    def __init__(self) -> None:
        self.calls = 0
        self.waiting = False
        self.ended: End | None = None

    def begin(self, *_: object, **__: object) -> None:
        """There is nothing to begin."""

    def stats(self) -> dict[str, int]:
        return {"calls_async": self.calls, "calls_sync": 0}

    def give_up_turn(self) -> None:
        """It takes no turns."""

    def go_on_without_guest(self) -> None:
        """Nothing is to be done: no stream of this double waits for its guest."""

    def end(self, end: End) -> None:
        self.ended = end


class Life:
    """A session that began just now."""

    def __init__(self, clock: Clock, guest: socket.socket, **limits: float) -> None:
        self.engine = Engine()
        self._clock = clock
        grant = node_pb2.Grant(session=7, welcomed=True, **limits)  # type: ignore[arg-type]
        core: Any = self.engine
        self.session = session.Session(core, grant, guest, Log(), clock.now, b"")

    def after(self, seconds: float) -> str:
        """Why the session has been ended by then, if it has."""
        self._clock.now += seconds
        self.session.enforce_limits()
        return self.engine.ended.reason if self.engine.ended else ""


@contextlib.contextmanager
def living(clock: Clock, **limits: float) -> Iterator[Life]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Life(clock, theirs, **limits)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(session, "time", made)
    return made


def test_it_lives_as_long_as_it_may(clock: Clock) -> None:
    with living(clock, wall_seconds=60) as life:
        assert life.session.look_again() == 60
        assert life.after(59.9) == ""
        assert life.after(0.1) == "revoked: the time limit of 60 s is over"


def test_it_is_silent_as_long_as_it_may(clock: Clock) -> None:
    with living(clock, idle_seconds=3) as life:
        for _ in range(20):  # longer than that, and never silent for as long
            life.engine.calls += 1
            assert life.after(2.9) == ""
        assert life.session.look_again() == 3
        assert life.after(2.9) == ""
        assert life.session.look_again() == pytest.approx(0.75)  # it may have become active meanwhile
        assert life.after(0.1) == "revoked: no CUDA call for 3 s, which is the limit"


def test_who_waits_for_the_device_is_not_idle(clock: Clock) -> None:
    with living(clock, idle_seconds=3) as life:
        life.engine.waiting = True
        assert life.after(100) == ""
        life.engine.waiting = False
        assert life.after(2.9) == ""
        assert life.after(0.1) == "revoked: no CUDA call for 3 s, which is the limit"


def test_without_limits_it_lives_for_ever(clock: Clock) -> None:
    with living(clock) as life:
        assert life.after(1e9) == ""
