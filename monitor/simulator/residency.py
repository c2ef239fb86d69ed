"""Where the memory of sessions is that do not fit on a GPU together: a steward without processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import perf_counter

from ..arbiter.gpu import Arbiter
from ..policy.place import Place
from ..policy.sharing import SECOND
from ..residency.policy import Candidate, Turn, leavers

PIECE, ROUNDS = 64 << 20, 5  # bytes that are copied, and how often


@dataclass(frozen=True)
class Memory:
    """What a GPU has, in bytes, and at how many bytes a second it is copied to and from host memory."""

    size: int
    bandwidth: float


def measured_bandwidth() -> float:
    """Bytes a second at which this machine copies host memory, as a simulated device does."""
    source, target = memoryview(bytearray(PIECE)), memoryview(bytearray(PIECE))
    seconds = []
    for _ in range(ROUNDS):
        began = perf_counter()
        target[:] = source
        seconds.append(perf_counter() - began)
    return PIECE / min(seconds)


@dataclass
class Copy:
    """Memory on its way. Times in nanoseconds."""

    session: int
    place: Place  # COMING or LEAVING
    end: int


class Residence:
    """Brings the memory of who is called, one copy at a time; who leaves is as the steward has it."""

    def __init__(self, memory: Memory, arbiter: Arbiter) -> None:
        self._memory, self._arbiter = memory, arbiter
        self._sizes: dict[int, int] = {}
        self._came: dict[int, int] = {}  # who is here, and since when
        self._worked: dict[int, int] = {}  # when its last turn ended
        self._called: dict[int, tuple[int, Collection[int]]] = {}  # since when, and who does not leave for it
        self._copy: Copy | None = None
        self.copied = 0  # bytes, both ways

    def come(self, session: int, size: int, now: int) -> None:
        """A session begins; what does not fit is elsewhere from the first."""
        self._sizes[session] = size
        if size <= self._free():
            self._came[session] = now
        else:
            self._arbiter.place(session, Place.AWAY, 0, now)

    def go(self, session: int) -> None:
        """A session is over."""
        del self._sizes[session]
        for known in (self._came, self._worked, self._called):
            known.pop(session, None)
        if self._copy and self._copy.session == session:
            self._copy = None

    def call(self, session: int, spared: Collection[int], now: int) -> None:
        """It is about to have its turn."""
        since, _ = self._called.get(session, (now, ()))
        self._called[session] = since, spared

    def turn_ended(self, session: int, now: int) -> None:
        """Note that a session gave its turn back."""
        self._worked[session] = now

    def deadline(self) -> int | None:
        """When the copy that is under way ends; None: there is none."""
        return self._copy.end if self._copy else None

    def advance(self, now: int, works: Mapping[int, int]) -> None:
        """End the copy that is due, and begin the next one. `works`: who has a turn."""
        copy = self._copy
        if copy and copy.end <= now:
            self._copy = None
            if copy.place is Place.COMING:
                self._came[copy.session] = now
                self._called.pop(copy.session, None)
                self._arbiter.place(copy.session, Place.HERE, self._round_trip(copy.session), now)
            else:
                self._arbiter.place(copy.session, Place.AWAY, 0, now)
        while self._copy is None and self._called:
            session, (since, spared) = next(iter(self._called.items()))
            if session in self._came:
                del self._called[session]
            elif (lack := self._sizes[session] - self._free()) <= 0:
                self._begin(session, Place.COMING, now)
            elif leaving := leavers(self._able(spared, works, now), lack, (now - since) / SECOND, ahead=True):
                del self._came[leaving[0].session]
                self._begin(leaving[0].session, Place.LEAVING, now)
            else:
                return

    def _able(self, spared: Collection[int], works: Mapping[int, int], now: int) -> list[Candidate]:
        return [
            Candidate(
                session,
                self._sizes[session],
                0.0,
                (now - came) / SECOND,
                self._round_trip(session) / SECOND,
                turn=Turn.HAS if session in works else Turn.WAITS,
                since_turn=(now - self._worked.get(session, came)) / SECOND,
            )
            for session, came in self._came.items()
            if session not in spared
        ]

    def _begin(self, session: int, place: Place, now: int) -> None:
        self.copied += self._sizes[session]
        self._copy = Copy(session, place, now + self._round_trip(session) // 2)
        self._arbiter.place(session, place, 0, now)

    def _round_trip(self, session: int) -> int:
        return int(2 * self._sizes[session] / self._memory.bandwidth * SECOND)

    def _free(self) -> int:
        there = sum(self._sizes[session] for session in self._came)
        under_way = self._sizes[self._copy.session] if self._copy else 0
        return self._memory.size - there - under_way
