"""Which programs are in an invocation, as those say who invoke them. No I/O.

A program that nobody speaks for is invoked once, from its start to its end, and a pause in its calls is what
the time between two invocations is to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

PROGRAMS_MOST = 10_000  # that one who invokes may speak for


class Where(NamedTuple):
    """Where a program's memory is."""

    gpu: int
    resident: bool
    also: tuple[int, ...] = ()  # its other GPUs, if it has several


Tell = Callable[[bytes, Where | None], None]  # None: its memory is gone, and not by its own doing


class TooMany(Exception):
    """More programs than one may speak for."""


class Speaker:
    """Somebody who invokes programs: what is known through one call."""

    def __init__(self, invocations: Invocations, tell: Tell, gpus: Callable[[], None]) -> None:
        self._invocations = invocations
        self._programs: Counter[bytes] = Counter()  # invocations that run
        self.tell = tell
        self.tell_gpus = gpus

    def begins(self, program: bytes) -> None:
        """One more invocation of the program runs. Raises TooMany."""
        self.know(program)
        self._programs[program] += 1
        self._invocations.count(program, 1)

    def ends(self, program: bytes) -> None:
        """One of the program's invocations has ended."""
        if self._programs.get(program, 0) > 0:
            self._programs[program] -= 1
            self._invocations.count(program, -1)

    def know(self, program: bytes) -> None:
        """The program is invoked by this speaker from now on. Raises TooMany."""
        if program in self._programs:
            return
        if len(self._programs) >= PROGRAMS_MOST:
            raise TooMany(f"at most {PROGRAMS_MOST} programs")
        self._programs[program] = 0
        self._invocations.enter(program, self)

    def over(self, program: bytes) -> None:
        """The program is, or this speaks for it no more."""
        if program in self._programs:
            self._invocations.count(program, -self._programs.pop(program))
            self._invocations.leave(program, self)

    def close(self) -> None:
        """Nothing more is heard from here: all are as if nobody had spoken for them."""
        for program in list(self._programs):
            self.over(program)
        self._invocations.forget(self)


class Invocations:
    """Programs by their digests, and who speaks for them."""

    def __init__(self) -> None:
        self._running: Counter[bytes] = Counter()
        self._speakers: dict[bytes, set[Speaker]] = {}
        self._all: set[Speaker] = set()
        self._where: dict[bytes, Where] = {}

    def speaker(self, tell: Tell, gpus: Callable[[], None]) -> Speaker:
        """Somebody begins to speak. It hears where its programs have their memory, and of other GPUs."""
        found = Speaker(self, tell, gpus)
        self._all.add(found)
        return found

    def runs(self, program: bytes) -> bool | None:
        """Whether an invocation of it runs; None: nobody speaks for it."""
        return self._running[program] > 0 if program in self._speakers else None

    def enter(self, program: bytes, speaker: Speaker) -> None:
        """The speaker speaks for the program from now on. It is told where its memory is, if known."""
        self._speakers.setdefault(program, set()).add(speaker)
        if known := self._where.get(program):
            speaker.tell(program, known)

    def leave(self, program: bytes, speaker: Speaker) -> None:
        """The speaker does not speak for the program any more."""
        speakers = self._speakers.get(program, set())
        speakers.discard(speaker)
        if not speakers:
            self._speakers.pop(program, None)

    def forget(self, speaker: Speaker) -> None:
        """The speaker has ended: it is told of no more changes."""
        self._all.discard(speaker)

    def count(self, program: bytes, more: int) -> None:
        """Add `more`, which may be negative, to the number of the program's invocations that run."""
        self._running[program] += more
        if not self._running[program]:
            del self._running[program]

    def is_at(self, program: bytes, where: Where) -> None:
        """The program's memory is at `where` now: tell those who speak for it."""
        if program and self._where.get(program) != where:
            self._where[program] = where
            for speaker in self._speakers.get(program, ()):
                speaker.tell(program, where)

    def is_gone(self, program: bytes, lost: bool = False) -> None:
        """The program has no memory here any more. `lost`: not by its own doing; its speakers are told."""
        if self._where.pop(program, None) and lost:
            for speaker in self._speakers.get(program, ()):
                speaker.tell(program, None)

    def has(self, program: bytes) -> bool:
        """Whether the program has memory here."""
        return program in self._where

    def gpus_changed(self) -> None:
        """There are more GPUs, or fewer."""
        for speaker in list(self._all):
            speaker.tell_gpus()
