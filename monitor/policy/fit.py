"""Which GPU a request gets, among those where it fits."""

from __future__ import annotations

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
        self._open = [gpu for gpu in gpus if gpu.idle and not (fit.alone and gpu.busy)]
        self._roomiest = sorted(self._open, key=_FREE, reverse=True) if len(self._open) > 1 else self._open

    def most(self, labels: frozenset[str], devices: int) -> int:
        """The most memory per device that such a request could have; -1 if it finds no seats at all."""
        for gpu in self._roomiest:
            if labels <= gpu.labels:
                devices -= 1
                if devices == 0:
                    return gpu.free
        return -1

    def holds(self, request: Request) -> bool:
        """Whether the room has a seat on each GPU that the request asks for."""
        return request.memory <= self.most(request.labels, request.devices)

    def choose(self, request: Request) -> list[Gpu]:
        """The GPUs for a request that this room holds."""
        if len(self._open) == 1:
            return self._open
        memory, labels = request.memory, request.labels
        candidates = [gpu for gpu in self._open if memory <= gpu.free and labels <= gpu.labels]
        if request.devices == 1:
            return [min(candidates, key=self._fit.rank)]
        return nsmallest(request.devices, candidates, key=self._fit.rank)
