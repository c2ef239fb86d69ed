"""The time of one GPU, shared by sessions that are always busy, by the arbiter that GPU servers run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..arbiter.gpu import Arbiter
from ..policy.sharing import SECOND
from ..policy.tokens import Client, Turns
from .residency import Memory, Residence

OVERRUN = 2 * SECOND  # never reached: kernels are as short as need be


@dataclass(frozen=True)
class Busy:
    """A session that has something to do from `begin` to `end` (seconds) without a pause."""

    client: Client
    begin: float
    end: float
    memory: int = 0  # bytes


class SharedGpu:
    """One GPU and its arbiter. Who has a turn works until it is told to stop, and stops at once."""

    def __init__(self, turns: Turns, memory: Memory | None = None) -> None:
        """`memory`: what the GPU has, where sessions may need more of it together; None: they do not."""
        self._arbiter = Arbiter(turns, 1, OVERRUN, self)
        self._works: dict[int, int] = {}  # since when
        self._stopped: list[int] = []
        self._now = 0
        self.residence = Residence(memory, self._arbiter) if memory else None
        self.turns: list[tuple[int, int, int]] = []  # session, and when it began and ended to work

    def run(self, sessions: Sequence[Busy]) -> None:
        """All sessions from their begins to their ends."""
        moments = [(int(one.begin * SECOND), True, one) for one in sessions]
        moments += [(int(one.end * SECOND), False, one) for one in sessions]
        moments.sort(key=lambda moment: moment[:2])  # who ends makes room for who begins
        while moments:
            deadlines = [moments[0][0], self._arbiter.deadline()]
            deadlines.append(self.residence.deadline() if self.residence else None)
            self._now = max(self._now, min(each for each in deadlines if each is not None))
            self._settle()
            while moments and moments[0][0] <= self._now:
                _, begins, one = moments.pop(0)
                (self._come if begins else self._go)(one)
                self._settle()

    def _settle(self) -> None:
        """All that happens at this moment."""
        self._arbiter.tick(self._now)
        while self._stopped:
            session = self._stopped.pop()
            self._end(session)
            self._arbiter.back(session, self._now)
            self._arbiter.ask(session, self._now)
        if self.residence:
            self.residence.advance(self._now, self._works)

    def _come(self, one: Busy) -> None:
        session = one.client.session
        self._arbiter.join(one.client, self._now)
        if self.residence:
            self.residence.come(session, one.memory, self._now)
        self._arbiter.ask(session, self._now)

    def _go(self, one: Busy) -> None:
        session = one.client.session
        self._end(session)
        if self.residence:
            self.residence.go(session)
        self._arbiter.leave(session, self._now)

    def _end(self, session: int) -> None:
        began = self._works.pop(session, None)
        if began is not None:
            self.turns.append((session, began, self._now))
            if self.residence:
                self.residence.turn_ended(session, self._now)

    # -- what the arbiter says

    def go(self, key: int, quota: int | None, now: int) -> None:
        self._works[key] = now
        self._arbiter.begin(key, now)

    def stop(self, key: int) -> None:
        self._stopped.append(key)

    def taken(self, key: int, now: int) -> None:
        raise AssertionError("who is told to stop stops at once")

    def wanted(self, key: int, others: bool) -> None:
        pass

    def soon(self, key: int, spared: Collection[int]) -> None:
        if self.residence:
            self.residence.call(key, spared, self._now)


def shares(
    turns: Turns, sessions: Sequence[Busy], spans: Sequence[tuple[float, float]], memory: Memory | None = None
) -> list[list[float]]:
    """Of each span (seconds), which part of the GPU's time each session worked."""
    gpu = SharedGpu(turns, memory)
    gpu.run(sessions)
    index = {one.client.session: number for number, one in enumerate(sessions)}
    had = [[0.0] * len(sessions) for _ in spans]
    for session, begin, end in gpu.turns:
        for number, (first, past) in enumerate(spans):
            inside = min(end, int(past * SECOND)) - max(begin, int(first * SECOND))
            had[number][index[session]] += max(inside, 0) / ((past - first) * SECOND)
    return had
