"""Queues: which of the requests that wait is placed next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
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

    def push(self, request: Request, first: bool = False) -> None:
        """Add a request at the end, or before everybody."""

    def pick(self, room: Room) -> Request | None:
        """The request whose turn it is, or None if there is no room for it."""

    def since(self, request: Request, room: Room) -> int:
        """The first of the room's changes that can have made room for the picked request; -1: not known."""

    def take(self, request: Request) -> None:
        """The picked request leaves: it is placed."""

    def drop(self, request: int) -> Request | None:
        """Take a request out without placing it; None if it does not wait."""


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

    def push(self, request: Request, first: bool = False) -> None:
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

    def take(self, request: Request) -> None:
        del self._waiting[request.id]

    def drop(self, request: int) -> Request | None:
        return self._waiting.pop(request, None)


class Backfill(Fcfs):
    """The first that fits goes, but no request is ever overtaken by more than `limit` that came after it.

    Whoever overtakes anyone overtakes the head, so the head's overtakers are counted and bind for all.
    """

    def __init__(self, limit: int = OVERTAKERS) -> None:
        super().__init__()
        self._limit = limit
        self._turn: dict[int, int] = {}  # place in the order of arrival
        self._newest = 0
        self._oldest = 0
        self._overtakers: list[int] = []  # turns of those placed before the head, ascending
        self._lines: dict[_Kind, Line] = {}
        # Kinds of which nobody found room, with the changes of that room and how many there were: only what
        # changed since can have made room for them.
        self._barren: dict[_Kind, tuple[list[Gpu], int]] = {}

    def push(self, request: Request, first: bool = False) -> None:
        super().push(request, first)
        kind = _kind(request)
        self._barren.pop(kind, None)
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = Line()
        if first:
            self._oldest -= 1
            self._turn[request.id] = self._oldest
            line.prepend(request)
        else:
            self._newest += 1
            self._turn[request.id] = self._newest
            line.append(request)

    def pick(self, room: Room) -> Request | None:
        if len(self._overtakers) >= self._limit:
            return super().pick(room)
        found = [request for kind, line in self._lines.items() if (request := self._first(kind, line, room))]
        return min(found, key=lambda request: self._turn[request.id], default=None)

    def since(self, request: Request, room: Room) -> int:
        return max(self._since(_kind(request), room), super().since(request, room))

    def _first(self, kind: _Kind, line: Line, room: Room) -> Request | None:
        """The first of its kind that finds room."""
        request = line.first(room.offers(*kind, self._since(kind, room)))
        if request is None:
            self._barren[kind] = room.changes, len(room.changes)
        return request

    def _since(self, kind: _Kind, room: Room) -> int:
        """The first of the room's changes that can have made room for one of this kind; -1: not known."""
        changes, since = self._barren.get(kind, (None, -1))
        return since if changes is room.changes else -1

    def take(self, request: Request) -> None:
        super().take(request)
        insort(self._overtakers, self._forget(request))
        self._settle()

    def drop(self, request: int) -> Request | None:
        dropped = super().drop(request)
        if dropped:
            self._forget(dropped)
            self._settle()
        return dropped

    def _forget(self, request: Request) -> int:
        kind = _kind(request)
        self._lines[kind].remove(request.id)
        if not self._lines[kind]:
            del self._lines[kind]
            self._barren.pop(kind, None)
        return self._turn.pop(request.id)

    def _settle(self) -> None:
        """Those that came before the present head have overtaken nobody that still waits."""
        head = next(iter(self), None)
        before = bisect_left(self._overtakers, self._turn[head.id]) if head else len(self._overtakers)
        del self._overtakers[:before]
