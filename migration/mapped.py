"""Which memory the destination has mapped: what the frames that it was given add up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import frames
from .frames import PAGE, PRIMARY, RANGE, Kept

Mapping = tuple[int, int]  # address, size


class Mapped:
    """The mappings that the frames so far make. A mapping is (address, size) in bytes."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._fresh: set[int] = set()
        self._devices: dict[int, int] = {}  # those of their mappings that are not of the first device

    def context_of(self, address: int) -> int:
        """The header value of the primary context of the device whose memory lies there."""
        if not self._devices:
            return PRIMARY
        start = max((each for each in self._sizes if each <= address), default=address)
        return PRIMARY + self._devices.get(start, 0)

    def apply(self, kept: Iterable[Kept]) -> list[Mapping]:
        """Note maps and unmaps among these frames. Returns the ranges whose contents are other ones now."""
        changed = []
        for head, body in frames.of(kept, "sessionMemMap", "sessionMemMapOn", "sessionMemUnmap"):
            address, size = RANGE.unpack_from(body)
            changed.append((address, size))
            if head.op != frames.OPERATIONS["sessionMemUnmap"]:
                self._sizes[address] = size
                self._fresh.add(address)
                if head.op == frames.OPERATIONS["sessionMemMapOn"]:
                    self._devices[address] = frames.MAP_ON.unpack_from(body)[2]
            else:
                for start in [s for s in self._sizes if address <= s < address + size]:
                    del self._sizes[start]
                    self._devices.pop(start, None)
                    self._fresh.discard(start)
        return changed

    def fresh(self, within: Iterable[Mapping]) -> list[Mapping]:
        """Those of the mappings `within` that were made since this was last asked."""
        known = set(within)
        found = [(a, self._sizes[a]) for a in sorted(self._fresh) if (a, self._sizes[a]) in known]
        self._fresh.difference_update(address for address, _ in found)
        return found

    def mappings(self) -> list[Mapping]:
        """Return all mappings in the order of their addresses."""
        return sorted(self._sizes.items())

    def total(self) -> int:
        """Return how many bytes are mapped in all."""
        return sum(self._sizes.values())


def pages(mappings: Iterable[Mapping]) -> list[int]:
    """The addresses of all pages of these mappings."""
    return [page for address, size in mappings for page in range(address, address + size, PAGE)]


def runs(addresses: Iterable[int], longest: int, starts: frozenset[int] = frozenset()) -> Iterator[Mapping]:
    """Neighbouring pages put together to ranges of at most `longest` bytes, none of which goes on beyond
    one of `starts`.
    """
    begin = end = 0
    for address in addresses:
        if address == end and end - begin < longest and address not in starts:
            end += PAGE
            continue
        if end > begin:
            yield begin, end - begin
        begin, end = address, address + PAGE
    if end > begin:
        yield begin, end - begin
