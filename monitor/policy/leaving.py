"""What a tenant has to leave to those that have nothing: places where a session could begin at once.

A place is an idle worker with the memory of a session that asks for none; where each session has a GPU alone,
it is a GPU that nobody has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from .gpu import Gpu
from .portion import FULL


class _Card(NamedTuple):
    """One GPU: what could be given of it. `alone`: to one session only."""

    workers: int
    memory: int
    usual: int
    alone: bool = False

    @property
    def places(self) -> int:
        return self.places_beside(0)

    def places_beside(self, memory: float) -> int:
        """Places that are left beside a session of several GPUs with so much memory here, whose API server is
        started for it.
        """
        if self.alone and memory:
            return 0
        if not self.usual:
            return self.workers
        return min(self.workers, int(max(self.memory - memory, 0)) // self.usual)


def _now(gpu: Gpu, alone: bool) -> _Card:
    if alone:
        return _Card(int(bool(gpu.idle) and not gpu.busy), gpu.free, 0, alone)
    return _Card(len(gpu.idle), gpu.free, gpu.usual)


def _empty(gpu: Gpu, alone: bool) -> _Card:
    return _Card(1, gpu.memory, 0, alone) if alone else _Card(gpu.seats, gpu.memory, gpu.usual)


class Leaving:
    """What a session may get of each GPU, so that so many places are open afterwards. A newcomer has no
    session: the usual memory it may have in any case, for that is whom places are left to.
    """

    def __init__(self, cards: Mapping[Gpu, _Card], leave: int, newcomer: bool) -> None:
        self._cards, self._newcomer = cards, newcomer
        self._spare = sum(card.places for card in cards.values()) - leave  # places that it may take
        self.most: dict[Gpu, int] = {}  # memory of a session of one GPU, where it may have any
        for gpu, card in cards.items():
            here = max(card.places - self._spare, 0)  # places that must stay open on this very GPU
            if card.workers > here and card.memory >= here * card.usual:
                self.most[gpu] = card.memory - here * card.usual
            if newcomer and card.workers:
                self.most[gpu] = max(self.most.get(gpu, 0), min(card.memory, card.usual or card.memory))

    def _taken(self, gpu: Gpu, memory: float) -> int:
        """Places that a session of several GPUs takes of this one."""
        card = self._cards[gpu]
        return card.places - card.places_beside(memory)

    def lets(self, gpus: Iterable[Gpu], memory: float) -> bool:
        """Whether a session may have so much memory on each of these GPUs, on any one of which it may."""
        taken = sum(self._taken(gpu, memory) for gpu in gpus)
        return taken <= max(self._spare, int(self._newcomer), 0)

    def fewest(self, gpus: Iterable[Gpu], devices: int, memory: float) -> Sequence[Gpu]:
        """So many of these GPUs for a session with so much memory on each, those of which it takes the fewest
        places; none if that is too many.
        """
        able = [gpu for gpu in gpus if self.most.get(gpu, -1) >= memory]
        found = nsmallest(devices, able, key=lambda gpu: self._taken(gpu, memory))
        return found if len(found) == devices and self.lets(found, memory) else ()

    def most_on_each(self, gpus: Collection[Gpu], devices: int) -> int:
        """The most memory that a session may have on each of so many of these GPUs; below 0: it may have
        none.
        """
        marks = {0}  # beyond each of them it takes one place more
        for gpu in gpus:
            card = self._cards[gpu]
            marks.update((self.most.get(gpu, 0), card.usual or card.memory))
            marks.update(card.memory - count * card.usual for count in range(card.places + 1))
        ascending = sorted(mark for mark in marks if mark >= 0)
        first = bisect_left(ascending, True, key=lambda mark: not self.fewest(gpus, devices, mark))
        return ascending[first - 1] if first else -1


def leaving(gpus: Iterable[Gpu], leave: int, alone: bool, *, newcomer: bool) -> Leaving:
    """Return what a session may get now."""
    cards = {gpu: _now(gpu, alone) for gpu in gpus}
    return Leaving(cards, _possible(cards, leave, alone), newcomer)


def ever_leaving(gpus: Iterable[Gpu], leave: int, alone: bool) -> Leaving:
    """Return what a session may get if nobody else has one."""
    cards = {gpu: _empty(gpu, alone) for gpu in gpus}
    return Leaving(cards, _possible(cards, leave, alone), True)


def time_obtainable(gpus: Collection[Gpu], leave: int, *, newcomer: bool) -> int:
    """The most time in all that may be promised now to a session, so that every place that is left has its
    part of some GPU's. A newcomer may have such a part in any case.
    """
    part = _part(gpus)
    left = sum(gpu.time for gpu in gpus if gpu.time > 0) - _reserve(gpus, leave)
    return max(left, part if newcomer else 0)


def time_ever_obtainable(gpus: Collection[Gpu], leave: int) -> int:
    """Return the most time in all that may be promised to a session if nobody else has one."""
    return max(FULL * len(gpus) - _reserve(gpus, leave), _part(gpus))


def _part(gpus: Collection[Gpu]) -> int:
    """Thousandths of a GPU's time that belong to each of its seats."""
    return FULL // max(1, *(gpu.seats for gpu in gpus)) if gpus else 0


def _reserve(gpus: Collection[Gpu], leave: int) -> int:
    return max(0, min(leave, sum(gpu.seats for gpu in gpus) - 1)) * _part(gpus)


def _possible(gpus: Iterable[Gpu], leave: int, alone: bool) -> int:
    """A tenant that is alone must find one place."""
    return min(leave, sum(_empty(gpu, alone).places for gpu in gpus) - 1)
