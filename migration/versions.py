"""Moves between builds that differ: what is told in the layout of the other one, and what a file needs."""

from __future__ import annotations

import struct
from collections.abc import Collection

from gpuferry.specs._generated import frames, operations, snapshot_pb2, wire

from .errors import SnapshotError
from .frames import OPERATIONS

COUNTERS = OPERATIONS["sessionRestoreCounters"]
TOTALS = struct.Struct("<6Q")
CALLS = struct.Struct("<4Q")
COUNT = struct.Struct("<Q")


def counters(state: bytes, lacks: Collection[int]) -> tuple[str, bytes]:
    """The operation that brings a session's counters, and its body, to a destination that lacks these
    operations.
    """
    if COUNTERS not in lacks:
        return "sessionRestoreCounters", state
    return "sessionRestoreState", _of_first_release(state)


def _of_first_release(state: bytes) -> bytes:
    """As the first release has it: its operations in the order of their wire ids, then its functions."""
    layout, first = wire.REQUESTS["sessionRestoreCounters"], operations.RELEASES[0]
    latched, latched_op, *totals, calls, functions = layout.unpack_from(state)
    at, answered, unsupported = layout.size, dict[int, bytes](), dict[int, int]()
    for _ in range(calls):
        counted = frames.CountedCalls.unpack(state, at)
        answered[counted.operation] = CALLS.pack(*counted[1:])
        at += counted.SIZE
    for _ in range(functions):
        function, count = frames.CountedFunction.unpack(state, at)
        unsupported[function] = count
        at += frames.CountedFunction.SIZE
    begin, end = first.functions
    return b"".join(
        (
            wire.REQUESTS["sessionRestoreState"].pack(latched, latched_op),
            TOTALS.pack(*totals),
            bytes(CALLS.size * len(first.spoken)),  # of those that nobody waited for: counted with the others
            *(answered.get(number, bytes(CALLS.size)) for number in sorted(first.spoken)),
            *(COUNT.pack(unsupported.get(number, 0)) for number in range(begin, end + 1)),
        )
    )


def stamp(snapshot: snapshot_pb2.Snapshot) -> None:
    """What a file says of the operations in it and of those that its guest may use: whoever plays it must
    lay them out as this build does.
    """
    promised = (
        frozenset(snapshot.grant.operations) if snapshot.grant.limited else frozenset(operations.SPOKEN)
    )
    listed = sorted((promised | operations.RESTORE) & operations.SPOKEN.keys())
    snapshot.spec_hash, snapshot.version = wire.SPEC_HASH, operations.VERSION
    snapshot.spoken = b"".join(frames.Spoken(number, operations.SPOKEN[number]).pack() for number in listed)


def _needed(snapshot: snapshot_pb2.Snapshot) -> tuple[dict[int, int], str]:
    if snapshot.spoken:
        size = frames.Spoken.SIZE
        listed = [frames.Spoken.unpack(snapshot.spoken, at) for at in range(0, len(snapshot.spoken), size)]
        return dict(listed), snapshot.version
    if snapshot.spec_hash == wire.SPEC_HASH:
        return operations.SPOKEN, operations.VERSION
    for release in operations.RELEASES:
        if release.spec_hash == snapshot.spec_hash:
            return release.spoken, release.version
    raise SnapshotError("it was written by a gpuferry of which nothing is known here")


def check(snapshot: snapshot_pb2.Snapshot, lacks: Collection[int]) -> None:
    """Raise SnapshotError if this build, or a destination that lacks these operations, cannot play the
    file.
    """
    try:
        needed, version = _needed(snapshot)
    except struct.error:
        raise SnapshotError("what it says of its operations is damaged") from None
    other = [number for number, digest in needed.items() if operations.SPOKEN.get(number) != digest]
    other = other or [number for number in needed if number in lacks]
    if other:
        named = wire.OPERATIONS.get(other[0], f"operation {other[0]}")
        raise SnapshotError(
            f"it was written by {version} and uses {len(other)} operations that are laid out otherwise, or "
            f"unknown, where it should go on ({operations.VERSION} plays it): {named} for one"
        )
