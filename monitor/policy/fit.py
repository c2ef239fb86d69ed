"""Which GPU a request gets, among those where it fits."""

from __future__ import annotations

import copy
import math
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from operator import attrgetter

from .company import allows, homes
from .gpu import Gpu
from .interface import Request
from .kubeshare import ranks
from .leaving import Leaving, leaving, time_obtainable
from .portion import FULL, Portion

REMEMBERED = 1000  # changes of a room
FEW = 64  # changes are gone through; more are not worth it
HOMES = 64  # affinities of which it is remembered where they are; labels are what guests say


@dataclass(frozen=True)
class Fit:
    """How to choose among the GPUs where a request of this portion fits: the smallest of their `ranks` wins,
    among equals the lowest index. `alone`: only a GPU that nobody else has. `apart`: the first of an affinity
    goes where no session of its scope is, and to a GPU that nobody has rather than any other.
    """

    ranks: Callable[[Portion, Sequence[Gpu]], Sequence[int]]
    alone: bool = False
    apart: bool = False


_FREE = attrgetter("free")
_INDEX = attrgetter("index")

BEST = Fit(lambda _, gpus: [gpu.free for gpu in gpus])
WORST = Fit(lambda _, gpus: [-gpu.free for gpu in gpus])
FIRST = Fit(lambda _, gpus: [0] * len(gpus))
EXCLUSIVE = Fit(FIRST.ranks, alone=True)
KUBESHARE = Fit(ranks, apart=True)


def _taken(gpu: Gpu) -> int:
    return -gpu.free


def _is_untouched(gpu: Gpu) -> bool:
    return not gpu.marks and not gpu.busy and gpu.time == FULL


def _may_move(said: tuple[str, str], found: Sequence[Gpu] | None, changed: Iterable[Gpu]) -> bool:
    """Whether an affinity that was found on these GPUs may be elsewhere, now that those changed."""
    affinity, scope = said
    for gpu in changed:
        marks = gpu.marks.get(scope)
        if marks is not None and affinity in marks.affinity:
            return True
        if found is not None and (not found or gpu in found):
            return True
    return False


class Room:
    """The GPUs that can take a session at this moment. `changes`: those that changed since it was made, in
    order, so that who looked at it before need not look at all of them again.
    """

    def __init__(self, gpus: Iterable[Gpu], fit: Fit) -> None:
        self._fit = fit
        self._most = math.inf  # memory in all that a request may have,
        self._gpus = math.inf  # GPUs,
        self._time = math.inf  # and thousandths of a GPU's time
        self._free: Callable[[Gpu], int] = _FREE
        self._leaving: Leaving | None = None  # what has to be left to others
        self.gpus = list(gpus)
        self._known = frozenset(self.gpus)
        self.changes: list[Gpu] = []
        self._changed = 0  # how many those are
        # Where each affinity is, as company.homes says, and how many changes there were when that was found.
        self._homes: dict[tuple[str, str], tuple[Portion, list[Gpu] | None, int]] = {}
        self.open = list(filter(self._is_open, self.gpus))
        self._open = set(self.open)
        self._roomiest = sorted(self.open, key=_taken)

    def _is_open(self, gpu: Gpu) -> bool:
        return bool(gpu.idle) and not (self._fit.alone and gpu.busy)

    def renew(self, changed: Collection[Gpu]) -> None:
        """Take in that these GPUs changed: memory, workers, sessions. Those of other rooms are ignored."""
        changed = self._known.intersection(changed)
        if len(self.changes) >= REMEMBERED:
            self.changes = []
            self._homes.clear()
        self.changes += changed
        self._changed = len(self.changes)
        for said, (portion, found, _) in list(self._homes.items()):
            if _may_move(said, found, changed):
                self._follow(said, portion, found, changed)
        # What changed leaves the order first: it is found by what the others are.
        for gpu in self._open.intersection(changed):
            self._roomiest.remove(gpu)
            if not self._is_open(gpu):
                self._open.remove(gpu)
                self.open.remove(gpu)
        for gpu in changed:
            if self._is_open(gpu):
                insort(self._roomiest, gpu, key=_taken)
                if gpu not in self._open:
                    self._open.add(gpu)
                    insort(self.open, gpu, key=_INDEX)

    def _follow(
        self, said: tuple[str, str], portion: Portion, found: list[Gpu] | None, changed: Collection[Gpu]
    ) -> None:
        """An affinity may be elsewhere now than on these GPUs."""
        if found == []:  # on its way, and nobody noted between which
            del self._homes[said]
            return
        now = homes(portion, changed if found is None else {*found, *changed})
        if now != found:
            self._homes[said] = portion, now, self._changed

    def _copy(self) -> Room:
        """Another room, so that nothing that is known of this one is taken for knowledge of that one."""
        narrow = copy.copy(self)
        narrow.changes = []
        return narrow

    def within(self, memory: float, gpus: float = math.inf, time: float = math.inf) -> Room:
        """Return this room, cut to what somebody may have in all."""
        narrow = self._copy()
        narrow._most = min(memory, self._most)
        narrow._gpus = min(gpus, self._gpus)
        narrow._time = max(min(time, self._time), 0)  # who asks for none needs none
        return narrow

    def leaving(self, places: int, *, newcomer: bool) -> Room:
        """Return this room, less so many places that are kept for those who have none."""
        narrow = self._copy()
        narrow._leaving = leaving(self.gpus, places, self._fit.alone, newcomer=newcomer)
        most = narrow._leaving.most
        narrow.open = [gpu for gpu in self.open if gpu in most]
        narrow._open = set(narrow.open)
        narrow._free = most.__getitem__
        narrow._time = min(self._time, time_obtainable(self.gpus, places, newcomer=newcomer))
        narrow._roomiest = sorted(narrow.open, key=narrow._free, reverse=True)
        return narrow

    def usual(self) -> Room:
        """Return this room for a session with no more memory than those get that ask for none."""
        return self.within(max((gpu.usual or gpu.memory for gpu in self.open), default=0))

    def _admits(self, portion: Portion, among: Sequence[Gpu]) -> tuple[Iterable[Gpu], Callable[[Gpu], bool]]:
        """Which of these GPUs labels leave to such a session: those of a shorter list of which this holds."""
        if portion.affinity:
            wanted = self._home_of(portion)
            if wanted is not None:
                among = among if len(wanted) > 1 else [gpu for gpu in wanted if gpu in among]
                return among, lambda gpu: gpu in wanted and allows(portion, gpu)
            if self._fit.apart:
                scope = portion.scope
                return (gpu for gpu in among if scope not in gpu.marks), lambda gpu: True
        return among, partial(allows, portion)

    def _home_of(self, portion: Portion) -> list[Gpu] | None:
        """`homes`, which looks at all GPUs, once for each affinity until that may be elsewhere."""
        said = portion.affinity, portion.scope
        known = self._homes.get(said)
        if known is None:
            if len(self._homes) >= HOMES:
                self._homes.clear()
            known = self._homes[said] = portion, homes(portion, self.gpus), self._changed
        return known[1]

    def _is_where_it_was(self, portion: Portion, since: int) -> bool:
        """Whether its affinity, if it has one, is known to be where it was before these changes."""
        known = self._homes.get((portion.affinity, portion.scope))
        return not portion.affinity or (known is not None and known[2] <= since)

    def _changed_since(self, since: int, devices: int, portion: Portion) -> Collection[Gpu] | None:
        """The open GPUs on one of which such a request has to be if it found no room before the changes from
        this one on. None: any, because that is not known, or several devices, or affinities that went
        elsewhere, look beyond those that changed.
        """
        if since < 0 or devices > 1 or len(self.changes) - since >= FEW:
            return None
        return (
            self._open.intersection(self.changes[since:]) if self._is_where_it_was(portion, since) else None
        )

    def offers(
        self, labels: frozenset[str], devices: int, portion: Portion, since: int = -1
    ) -> Sequence[tuple[float, float]]:
        """What a request could have of one device: pairs of memory and time, of which none is less in both
        than another; the most memory first. Of several devices the time is that which `portion` asks for.
        `since`: only what came with the changes from this one on; what could be had before may be left out.
        """
        if since == len(self.changes):
            return ()
        changed = self._changed_since(since, devices, portion)
        among = self._roomiest if changed is None else sorted(changed, key=self._free, reverse=True)
        most = self._most // devices
        if devices > self._gpus:
            return ()
        if devices > 1:
            wide = self._on_each(labels, devices, portion)
            return ((min(wide, most), FULL),) if wide >= 0 else ()
        able, admits = self._admits(portion, among)
        found, best = list[tuple[float, float]](), -1
        for gpu in able:
            time = gpu.time if gpu.time > 0 else 0  # who asks for none of it shares what is left
            if time > best and labels <= gpu.labels and admits(gpu):
                found.append((min(self._free(gpu), most), min(time, self._time)))
                if time >= FULL:
                    break
                best = time
        return found

    def _fitting(
        self, labels: frozenset[str], devices: int, portion: Portion, memory: float, since: int = -1
    ) -> Sequence[Gpu]:
        """The roomiest GPUs for such a request with so much memory: as many as it asks for, or fewer. Where
        places are left to others, those of which it takes the fewest. `since`: as `holds` has it.
        """
        if portion.request * devices > self._time:
            return ()
        if devices > 1 and self._leaving:
            return self._leaving.fewest(self._able(labels, portion), devices, memory)
        changed = self._changed_since(since, devices, portion)
        among = self._roomiest if changed is None else sorted(changed, key=self._free, reverse=True)
        able, admits = self._admits(portion, among)
        found, free = list[Gpu](), self._free
        least = portion.request or -math.inf  # of its time
        for gpu in able:
            if free(gpu) < memory:
                break
            if gpu.time >= least and labels <= gpu.labels and admits(gpu):
                found.append(gpu)
                if len(found) == devices:
                    break
        return found

    def _able(self, labels: frozenset[str], portion: Portion) -> list[Gpu]:
        """The open GPUs with labels and time for such a request, whatever their memory."""
        able, admits = self._admits(portion, self.open)
        least = portion.request or -math.inf
        return [gpu for gpu in able if gpu.time >= least and labels <= gpu.labels and admits(gpu)]

    def _on_each(self, labels: frozenset[str], devices: int, portion: Portion) -> float:
        """The most memory that such a request of several devices could have on each; below 0: no room."""
        if portion.request * devices > self._time:
            return -1
        if self._leaving:
            return self._leaving.most_on_each(self._able(labels, portion), devices)
        wide = self._fitting(labels, devices, portion, -math.inf)
        return self._free(wide[-1]) if len(wide) == devices else -1

    def holds(self, request: Request, since: int = -1) -> bool:
        """Whether the room has a seat on each GPU that the request asks for. `since`: it had not before the
        changes from this one on; -1: that is not known.
        """
        memory, devices = request.memory, request.devices
        if devices > self._gpus or memory * devices > self._most:
            return False
        return len(self._fitting(request.labels, devices, request.portion, memory, since)) == devices

    def choose(self, request: Request, since: int = -1) -> list[Gpu]:
        """The GPUs for a request that this room holds. `since`: as `holds` has it."""
        if len(self.open) == 1:
            return self.open[:]
        memory, labels, portion = request.memory, request.labels, request.portion
        changed = self._changed_since(since, request.devices, portion)
        here = self.open if changed is None else sorted(changed, key=_INDEX)
        least, free, ranks = portion.request or -math.inf, self._free, self._fit.ranks
        if portion.affinity and self._fit.apart and self._home_of(portion) is None:
            for gpu in here:
                if _is_untouched(gpu) and free(gpu) >= memory and labels <= gpu.labels:
                    return [gpu]  # no other one is better
        among, admits = self._admits(portion, here)
        wide = [gpu for gpu in among if gpu.time >= least and free(gpu) >= memory]
        if labels:
            wide = [gpu for gpu in wide if labels <= gpu.labels]
        if request.devices > 1:
            wide = list(filter(admits, wide))
            best = nsmallest(request.devices, zip(ranks(portion, wide), range(len(wide)), strict=True))
            chosen = [wide[place] for _, place in best]
            if self._leaving and not self._leaving.lets(chosen, memory):
                return list(self._leaving.fewest(wide, request.devices, memory))
            return chosen
        # Labels are asked for only where a GPU would be better than the best so far: that is the dear part.
        found, least = wide[:0], math.inf
        for gpu, rank in zip(wide, ranks(portion, wide), strict=True):
            if rank < least and admits(gpu):
                found, least = [gpu], rank
        return found
