"""A line of requests that finds the first one small enough without looking at the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from .interface import Request

Offer = tuple[float, float]  # memory, and thousandths of a GPU's time


class Line:
    """Requests in order, under a tree of the least memory and the least time asked for below each node. Steps
    are O(log n) while no request asks for time; else the search goes back where both minima are another's.
    """

    def __init__(self) -> None:
        self._slots: list[Request | None] = []
        self._slot_of: dict[int, int] = {}
        self._rebuild([])

    def __len__(self) -> int:
        return len(self._slot_of)

    def __iter__(self) -> Iterator[Request]:
        return (request for request in self._slots if request is not None)

    def append(self, request: Request) -> None:
        """Add a request at the end."""
        if len(self._slots) == self._size:
            self._rebuild(list(self))
        slot = self._slot_of[request.id] = len(self._slots)
        self._slots.append(request)
        self._set(self._least, slot, request.memory)
        if request.portion.request:
            if not self._timed:
                self._soonest = self._tree([0.0] * slot)
            self._timed += 1
        if self._timed:
            self._set(self._soonest, slot, request.portion.request)

    def prepend(self, request: Request) -> None:
        """Add a request before all others: rare, and O(n)."""
        self._rebuild([request, *self])

    def remove(self, request: int) -> None:
        """Take the request with this id out."""
        slot = self._slot_of.pop(request)
        gone = self._slots[slot]
        self._slots[slot] = None
        self._set(self._least, slot, math.inf)
        if self._timed:
            self._set(self._soonest, slot, math.inf)
        if gone and gone.portion.request:
            self._timed -= 1

    def first(self, offers: Sequence[Offer]) -> Request | None:
        """The first that asks for no more than one of these, which begin with the most memory."""
        if not offers:
            return None
        if not self._timed:
            return self._first_by_memory(offers[0][0])
        if len(offers) == 1:
            return self._first_by_both(*offers[0])
        least, soonest, size = self._least, self._soonest, self._size
        ahead = [1]
        while ahead:
            node = ahead.pop()
            memory, time = least[node], soonest[node]
            for most, longest in offers:
                if memory <= most and time <= longest:
                    break
            else:
                continue
            if node >= size:
                return self._slots[node - size]
            ahead.append(2 * node + 1)
            ahead.append(2 * node)
        return None

    def _first_by_memory(self, most: float) -> Request | None:
        least = self._least
        if least[1] > most:
            return None
        node = 1
        while node < self._size:
            node *= 2
            if least[node] > most:
                node += 1
        return self._slots[node - self._size]

    def _first_by_both(self, most: float, longest: float) -> Request | None:
        least, soonest, size = self._least, self._soonest, self._size
        if least[1] > most or soonest[1] > longest:
            return None
        ahead = [1]
        while ahead:
            node = ahead.pop()
            while node < size:
                node *= 2
                right = node + 1
                fits = least[node] <= most and soonest[node] <= longest
                if least[right] <= most and soonest[right] <= longest:
                    if fits:
                        ahead.append(right)
                    else:
                        node = right
                elif not fits:
                    break
            else:
                return self._slots[node - size]
        return None

    def _set(self, tree: list[float], slot: int, value: float) -> None:
        node = slot + self._size
        tree[node] = value
        while node > 1:
            left, right = tree[node & ~1], tree[node | 1]
            node //= 2
            least = left if left <= right else right
            if tree[node] == least:
                return  # and so is everything above
            tree[node] = least

    def _tree(self, values: Sequence[float]) -> list[float]:
        levels = [[*values, *[math.inf] * (self._size - len(values))]]
        while len(levels[-1]) > 1:
            below = levels[-1]
            pairs = zip(below[::2], below[1::2], strict=True)
            levels.append([left if left <= right else right for left, right in pairs])
        return [math.inf, *chain.from_iterable(reversed(levels))]

    def _rebuild(self, requests: list[Request]) -> None:
        """Closes the gaps, and leaves as much room again."""
        self._size = max(16, 1 << (2 * len(requests)).bit_length())
        self._slots = list(requests)
        self._slot_of = {request.id: slot for slot, request in enumerate(requests)}
        self._least = self._tree([request.memory for request in requests])
        self._timed = sum(request.portion.request > 0 for request in requests)
        self._soonest = self._tree([request.portion.request for request in requests]) if self._timed else []
