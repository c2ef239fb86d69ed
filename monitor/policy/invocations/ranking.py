"""Keys in the order of a rank that may change at any time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Generic, TypeVar

K = TypeVar("K")


class Ranking(Generic[K]):
    """A sorted list whose keys can be ranked anew or taken out; the first few are there without a search.

    A change costs O(log n) comparisons and one move of n pointers, which is felt beyond about 20,000 keys.
    All ranks of one list have the same length.
    """

    def __init__(self) -> None:
        self._entries: dict[K, tuple[Any, ...]] = {}  # rank, serial number, key: flat, which compares fastest
        self._order: list[tuple[Any, ...]] = []
        self._serial = count()

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys in the order in which they came in; a new rank changes nothing in it."""
        return iter(self._entries)

    def set(self, key: K, *rank: float | str) -> None:
        """Give the key this rank; the least comes first, among equals who was ranked first."""
        old = self._entries.get(key)
        if old:
            if old[:-2] == rank:
                return
            del self._order[bisect_left(self._order, old)]
        entry = self._entries[key] = (*rank, next(self._serial), key)
        insort(self._order, entry)

    def discard(self, key: K) -> None:
        """Take the key out, if it is there."""
        old = self._entries.pop(key, None)
        if old:
            del self._order[bisect_left(self._order, old)]

    def rank(self, key: K) -> tuple[float | str, ...]:
        """The rank of a key that is there."""
        return self._entries[key][:-2]

    def first(self) -> K | None:
        """The key of least rank, or None."""
        return self._order[0][-1] if self._order else None

    def best(self, accepts: Callable[[K], bool]) -> K | None:
        """The key of least rank among those that are accepted; `accepts` must not change a rank."""
        return next((entry[-1] for entry in self._order if accepts(entry[-1])), None)

    def least(self, number: int) -> list[K]:
        """The first so many keys, in order."""
        return [entry[-1] for entry in self._order[:number]]
