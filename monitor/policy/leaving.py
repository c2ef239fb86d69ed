"""What a tenant has to leave to those that have nothing: places where a session could begin at once.

A place is an idle worker with the memory of a session that asks for none; where each session has a GPU alone,
it is a GPU that nobody has. For requests of one GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from .gpu import Gpu
from .portion import FULL


class _Card(NamedTuple):
    """One GPU: what could be given of it."""

    workers: int
    memory: int
    usual: int

    @property
    def places(self) -> int:
        return min(self.workers, max(self.memory, 0) // self.usual) if self.usual else self.workers


def _now(gpu: Gpu, alone: bool) -> _Card:
    if alone:
        return _Card(int(bool(gpu.idle) and not gpu.busy), gpu.free, 0)
    return _Card(len(gpu.idle), gpu.free, gpu.usual)


def _empty(gpu: Gpu, alone: bool) -> _Card:
    return _Card(1, gpu.memory, 0) if alone else _Card(gpu.seats, gpu.memory, gpu.usual)


def obtainable(gpus: Iterable[Gpu], leave: int, alone: bool, *, newcomer: bool) -> Mapping[Gpu, int]:
    """The most memory that a session may get now on each GPU, so that `leave` places are open afterwards.

    A newcomer has no session: the usual memory it may have in any case, for that is whom places are left to.
    """
    cards = {gpu: _now(gpu, alone) for gpu in gpus}
    return _shared_out(cards, _possible(cards, leave, alone), newcomer)


def ever_obtainable(gpus: Iterable[Gpu], leave: int, alone: bool) -> Mapping[Gpu, int]:
    """Return the most memory that a session may get on each GPU if nobody else has one."""
    cards = {gpu: _empty(gpu, alone) for gpu in gpus}
    return _shared_out(cards, _possible(cards, leave, alone), True)


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


def _shared_out(cards: Mapping[Gpu, _Card], leave: int, newcomer: bool) -> Mapping[Gpu, int]:
    total = sum(card.places for card in cards.values())
    found = {}
    for gpu, card in cards.items():
        here = max(leave - (total - card.places), 0)  # places that must stay open on this very GPU
        if card.workers > here and card.memory >= here * card.usual:
            found[gpu] = card.memory - here * card.usual
        if newcomer and card.workers:
            found[gpu] = max(found.get(gpu, 0), min(card.memory, card.usual or card.memory))
    return found
