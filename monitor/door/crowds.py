"""Who is at the door, and whose turn it is to go when there are too many."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Crowds(Generic[Key]):
    """Those who are at the door, by where they come from, oldest first. What comes by the thousand must cost
    the same however many are here, so nothing is counted anew.
    """

    def __init__(self) -> None:
        self._origins: dict[Key, str] = {}
        self._crowds: dict[str, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def enter(self, key: Key, origin: str) -> None:
        """Somebody has come."""
        self._origins[key] = origin
        self._crowds.setdefault(origin, {})[key] = None

    def leave(self, key: Key) -> None:
        """Somebody has gone."""
        origin = self._origins.pop(key)
        crowd = self._crowds[origin]
        del crowd[key]
        if not crowd:
            del self._crowds[origin]

    def oldest(self) -> Key:
        """The oldest of the origin that has most of them here; there must be somebody."""
        largest = max(self._crowds, key=lambda origin: len(self._crowds[origin]))
        return next(iter(self._crowds[largest]))
