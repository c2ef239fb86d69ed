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
    """A value, and a number that is another one after every write."""

    value: bytes
    version: int


class Store(Protocol):
    """Keys are text, values bytes. Once a write returns, no crash of anything loses it (but see `ttl`)."""

    async def get(self, key: str) -> Entry | None:
        """The newest value."""

    async def read(self, prefix: str) -> dict[str, Entry]:
        """All keys that begin like this, in order."""

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Write. With `ttl` the key is gone so many seconds later, unless it is written again."""

    async def swap(self, key: str, value: bytes | None, version: int) -> bool:
        """Write, or delete with None, if the key still has this version; else change nothing: False."""

    def watch(self, prefix: str) -> AsyncIterator[Mapping[str, bytes]]:
        """All keys and values now, and again after every change: states, not events. Outlives failures."""

    async def close(self) -> None:
        """Watches must have been cancelled before."""
