"""Files and counters between builds: a known release is understood, the rest refused with both versions."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from gpuferry.migration import versions
from gpuferry.migration.errors import SnapshotError
from gpuferry.specs._generated import frames, node_pb2, operations, snapshot_pb2, wire

FIRST = operations.RELEASES[0]
FENCE = 4


def stamped(limited: bool = False, operations: Sequence[int] = ()) -> snapshot_pb2.Snapshot:
    snapshot = snapshot_pb2.Snapshot(grant=node_pb2.Grant(limited=limited, operations=operations))
    versions.stamp(snapshot)
    return snapshot


def listed(snapshot: snapshot_pb2.Snapshot) -> dict[int, int]:
    size = frames.Spoken.SIZE
    return dict(frames.Spoken.unpack(snapshot.spoken, at) for at in range(0, len(snapshot.spoken), size))


def test_a_file_says_what_it_needs() -> None:
    whole = stamped()
    assert listed(whole) == operations.SPOKEN
    assert (whole.spec_hash, whole.version) == (wire.SPEC_HASH, operations.VERSION)
    part = stamped(limited=True, operations=[1, 2, 60000])
    assert listed(part).keys() == {1, 2} | operations.RESTORE
    for each in (whole, part):
        versions.check(each, [])


def test_a_file_of_the_first_release_is_understood() -> None:
    """It says no more than its spec hash."""
    versions.check(snapshot_pb2.Snapshot(spec_hash=FIRST.spec_hash), [])
    assert FIRST.spec_hash != wire.SPEC_HASH


@pytest.mark.parametrize(
    ("digest", "number"), [(1, FENCE), (7, 60000)], ids=["laid out otherwise", "unknown here"]
)
def test_a_file_that_needs_something_else(digest: int, number: int) -> None:
    snapshot = stamped()
    snapshot.version = "gpuferry 9.9"
    spoken = listed(snapshot) | {number: digest}
    snapshot.spoken = b"".join(frames.Spoken(*each).pack() for each in spoken.items())
    with pytest.raises(SnapshotError) as caught:
        versions.check(snapshot, [])
    for word in ("gpuferry 9.9", operations.VERSION, wire.OPERATIONS.get(number, f"operation {number}")):
        assert word in caught.value.reason


def test_a_destination_that_lacks_what_the_file_needs() -> None:
    with pytest.raises(SnapshotError, match="sessionFence"):
        versions.check(stamped(), [FENCE])
    versions.check(stamped(limited=True, operations=[1]), [FENCE])


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (snapshot_pb2.Snapshot(spec_hash=b"x" * 32), "of which nothing is known here"),
        (snapshot_pb2.Snapshot(spoken=b"12345"), "is damaged"),
    ],
    ids=["unknown", "cut short"],
)
def test_a_file_of_which_nothing_is_known(snapshot: snapshot_pb2.Snapshot, reason: str) -> None:
    with pytest.raises(SnapshotError, match=reason):
        versions.check(snapshot, [])


def test_counters_in_the_layout_of_the_first_release() -> None:
    """As its engine has them: a C struct with an entry for each of its operations, and for each function."""
    state = wire.REQUESTS["sessionRestoreCounters"].pack(-5, 13, 1, 2, 3, 4, 5, 6, 2, 2)
    state += frames.CountedCalls(FENCE, 10, 1, 7, 70).pack() + frames.CountedCalls(211, 9, 9, 9, 9).pack()
    state += frames.CountedFunction(FIRST.functions[0], 8).pack() + frames.CountedFunction(60000, 9).pack()
    assert versions.counters(state, []) == ("sessionRestoreCounters", state)
    name, body = versions.counters(state, [versions.COUNTERS])
    assert name == "sessionRestoreState"
    count = len(FIRST.spoken)
    assert len(body) == 8 + 48 + 2 * count * 32 + 8 * (FIRST.functions[1] - FIRST.functions[0] + 1)
    assert struct.unpack_from("<iI6Q", body) == (-5, 13, 1, 2, 3, 4, 5, 6)
    place = sorted(FIRST.spoken).index(FENCE)
    assert struct.unpack_from("<4Q", body, 56 + 32 * (count + place)) == (10, 1, 7, 70)
    functions = struct.unpack_from("<580Q", body, 56 + 64 * count)
    assert (functions[0], sum(functions)) == (8, 8)
