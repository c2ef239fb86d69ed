"""A line of requests that finds the first one small enough without looking at the others."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .interface import Request


class Line:
    """Requests in order, under a tree of the least memory asked for below each node: steps are O(log n)."""

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
        self._slot_of[request.id] = len(self._slots)
        self._slots.append(request)
        self._set(self._slot_of[request.id], request.memory)

    def prepend(self, request: Request) -> None:
        """Add a request before all others: rare, and O(n)."""
        self._rebuild([request, *self])

    def remove(self, request: int) -> None:
        """Take the request with this id out."""
        slot = self._slot_of.pop(request)
        self._slots[slot] = None
        self._set(slot, math.inf)

    def first(self, most: float) -> Request | None:
        """The first that asks for no more than this."""
        least = self._least
        if least[1] > most:
            return None
        node = 1
        while node < self._size:
            node *= 2
            if least[node] > most:
                node += 1
        return self._slots[node - self._size]

    def _set(self, slot: int, memory: float) -> None:
        least, node = self._least, slot + self._size
        least[node] = memory
        while node > 1:
            left, right = least[node & ~1], least[node | 1]
            node //= 2
            least[node] = left if left <= right else right

    def _rebuild(self, requests: list[Request]) -> None:
        """Closes the gaps, and leaves as much room again."""
        self._size = size = max(16, 1 << (2 * len(requests)).bit_length())
        self._slots = list(requests)
        self._slot_of = {request.id: slot for slot, request in enumerate(requests)}
        self._least: list[float] = [math.inf] * (2 * size)
        self._least[size : size + len(requests)] = [request.memory for request in requests]
        for node in range(size - 1, 0, -1):
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])
