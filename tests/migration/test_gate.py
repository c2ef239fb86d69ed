"""The gate at which the processes of a program that moves wait for each other: all go, or all stay."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from gpuferry.migration.errors import Cancelled, LinkBroken, MigrationError, Refused
from gpuferry.migration.gate import Gate, Stage, Verdict, make

LONG = 60.0


class Process:
    """One that comes to the gate, on a thread of its own."""

    def __init__(self, descriptor: int) -> None:
        self.wake = os.eventfd(0)
        self.link, self.destination = socket.socketpair()
        self.gate = Gate(os.dup(descriptor), self.wake, self.link.fileno())
        self.failed: MigrationError | None = None

    def come(self, *stages: Stage, seconds: float = LONG) -> threading.Thread:
        thread = threading.Thread(target=self._come, args=(stages, seconds))
        thread.start()
        return thread

    def _come(self, stages: tuple[Stage, ...], seconds: float) -> None:
        try:
            for stage in stages:
                self.gate.meet(stage, seconds)
        except MigrationError as error:
            self.failed = error

    def close(self) -> None:
        self.gate.close()
        self.link.close()
        self.destination.close()
        os.close(self.wake)


@contextmanager
def two() -> Iterator[tuple[Process, Process]]:
    descriptor = make(2)
    both = Process(descriptor), Process(descriptor)
    os.close(descriptor)
    yield both
    for one in both:
        one.close()


def test_all_go() -> None:
    with two() as both:
        for thread in [one.come(*Stage) for one in both]:
            thread.join()
        assert [one.failed for one in both] == [None, None]
        assert [one.gate.stay() for one in both] == [Verdict.GO] * 2


@pytest.mark.parametrize("stage", list(Stage))
def test_who_stays_lets_all_stay(stage: Stage) -> None:
    with two() as (one, other):
        before = [each for each in Stage if each < stage]
        threads = [one.come(*before, stage), other.come(*before)]
        threads[1].join()
        assert other.gate.stay() is Verdict.STAY
        threads[0].join()
        assert isinstance(one.failed, Refused)
        assert other.gate.stay() is Verdict.STAY


def test_one_that_does_not_come() -> None:
    with two() as (one, other):
        one.come(Stage.COPIED, seconds=0.05).join()
        assert "did not come as far" in str(one.failed)
        other.come(Stage.COPIED).join()
        assert isinstance(other.failed, Refused)


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (lambda one: os.eventfd_write(one.wake, 1), Cancelled),
        (lambda one: one.destination.close(), LinkBroken),
    ],
)
def test_one_that_is_called_back(happens: Callable[[Process], object], error: type[MigrationError]) -> None:
    """By its monitor, or by the end of its destination: all stay."""
    with two() as (one, other):
        thread = one.come(*Stage)
        other.come(Stage.COPIED).join()
        happens(one)
        thread.join()
        assert isinstance(one.failed, error)
        other.come(Stage.STILL).join()
        assert isinstance(other.failed, Refused)


def test_what_is_settled_is_not_called_back() -> None:
    with two() as (one, other):
        for thread in [each.come(Stage.COMPLETE) for each in (one, other)]:
            thread.join()
        os.eventfd_write(one.wake, 1)
        one.come(Stage.COMPLETE).join()
        assert one.failed is None
        assert other.gate.stay() is Verdict.GO


@pytest.mark.parametrize("size", [0, 5])
def test_a_gate_that_is_damaged(size: int) -> None:
    descriptor = make(2)
    os.ftruncate(descriptor, size)
    process = Process(descriptor)
    process.come(Stage.COPIED).join()
    assert isinstance(process.failed, Refused)
    process.close()
    os.close(descriptor)
