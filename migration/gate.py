"""Where the processes of a program that moves wait for each other, and where it is settled that all of them
move, or none: a file that whoever moves one of them has. It needs nobody who could die meanwhile.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import select
import struct
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from .errors import Cancelled, LinkBroken, OthersStay, Refused


class Stage(enum.IntEnum):
    """What each has done when it comes to the gate."""

    COPIED = 0  # all that can be done while the program runs
    STILL = 1  # its process is held, and its device has nothing to do
    SHOWN = 2  # what others open of it is there, where it goes
    COMPLETE = 3  # all of it is there


class Verdict(enum.IntEnum):
    """What is settled for all."""

    OPEN = 0
    GO = 1
    STAY = 2


LAYOUT = struct.Struct("<2I4I")  # how many they are; the verdict; how many have come to each stage
PAUSE = 0.001  # seconds between looks at the others
TOGETHER = "the processes of a program move together, and another one of them "

_within = threading.Lock()  # the file's lock holds between processes only


class Meeting(Protocol):
    """How one that moves waits for the others. For a program of one process there is nobody to wait for."""

    @property
    def alone(self) -> bool:
        """Whether there are no others."""

    def meet(self, stage: Stage, seconds: float) -> None:
        """Wait until all others have done this, too. Raises Refused, LinkBroken or Cancelled: nobody moves.
        After the last stage everybody does.
        """

    def stay(self) -> object:
        """Let nobody move, unless it is settled that all do."""


class Alone:
    """Nobody to wait for."""

    alone = True

    def meet(self, stage: Stage, seconds: float) -> None:
        """Go on."""

    def stay(self) -> None:
        """Nobody else need know."""


def make(count: int) -> int:
    """The descriptor of a new gate for so many."""
    descriptor = os.memfd_create("gpuferry-gate", os.MFD_CLOEXEC)
    os.write(descriptor, LAYOUT.pack(count, Verdict.OPEN, 0, 0, 0, 0))
    return descriptor


class Gate:
    """The gate, for one of those that move. It takes the descriptor."""

    alone = False

    def __init__(self, descriptor: int, wake: int, link: int) -> None:
        """`wake` becomes readable when this one shall not move; `link` breaks if its destination ends."""
        self._descriptor = descriptor
        self._poller = select.poll()
        self._poller.register(wake, select.POLLIN)
        self._poller.register(link, select.POLLRDHUP)
        self._wake = wake

    def meet(self, stage: Stage, seconds: float) -> None:
        """Wait until all others have done this, too. Raises Refused, LinkBroken or Cancelled: nobody moves.
        After the last stage everybody does.
        """
        until = time.monotonic() + seconds
        count, verdict, come = self._come(stage)
        while verdict is Verdict.OPEN and come < count:
            found = dict(self._poller.poll(PAUSE * 1000))
            if found or time.monotonic() > until:
                if self.stay() is Verdict.GO:
                    return
                if self._wake in found:
                    raise Cancelled("stopped")
                if found:
                    raise LinkBroken("the destination closed the link")
                raise Refused(f"{TOGETHER}did not come as far within {seconds:g} s")
            count, verdict, come = self._look(stage)
        if verdict is Verdict.STAY:
            raise OthersStay(f"{TOGETHER}stays where it is")

    def stay(self) -> Verdict:
        """Let nobody move, unless it is settled that all do. Returns what is settled."""
        with self._locked():
            count, verdict, *come = self._read()
            if verdict == Verdict.OPEN:
                verdict = Verdict.STAY
                self._write(count, verdict, *come)
            return Verdict(verdict)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def _come(self, stage: Stage) -> tuple[int, Verdict, int]:
        with self._locked():
            count, verdict, *come = self._read()
            come[stage] += 1
            if verdict == Verdict.OPEN and stage is Stage.COMPLETE and come[stage] == count:
                verdict = Verdict.GO
            self._write(count, verdict, *come)
        return count, Verdict(verdict), come[stage]

    def _look(self, stage: Stage) -> tuple[int, Verdict, int]:
        count, verdict, *come = self._read()
        return count, Verdict(verdict), come[stage]

    def _read(self) -> tuple[int, ...]:
        try:
            found = LAYOUT.unpack(os.pread(self._descriptor, LAYOUT.size, 0))
            Verdict(found[1])
        except (struct.error, ValueError):
            raise Refused("what its processes wait by is damaged") from None
        return found

    def _write(self, *values: int) -> None:
        os.pwrite(self._descriptor, LAYOUT.pack(*values), 0)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _within:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
