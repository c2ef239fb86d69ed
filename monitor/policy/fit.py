"""Which GPU a request gets, among those where it fits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nsmallest
from operator import attrgetter

from .gpu import Gpu
from .interface import Request
from .leaving import obtainable


@dataclass(frozen=True)
class Fit:
    """How to choose among the GPUs where a request fits: the smallest `rank` wins, among equals the lowest
    index. `alone`: only a GPU that nobody else has.
    """

    rank: Callable[[Gpu], int]
    alone: bool = False


_FREE = attrgetter("free")

BEST = Fit(_FREE)
WORST = Fit(lambda gpu: -gpu.free)
FIRST = Fit(lambda gpu: 0)
EXCLUSIVE = Fit(lambda gpu: 0, alone=True)


class Room:
    """The GPUs that can take a session at this moment."""

    def __init__(self, gpus: Iterable[Gpu], fit: Fit) -> None:
        self._fit = fit
        self._most = math.inf  # memory in all that a request may have,
        self._gpus = math.inf  # and GPUs
        self._free: Callable[[Gpu], int] = _FREE
        self.gpus = list(gpus)
        self.open = [gpu for gpu in self.gpus if gpu.idle and not (fit.alone and gpu.busy)]
        self._sort()

    def _sort(self) -> None:
        self._roomiest = sorted(self.open, key=self._free, reverse=True) if len(self.open) > 1 else self.open

    def within(self, memory: float, gpus: float = math.inf) -> Room:
        """The same room for somebody who may have no more than this in all."""
        narrow = copy.copy(self)
        narrow._most = min(memory, self._most)
        narrow._gpus = min(gpus, self._gpus)
        return narrow

    def leaving(self, places: int, *, newcomer: bool) -> Room:
        """The same room for somebody who must leave so many places to those that have none."""
        narrow = copy.copy(self)
        found = obtainable(self.gpus, places, self._fit.alone, newcomer=newcomer)
        narrow.open = [gpu for gpu in self.open if gpu in found]
        narrow._free = found.__getitem__
        narrow._sort()
        return narrow

    def usual(self) -> Room:
        """The same room for a session of no more memory than those get that ask for none."""
        return self.within(max((gpu.usual or gpu.memory for gpu in self.open), default=0))

    def most(self, labels: frozenset[str], devices: int) -> float:
        """The most memory per device that such a request could have; -1 if it finds no seats at all."""
        if devices > self._gpus:
            return -1
        wanted = devices
        for gpu in self._roomiest:
            if labels <= gpu.labels:
                wanted -= 1
                if wanted == 0:
                    return min(self._free(gpu), self._most // devices)
        return -1

    def holds(self, request: Request) -> bool:
        """Whether the room has a seat on each GPU that the request asks for."""
        return request.memory <= self.most(request.labels, request.devices)

    def choose(self, request: Request) -> list[Gpu]:
        """The GPUs for a request that this room holds."""
        if len(self.open) == 1:
            return self.open
        memory, labels = request.memory, request.labels
        candidates = [gpu for gpu in self.open if memory <= self._free(gpu) and labels <= gpu.labels]
        if request.devices == 1:
            return [min(candidates, key=self._fit.rank)]
        return nsmallest(request.devices, candidates, key=self._fit.rank)
