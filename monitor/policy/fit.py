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
        self._most = math.inf  # memory in all that a request may have
        self.gpus = list(gpus)
        self.open = [gpu for gpu in self.gpus if gpu.idle and not (fit.alone and gpu.busy)]
        self._roomiest = sorted(self.open, key=_FREE, reverse=True) if len(self.open) > 1 else self.open

    def within(self, memory: float) -> Room:
        """The same room for somebody who may have no more than this in all."""
        narrow = copy.copy(self)
        narrow._most = memory
        return narrow

    def most(self, labels: frozenset[str], devices: int) -> float:
        """The most memory per device that such a request could have; -1 if it finds no seats at all."""
        wanted = devices
        for gpu in self._roomiest:
            if labels <= gpu.labels:
                wanted -= 1
                if wanted == 0:
                    return min(gpu.free, self._most // devices)
        return -1

    def holds(self, request: Request) -> bool:
        """Whether the room has a seat on each GPU that the request asks for."""
        return request.memory <= self.most(request.labels, request.devices)

    def choose(self, request: Request) -> list[Gpu]:
        """The GPUs for a request that this room holds."""
        if len(self.open) == 1:
            return self.open
        memory, labels = request.memory, request.labels
        candidates = [gpu for gpu in self.open if memory <= gpu.free and labels <= gpu.labels]
        if request.devices == 1:
            return [min(candidates, key=self._fit.rank)]
        return nsmallest(request.devices, candidates, key=self._fit.rank)
