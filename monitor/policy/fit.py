"""Which GPU a request gets, among those where it fits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from operator import attrgetter

from .company import allows, homes
from .gpu import Gpu
from .interface import Request
from .kubeshare import ranks
from .leaving import obtainable, time_obtainable
from .portion import FULL, Portion

REMEMBERED = 1000  # changes of a room
FEW = 64  # changes are gone through; more are not worth it
HOMES = 64  # affinities of which it is remembered where they are; labels are what guests say


@dataclass(frozen=True)
class Fit:
    """How to choose among the GPUs where a request of this portion fits: the smallest of their `ranks` wins,
    among equals the lowest index. `alone`: only a GPU that nobody else has. `apart`: the first of an affinity
    goes where no session of its scope is.
    """

    ranks: Callable[[Portion, Sequence[Gpu]], Sequence[int]]
    alone: bool = False
    apart: bool = False


_FREE = attrgetter("free")

BEST = Fit(lambda _, gpus: [gpu.free for gpu in gpus])
WORST = Fit(lambda _, gpus: [-gpu.free for gpu in gpus])
FIRST = Fit(lambda _, gpus: [0] * len(gpus))
EXCLUSIVE = Fit(FIRST.ranks, alone=True)
KUBESHARE = Fit(ranks, apart=True)


def _may_move(said: tuple[str, str], found: Sequence[Gpu] | None, changed: Gpu) -> bool:
    """Whether an affinity that was found on these GPUs may be elsewhere now."""
    affinity, scope = said
    marks = changed.marks.get(scope)
    is_there = marks is not None and affinity in marks.affinity
    return is_there or (found is not None and (not found or changed in found))


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
        self.gpus = list(gpus)
        self.changes: list[Gpu] = []
        self._changed = 0  # how many those are
        # Where each affinity is, as company.homes says, and how many changes there were when that was found.
        self._homes: dict[tuple[str, str], tuple[list[Gpu] | None, int]] = {}
        self._look()

    def _look(self) -> None:
        alone = self._fit.alone
        self.open = [gpu for gpu in self.gpus if gpu.idle and not (alone and gpu.busy)]
        self._open = set(self.open)
        self._sort()

    def _sort(self) -> None:
        self._roomiest = sorted(self.open, key=self._free, reverse=True) if len(self.open) > 1 else self.open

    def renew(self, changed: Collection[Gpu]) -> None:
        """These GPUs are not what they were."""
        if len(self.changes) >= REMEMBERED:
            self.changes = []
            self._homes.clear()
        self.changes += changed
        self._changed = len(self.changes)
        for said, (found, _) in list(self._homes.items()):
            if any(_may_move(said, found, gpu) for gpu in changed):
                del self._homes[said]
        self._look()

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
        found = obtainable(self.gpus, places, self._fit.alone, newcomer=newcomer)
        narrow.open = [gpu for gpu in self.open if gpu in found]
        narrow._open = set(narrow.open)
        narrow._free = found.__getitem__
        narrow._time = min(self._time, time_obtainable(self.gpus, places, newcomer=newcomer))
        narrow._sort()
        return narrow

    def usual(self) -> Room:
        """Return this room for a session with no more memory than those get that ask for none."""
        return self.within(max((gpu.usual or gpu.memory for gpu in self.open), default=0))

    def _admits(self, portion: Portion, among: Sequence[Gpu]) -> tuple[Sequence[Gpu], Callable[[Gpu], bool]]:
        """Which of these GPUs labels leave to such a session: those of a shorter list of which this holds."""
        if portion.affinity:
            wanted = self._home_of(portion)
            if wanted is not None:
                among = among if len(wanted) > 1 else [gpu for gpu in wanted if gpu in among]
                return among, lambda gpu: gpu in wanted and allows(portion, gpu)
            if self._fit.apart:
                return among, lambda gpu: portion.scope not in gpu.marks
        return among, partial(allows, portion)

    def _home_of(self, portion: Portion) -> list[Gpu] | None:
        """`homes`, which looks at all GPUs, once for each affinity until that may be elsewhere."""
        said = portion.affinity, portion.scope
        known = self._homes.get(said)
        if known is None:
            if len(self._homes) >= HOMES:
                self._homes.clear()
            known = self._homes[said] = homes(portion, self.gpus), self._changed
        return known[0]

    def _is_where_it_was(self, portion: Portion, since: int) -> bool:
        """Whether its affinity, if it has one, is known to be where it was before these changes."""
        known = self._homes.get((portion.affinity, portion.scope))
        return not portion.affinity or (known is not None and known[1] <= since)

    def offers(
        self, labels: frozenset[str], devices: int, portion: Portion, since: int = -1
    ) -> Sequence[tuple[float, float]]:
        """What a request could have of one device: pairs of memory and time, of which none is less in both
        than another; the most memory first. Of several devices the time is that which `portion` asks for.
        `since`: only what came with the changes from this one on; what could be had before may be left out.
        """
        among: Sequence[Gpu] = self._roomiest
        if since >= 0:
            changed = self.changes[since:]
            if not changed:
                return ()
            # Several devices, and affinities that went elsewhere, look beyond the GPUs that changed.
            if devices == 1 and len(changed) < FEW and self._is_where_it_was(portion, since):
                among = sorted(self._open.intersection(changed), key=self._free, reverse=True)
        most = self._most // devices
        if devices > self._gpus:
            return ()
        if devices > 1:
            wide = [self._free(gpu) for gpu in self._fitting(labels, devices, portion, -math.inf)]
            return ((min(wide[-1], most), FULL),) if len(wide) == devices else ()
        among, admits = self._admits(portion, among)
        found, best = list[tuple[float, float]](), -1
        for gpu in among:
            time = gpu.time if gpu.time > 0 else 0  # who asks for none of it shares what is left
            if time > best and labels <= gpu.labels and admits(gpu):
                found.append((min(self._free(gpu), most), min(time, self._time)))
                if time >= FULL:
                    break
                best = time
        return found

    def _fitting(
        self, labels: frozenset[str], devices: int, portion: Portion, memory: float
    ) -> Sequence[Gpu]:
        """The roomiest GPUs for such a request with so much memory: as many as it asks for, or fewer."""
        if portion.request * devices > self._time:
            return ()
        among, admits = self._admits(portion, self._roomiest)
        found, free = list[Gpu](), self._free
        least = portion.request or -math.inf  # of its time
        for gpu in among:
            if free(gpu) < memory:
                break
            if gpu.time >= least and labels <= gpu.labels and admits(gpu):
                found.append(gpu)
                if len(found) == devices:
                    break
        return found

    def holds(self, request: Request) -> bool:
        """Whether the room has a seat on each GPU that the request asks for."""
        memory, devices = request.memory, request.devices
        if devices > self._gpus or memory * devices > self._most:
            return False
        return len(self._fitting(request.labels, devices, request.portion, memory)) == devices

    def choose(self, request: Request) -> list[Gpu]:
        """The GPUs for a request that this room holds."""
        if len(self.open) == 1:
            return self.open
        memory, labels, portion = request.memory, request.labels, request.portion
        among, admits = self._admits(portion, self.open)
        least, free, ranks = portion.request or -math.inf, self._free, self._fit.ranks
        wide = [gpu for gpu in among if gpu.time >= least and free(gpu) >= memory]
        if labels:
            wide = [gpu for gpu in wide if labels <= gpu.labels]
        if request.devices > 1:
            wide = list(filter(admits, wide))
            best = nsmallest(request.devices, zip(ranks(portion, wide), range(len(wide)), strict=True))
            return [wide[place] for _, place in best]
        # Labels are asked for only where a GPU would be better than the best so far: that is the dear part.
        found, least = wide[:0], math.inf
        for gpu, rank in zip(wide, ranks(portion, wide), strict=True):
            if rank < least and admits(gpu):
                found, least = [gpu], rank
        return found
