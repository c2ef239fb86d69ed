"""Which operations a guest, or another GPU server, lays out as this build does (specs/WIRE.md §2)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gpuferry.specs._generated import frames, operations, wire
from gpuferry.specs._generated.frames import Extension

UNTOLD = 0  # GREETING of the first release tells no build
NAMED_MOST = 5  # operations in a message
VERSION_MOST = 128  # characters


class Malformed(ValueError):
    """Raised if what a guest says of its operations is nothing that a build would say."""


@dataclass(frozen=True)
class Agreement:
    """Which operations this build and the other side lay out alike, by wire id; None: all of this build."""

    spoken: frozenset[int] | None = None
    version: str = operations.VERSION  # of the other side
    welcome: bytes = field(default=b"", repr=False)  # what WELCOME tells of it

    def lacks(self, wanted: Collection[int]) -> list[int]:
        """The wire ids among `wanted` that were not agreed on, in ascending order."""
        return [] if self.spoken is None else sorted(set(wanted) - self.spoken)


SAME = Agreement()
# Without these a process cannot tell what it takes of a lease that others have too.
SHARING = frozenset(
    number for number, name in wire.OPERATIONS.items() if name in ("sessionMemoryClaim", "sessionMemoryKeep")
)


def _common(theirs: Mapping[int, int]) -> frozenset[int]:
    return frozenset(number for number, digest in theirs.items() if operations.SPOKEN.get(number) == digest)


def _version(data: bytes) -> str:
    text = data.decode(errors="replace")[:VERSION_MOST]
    return "".join(letter for letter in text if letter.isprintable()) or "an unknown gpuferry"


def _listed(offer: bytes) -> dict[int, int]:
    """Digests by wire id, in the order in which they were told."""
    size = frames.Spoken.SIZE
    if len(offer) % size:
        raise Malformed(f"OPERATIONS of {len(offer)} bytes: each one has {size}")
    found: dict[int, int] = {}
    for at in range(0, len(offer), size):
        number, digest = frames.Spoken.unpack(offer, at)
        if number in found:
            raise Malformed(f"OPERATIONS lists {names([number])} twice")
        found[number] = digest
    return found


@functools.lru_cache(maxsize=16)
def _offered(offer: bytes, version: bytes) -> Agreement:
    listed = _listed(offer)
    spoken = _common(listed)
    bits = bytearray((len(listed) + 7) // 8)
    for place, number in enumerate(listed):
        if number in spoken:
            bits[place // 8] |= 1 << place % 8
    ours = operations.VERSION.encode()
    told = frames.Agreement(operations.FUNCTIONS[1], len(bits), len(ours)).pack() + bytes(bits) + ours
    return Agreement(spoken, _version(version), told)


@functools.lru_cache(maxsize=16)
def _released(spec_hash: bytes) -> Agreement | None:
    for release in operations.RELEASES:
        if release.spec_hash == spec_hash:
            return Agreement(_common(release.spoken), release.version)
    return None


def agree(spec_hash: bytes, extensions: Mapping[Extension, bytes]) -> Agreement | None:
    """What a HELLO leads to: an Agreement with its guest. None if the guest is of an unknown build and
    lists no operations. Raises Malformed if what it says is no list of operations.
    """
    offer = extensions.get(Extension.OPERATIONS)
    if offer is not None:
        return _offered(offer, extensions.get(Extension.VERSION, b""))
    return SAME if spec_hash == wire.SPEC_HASH else _released(spec_hash)


@dataclass(frozen=True)
class Offer:
    """What this build says of its operations in its own HELLO to another server."""

    spec_hash: bytes
    extensions: bytes
    listed: tuple[int, ...] = ()  # operations that were offered
    server: operations.Release | None = None  # that is known without being told

    def agreed(self, told: bytes) -> Agreement | None:
        """The Agreement that the server's answer means. `told`: what follows the image hashes of its
        WELCOME. None if that is malformed.
        """
        if self.server is not None:
            return Agreement(_common(self.server.spoken), self.server.version) if not told else None
        if not self.listed:
            return SAME if not told else None
        if len(told) < frames.Agreement.SIZE:
            return None
        said = frames.Agreement.unpack(told)
        bits = told[said.SIZE : said.SIZE + said.bits_size]
        version = told[said.SIZE + said.bits_size :]
        if said.bits_size != (len(self.listed) + 7) // 8 or len(version) != said.version_size:
            return None
        spoken = {each for place, each in enumerate(self.listed) if bits[place // 8] >> place % 8 & 1}
        return Agreement(frozenset(spoken), _version(version))


def offer(build: int, wanted: Collection[int] | None = None) -> Offer:
    """The Offer to a server whose GREETING tells this build number. `wanted`: offer these wire ids only;
    None: all.
    """
    if build == UNTOLD:
        first = operations.RELEASES[0]
        return Offer(first.spec_hash, b"", server=first)
    if build == operations.BUILD and wanted is None:
        return Offer(wire.SPEC_HASH, b"")
    listed = tuple(number for number in operations.SPOKEN if wanted is None or number in wanted)
    spoken = b"".join(frames.Spoken(number, operations.SPOKEN[number]).pack() for number in listed)
    version = operations.VERSION.encode()
    said = frames.ExtensionHead(Extension.OPERATIONS, len(spoken)).pack() + spoken
    said += frames.ExtensionHead(Extension.VERSION, len(version)).pack() + version
    return Offer(wire.SPEC_HASH, said, listed)


def names(numbers: Collection[int]) -> str:
    """Up to five of these operations by name, for a message; one that this build does not know by its wire
    id.
    """
    found = [wire.OPERATIONS.get(number, f"operation {number}") for number in sorted(numbers)]
    more = f" and {len(found) - NAMED_MOST} more" if len(found) > NAMED_MOST else ""
    return ", ".join(found[:NAMED_MOST]) + more
