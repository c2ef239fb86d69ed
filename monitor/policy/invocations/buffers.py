"""The cache of buffers on a GPU, as in KaaS (policies.md §2.4): pinned, hot and cold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

GRANULE = 2 << 20  # device allocations are multiples of this
MARGIN = 300 << 20  # bytes of a GPU that no buffer gets
HOT = 1


class Buffer(NamedTuple):
    """One buffer of a request. Its id is (client, name, key): equal keys of two clients are two copies."""

    id: tuple[str, str, str]
    size: int  # bytes
    dirty: bool = False  # a request writes it: it is written back before it goes

    @property
    def room(self) -> int:
        """Bytes that it takes on the device."""
        return -(-self.size // GRANULE) * GRANULE


class Moved(NamedTuple):
    """What must happen before a request may run, in this order."""

    written_back: list[Buffer]
    evicted: list[Buffer]
    loaded: list[Buffer]


class Full(Exception):
    """The buffers of the requests that run at once are more than the GPU holds."""


class BufferCache:
    """Buffers on one GPU. Those of a request are pinned from `load` to `release`.

    Who makes room is the cold one used longest ago, then the hot one. A buffer is hot once more than `hot`
    requests with it completed: 1 as KaaS's paper, 2 as its source.
    """

    def __init__(self, memory: int, *, hot: int = HOT, margin: int = MARGIN) -> None:
        self.capacity = memory - margin
        self.used = 0
        self._threshold = hot
        self._buffers: dict[tuple[str, str, str], Buffer] = {}
        self._pins: dict[tuple[str, str, str], int] = {}
        self._uses: dict[tuple[str, str, str], int] = {}
        self._cold: OrderedDict[tuple[str, str, str], None] = OrderedDict()  # not pinned
        self._hot: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def __contains__(self, buffer: Buffer) -> bool:
        return buffer.id in self._buffers

    def load(self, request: Sequence[Buffer]) -> Moved:
        """Pin the request's buffers, those that are there first, and make room for the others.

        Raises Full, and changes nothing, if the pinned ones leave too little.
        """
        wanted = {buffer.id: buffer for buffer in request}
        missing = [buffer for buffer in wanted.values() if buffer.id not in self._buffers]
        pinned = sum(buffer.room for buffer in self._buffers.values() if self._held(buffer, wanted))
        if pinned + sum(buffer.room for buffer in missing) > self.capacity:
            raise Full
        for key in wanted:
            if key in self._buffers:
                self._pin(key)
        moved = Moved([], [], missing)
        for buffer in missing:
            while self.capacity - self.used < buffer.room:
                self._evict(moved)
            self._buffers[buffer.id] = buffer
            self.used += buffer.room
            self._pin(buffer.id)
        for buffer in wanted.values():
            if buffer.dirty:
                self._buffers[buffer.id] = self._buffers[buffer.id]._replace(dirty=True)
        return moved

    def release(self, request: Sequence[Buffer]) -> None:
        """The request completed: its buffers may leave."""
        for key in {buffer.id: None for buffer in request}:
            self._pins[key] -= 1
            self._uses[key] = self._uses.get(key, 0) + 1
            if not self._pins[key]:
                del self._pins[key]
                (self._hot if self._uses[key] > self._threshold else self._cold)[key] = None

    def _held(self, buffer: Buffer, wanted: dict[tuple[str, str, str], Buffer]) -> bool:
        return buffer.id in self._pins or buffer.id in wanted

    def _pin(self, key: tuple[str, str, str]) -> None:
        self._pins[key] = self._pins.get(key, 0) + 1
        self._cold.pop(key, None)
        self._hot.pop(key, None)

    def _evict(self, moved: Moved) -> None:
        key, _ = (self._cold or self._hot).popitem(last=False)
        buffer = self._buffers.pop(key)
        self._uses.pop(key, None)
        self.used -= buffer.room
        if buffer.dirty:
            moved.written_back.append(buffer)
        moved.evicted.append(buffer)
