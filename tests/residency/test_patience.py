"""How long a call waits for room on its device: by a clock of the test's own, and without a device."""

from __future__ import annotations

import contextlib
import math
import select
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from gpuferry.apiserver import residing
from gpuferry.apiserver.copies import Interrupted
from gpuferry.apiserver.log import Log
from gpuferry.apiserver.session import Session
from gpuferry.specs._generated import node_pb2

from tests.apiserver.test_limits import Clock, Engine

LONG = residing.ROOM_SECONDS


class Waiting(Engine):
    """Of a session whose call wants more on the device than it may have there."""

    def __init__(self) -> None:
        super().__init__()
        self.absent = self.refused = False
        self._wishes: list[tuple[bool, int]] = []

    def wants(self, bytes_: int) -> None:
        self.awaits_room = not self.absent
        self._wishes.append((self.absent, bytes_))

    def wish(self) -> tuple[bool, int] | None:
        return self._wishes.pop() if self._wishes else None

    def refuse_room(self) -> None:
        self.refused = not self.absent


class Call:
    """It waits, and its API server goes through its loop now and then."""

    def __init__(self, clock: Clock, guest: socket.socket) -> None:
        self.engine = Waiting()
        self._clock = clock
        grant = node_pb2.Grant(session=7, welcomed=True)
        self.session = Session(cast(Any, self.engine), grant, guest, Log(), clock.now)
        self.residing = self.session.residing

    def waits(self) -> None:
        self.engine.wants(1)
        assert self.residing.wish() is not None

    def close(self) -> None:
        self.residing.close()

    def refused_after(self, seconds: float) -> bool:
        self._clock.now += seconds
        self.session.enforce_limits()
        return self.engine.refused


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    clock = Clock()
    monkeypatch.setattr(residing, "time", clock)
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.closing(Call(clock, theirs)) as made:
        yield made


def test_a_monitor_that_says_nothing_is_waited_for_so_long(call: Call) -> None:
    assert not call.refused_after(10 * LONG)
    assert call.session.look_again() == math.inf
    call.waits()
    assert call.session.look_again() == LONG
    assert not call.refused_after(LONG - 1)
    assert call.session.look_again() == 1
    assert call.refused_after(1)
    assert call.engine.ended is None


def test_whoever_hears_of_the_monitor_stands_in_its_line(call: Call) -> None:
    call.waits()
    for _ in range(3):
        assert not call.refused_after(LONG - 1)
        call.residing.heard()
    assert call.refused_after(LONG)


def test_who_was_sent_away_in_the_middle_of_a_call_waits_for_as_long_as_it_takes(call: Call) -> None:
    """It waited for room for a while, and was sent away then: its own memory it waits for without an end."""
    call.waits()
    assert not call.refused_after(LONG - 1)
    call.engine.absent = True
    call.waits()
    assert call.session.look_again() == math.inf
    assert not call.refused_after(10 * LONG)
    assert call.engine.ended is None


def test_who_is_held_up_by_a_move_does_not_say_that_it_works(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_away(*_: object) -> int:
        call.residing._stop = True  # a move begins
        raise Interrupted

    monkeypatch.setattr(call.residing, "_take_away", take_away)
    monkeypatch.setattr(call.engine, "stays", "", raising=False)
    monkeypatch.setattr(call.engine, "stats", lambda: {"memory_mapped": 0})
    call.residing.leave(node_pb2.Leave(session=7, number=1, insist=True), (), "")
    select.select([call.residing], [], [])
    (told,) = call.residing.messages()
    call.residing.end()
    assert told.resides.reason == "it ends, or is being moved"
