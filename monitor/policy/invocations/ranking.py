"""Keys in the order of a rank that may change at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K")
SLACK = 64  # outdated entries that are not worth clearing away
OUTDATED = 1  # among the first that are looked at: more are cleared away too


class Ranking(Generic[K]):
    """A priority queue whose keys can be ranked anew and taken out, at O(log n) amortised.

    A key's outdated entries stay in the heap until they come up, or until they are half of it.
    """

    def __init__(self) -> None:
        self._entries: dict[K, tuple[tuple[float | str, ...], int, K]] = {}
        self._heap: list[tuple[tuple[float | str, ...], int, K]] = []
        self._serial = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, in no particular order."""
        return iter(self._entries)

    def set(self, key: K, *rank: float | str) -> None:
        """Give the key this rank; the least comes first, among equals who was ranked first."""
        old = self._entries.get(key)
        if old and old[0] == rank:
            return
        entry = self._entries[key] = (rank, next(self._serial), key)
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def discard(self, key: K) -> None:
        """Take the key out, if it is there."""
        self._entries.pop(key, None)

    def rank(self, key: K) -> tuple[float | str, ...]:
        """The rank of a key that is there."""
        return self._entries[key][0]

    def first(self) -> K | None:
        """The key of least rank, or None."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            if entries.get(entry[2]) is entry:
                return entry[2]
            heappop(heap)
        return None

    def best(self, accepts: Callable[[K], bool]) -> K | None:
        """The key of least rank among those that are accepted; costs O(log n) for each that is not."""
        passed = []
        found = None
        while (key := self.first()) is not None:
            if accepts(key):
                found = key
                break
            passed.append(heappop(self._heap))
        for entry in passed:
            heappush(self._heap, entry)
        return found

    def least(self, number: int) -> list[K]:
        """The first so many keys, in order."""
        if self.first() is None:
            return []
        heap, entries = self._heap, self._entries
        found: list[K] = []
        outdated, length = 0, len(heap)
        ahead = [(heap[0], 0)]  # with their places; whatever is less than the least of these was seen
        while ahead and len(found) < number:
            entry, place = heappop(ahead)
            if entries.get(entry[2]) is entry:
                found.append(entry[2])
            else:
                outdated += 1
            for below in (2 * place + 1, 2 * place + 2):
                if below < length:
                    heappush(ahead, (heap[below], below))
        if outdated > OUTDATED:
            self._uncover(number)
        return found

    def _uncover(self, number: int) -> None:
        """Take away what is outdated before the last of the first so many."""
        taken: list[tuple[tuple[float | str, ...], int, K]] = []
        while len(taken) < number and self.first() is not None:
            taken.append(heappop(self._heap))
        for entry in taken:
            heappush(self._heap, entry)
