"""One GPU as a policy sees it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

from .portion import FULL, Marks

WINDOW = 5  # ticks in the moving average


@dataclass(slots=True, eq=False)
class Gpu:
    """What may be promised, what is, and its workers. `busy` counts the sessions here, migrated ones too."""

    index: int
    memory: int
    labels: frozenset[str] = frozenset()
    usual: int = 0  # memory of a session that asks for none
    seats: int = 0  # workers that it is meant to have
    largest: int = 0  # memory that one session may have, where more is promised than there is; 0: all
    free: int = field(init=False)  # of its memory, neither promised nor withheld; below 0: too much is
    withheld: int = 0
    time: int = FULL  # thousandths of its time that nobody was promised
    marks: dict[str, Marks] = field(default_factory=dict)  # of those who are here, by scope
    busy: int = 0
    home: set[int] = field(default_factory=set)  # workers that belong here
    idle: list[int] = field(default_factory=list)  # those without a session, ascending
    replaced: deque[str] = field(init=False)  # whose sessions ended, while workers in their place are started
    samples: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def __post_init__(self) -> None:
        self.free = self.memory
        self.replaced = deque(maxlen=self.seats)

    @property
    def promised(self) -> int:
        """Bytes granted to sessions on this GPU, those still moving here included."""
        return self.memory - self.free - self.withheld

    def withhold(self, size: int) -> None:
        """Keep `size` bytes of the memory from being promised, instead of those withheld so far."""
        self.free += self.withheld - size
        self.withheld = size

    @property
    def most(self) -> int:
        """Bytes that one session may be promised."""
        return min(self.largest or self.memory, self.memory)

    @property
    def utilisation(self) -> float:
        """Share of time in which kernels ran, 0 to 1: the mean of the last five ticks."""
        return sum(self.samples) / len(self.samples) if self.samples else 0.0

    def takes(self, memory: int, labels: frozenset[str]) -> bool:
        """Whether there is an idle worker, so much memory to promise, and each of these labels."""
        return bool(self.idle) and self.free >= memory and memory <= self.most and labels <= self.labels

    def welcome(self, worker: int) -> None:
        """A worker that belongs here is idle; it may have been all the time."""
        if worker in self.home and self._position(worker) is not None:
            return
        self.home.add(worker)
        insort(self.idle, worker)
        if self.replaced:
            self.replaced.popleft()

    def forget(self, worker: int) -> None:
        """A worker that belongs here is gone."""
        self.home.discard(worker)
        if (position := self._position(worker)) is not None:
            del self.idle[position]

    def _position(self, worker: int) -> int | None:
        position = bisect_left(self.idle, worker)
        return position if self.idle[position : position + 1] == [worker] else None
