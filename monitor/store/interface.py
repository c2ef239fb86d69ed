"""What the registry and the tokens ask of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

ABSENT = 0  # the version of a key that is not there


class StoreError(Exception):
    """The store does not answer. What was being written may or may not be there."""


@dataclass(frozen=True)
class Entry:
    """A stored value, with a number that changes with every write."""

    value: bytes
    version: int


class Store(Protocol):
    """Keys are text, values bytes. Once a write returns, no crash of anything loses it (but see `ttl`)."""

    async def get(self, key: str) -> Entry | None:
        """The newest value of the key with its version; None: there is no such key."""

    async def read(self, prefix: str) -> dict[str, Entry]:
        """All keys with this prefix in order, with their entries."""

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Write a value. With `ttl` the key is gone so many seconds later, unless it is written again."""

    async def swap(self, key: str, value: bytes | None, version: int) -> bool:
        """Write a value, or with None delete the key, if the key still has this version. Returns False,
        and changes nothing, if it has another.
        """

    def watch(self, prefix: str) -> AsyncIterator[Mapping[str, bytes]]:
        """All keys with this prefix and their values now, and again after every change: states, not
        events. It outlives failures.
        """

    async def close(self) -> None:
        """Close the store. Watches must have been cancelled before."""
