"""The processes of a program move together or not at all. The API servers that move them share a file in
memory, the gate: there they wait for each other, stage by stage, and there one verdict is settled for all of
them. No coordinator is needed, so none can die meanwhile.
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
    """How far the move of one process has come; all of a program's processes pass a stage together."""

    COPIED = 0  # all memory that can be copied while the program runs is copied
    STILL = 1  # the process is held, and its device has nothing left to do
    SHOWN = 2  # the destination has what other processes open of this one (memory, events, pools)
    COMPLETE = 3  # the destination has the whole session


class Verdict(enum.IntEnum):
    """What is settled for all processes of the program; it never changes once it is GO or STAY."""

    OPEN = 0
    GO = 1
    STAY = 2


LAYOUT = struct.Struct("<2I4I")  # number of processes; Verdict; how many have come to each Stage
PAUSE = 0.001  # seconds between looks at the others
TOGETHER = "the processes of a program move together, and another one of them "

_within = threading.Lock()  # the file's lock holds between processes only


class Meeting(Protocol):
    """How the move of one process waits for the moves of the program's other processes: Gate or Alone."""

    @property
    def alone(self) -> bool:
        """Whether the program has only this process."""

    def meet(self, stage: Stage, seconds: float) -> None:
        """Wait, `seconds` at most, until every process has come to this stage. A return from Stage.COMPLETE
        means that all of them move. Raises Refused, LinkBroken or Cancelled when none of them does.
        """

    def stay(self) -> object:
        """Settle that no process moves, unless it is settled already that all do."""


class Alone:
    """The Meeting of a program with one process: every stage is passed at once."""

    alone = True

    def meet(self, stage: Stage, seconds: float) -> None:
        """Return at once: the only process of the program has nobody to wait for."""

    def stay(self) -> None:
        """Does nothing, as there is nobody to tell."""


def make(count: int) -> int:
    """Returns the descriptor of a new gate for `count` processes."""
    descriptor = os.memfd_create("gpuferry-gate", os.MFD_CLOEXEC)
    os.write(descriptor, LAYOUT.pack(count, Verdict.OPEN, 0, 0, 0, 0))
    return descriptor


class Gate:
    """The gate as the move of one process sees it. Owns the descriptor that it is given."""

    alone = False

    def __init__(self, descriptor: int, wake: int, link: int) -> None:
        """`wake`: a descriptor that becomes readable when this move is cancelled. `link`: the connection to
        the destination, which hangs up if that ends.
        """
        self._descriptor = descriptor
        self._poller = select.poll()
        self._poller.register(wake, select.POLLIN)
        self._poller.register(link, select.POLLRDHUP)
        self._wake = wake

    def meet(self, stage: Stage, seconds: float) -> None:
        """Wait, `seconds` at most, until every process has come to this stage. A return from Stage.COMPLETE
        means that all of them move. Raises Refused, LinkBroken or Cancelled when none of them does.
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
        """Settle that no process moves, unless it is settled already that all do. Returns the verdict."""
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
