"""Queues: which of the requests that wait is placed next."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from .fit import Room
from .gpu import Gpu
from .interface import Request
from .least import Line
from .portion import FULL, PLAIN, Portion

OVERTAKERS = 25
_Kind = tuple[frozenset[str], int, Portion]  # of requests that differ in memory, and in time of one device


def _kind(request: Request) -> _Kind:
    portion = request.portion
    if portion is not PLAIN and request.devices == 1:
        portion = Portion(0, FULL, *portion.labels)
    return request.labels, request.devices, portion


class Queue(Protocol):
    """Requests that wait, in the order in which they get their turn."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the requests that wait, in order of arrival."""

    def push(self, request: Request, first: bool = False, overtaken: int = 0) -> None:
        """Add a request at the end, or before everybody. `overtaken`: what `take` said when it was placed
        before.
        """

    def pick(self, room: Room) -> Request | None:
        """The request whose turn it is, or None if there is no room for it."""

    def since(self, request: Request, room: Room) -> int:
        """The first of the room's changes that can have made room for the picked request; -1: not known."""

    def take(self, request: Request) -> int:
        """The picked request leaves: it is placed. Returns by how many that came after it it was overtaken,
        as far as that counts.
        """

    def drop(self, request: int) -> Request | None:
        """Take a request out without placing it; None if it does not wait."""

    def find(self, request: int) -> Request | None:
        """The request with this id; None if it does not wait."""


class Fcfs:
    """Strictly first come first served: the head blocks everyone behind it."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, Request] = OrderedDict()
        # The head that found no room, with the changes of that room and how many there were.
        self._stuck: tuple[int, list[Gpu], int] = (0, [], 0)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._waiting.values())

    def push(self, request: Request, first: bool = False, overtaken: int = 0) -> None:
        self._waiting[request.id] = request
        if first:
            self._waiting.move_to_end(request.id, last=False)

    def pick(self, room: Room) -> Request | None:
        head = next(iter(self._waiting.values()), None)
        if head is None or room.holds(head, self.since(head, room)):
            return head
        self._stuck = head.id, room.changes, len(room.changes)
        return None

    def since(self, request: Request, room: Room) -> int:
        head, changes, since = self._stuck
        return since if head == request.id and changes is room.changes else -1

    def take(self, request: Request) -> int:
        del self._waiting[request.id]
        return 0

    def drop(self, request: int) -> Request | None:
        return self._waiting.pop(request, None)

    def find(self, request: int) -> Request | None:
        return self._waiting.get(request)


@dataclass(slots=True, eq=False)
class _Group:
    """The waiting requests of one kind, and what is known of room for them."""

    kind: _Kind
    line: Line = field(default_factory=Line)
    # None of them found room: the changes of that room and how many there were. Only what changed since can
    # have made room for them.
    changes: list[Gpu] | None = None
    changed: int = -1

    def since(self, room: Room) -> int:
        """The first of the room's changes that can have made room for one of them; -1: not known."""
        return self.changed if self.changes is room.changes else -1

    def first(self, room: Room) -> Request | None:
        """The first of them that finds room."""
        request = self.line.first(room.offers(*self.kind, self.since(room)))
        if request is None:
            self.changes, self.changed = room.changes, len(room.changes)
        return request


class Backfill(Fcfs):
    """The first that fits goes, but no request is ever overtaken by more than `limit` that came after it.

    Whoever overtakes anyone overtakes the head, so the head's overtakers are counted and bind for all. Those
    that were placed in vain and are first now have counts of their own, for they were placed meanwhile.
    """

    def __init__(self, limit: int = OVERTAKERS) -> None:
        super().__init__()
        self._limit = limit
        self._turn: dict[int, int] = {}  # place in the order of arrival
        self._newest = 0
        self._oldest = 0
        self._overtakers: list[
            int
        ] = []  # turns of those placed before the first that never came back, ascending
        self._returned: dict[int, int] = {}  # how many overtook each of those that came back
        self._groups: dict[_Kind, _Group] = {}
        self._group: dict[int, _Group] = {}  # of each request

    def push(self, request: Request, first: bool = False, overtaken: int = 0) -> None:
        super().push(request, first)
        kind = _kind(request)
        group = self._groups.get(kind)
        if group is None:
            group = self._groups[kind] = _Group(kind)
        self._group[request.id] = group
        group.changes = None
        if first:
            self._oldest -= 1
            self._turn[request.id] = self._oldest
            self._returned[request.id] = overtaken
            group.line.prepend(request)
        else:
            self._newest += 1
            self._turn[request.id] = self._newest
            group.line.append(request)

    def pick(self, room: Room) -> Request | None:
        if max([len(self._overtakers), *self._returned.values()]) >= self._limit:
            return super().pick(room)
        found = [request for group in self._groups.values() if (request := group.first(room))]
        return min(found, key=lambda request: self._turn[request.id], default=None)

    def since(self, request: Request, room: Room) -> int:
        return max(self._group[request.id].since(room), super().since(request, room))

    def take(self, request: Request) -> int:
        super().take(request)
        overtaken = self._returned.pop(request.id, None)
        turn = self._forget(request)
        for other in self._returned:
            self._returned[other] += self._turn[other] < turn
        if overtaken is None:
            overtaken = len(self._overtakers) - bisect_right(self._overtakers, turn)
            insort(self._overtakers, turn)
        self._settle()
        return overtaken

    def drop(self, request: int) -> Request | None:
        dropped = super().drop(request)
        if dropped:
            self._forget(dropped)
            self._returned.pop(request, None)
            self._settle()
        return dropped

    def _forget(self, request: Request) -> int:
        group = self._group.pop(request.id)
        group.line.remove(request.id)
        if not group.line:
            del self._groups[group.kind]
        return self._turn.pop(request.id)

    def _settle(self) -> None:
        """Forget overtakers that came before the first waiting request of those that never came back: they
        have overtaken nobody that still waits.
        """
        first = next((number for number in self._waiting if number not in self._returned), None)
        turn = math.inf if first is None else self._turn[first]
        del self._overtakers[: bisect_left(self._overtakers, turn)]
