"""Files of release 0.1, which nobody encrypted: they are read if somebody wants it, and only whole ones."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from gpuferry.migration.errors import SnapshotError
from gpuferry.migration.frames import PAGE, Kept
from gpuferry.migration.head import Unencrypted, read_head
from gpuferry.migration.place import existing
from gpuferry.migration.plain import HEAD_SIZE, PlainReader
from gpuferry.specs._generated import node_pb2, snapshot_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from .plain_file import of_first_release
from .test_file import ITEMS, refusal

SNAPSHOT = snapshot_pb2.Snapshot(grant=node_pb2.Grant(session=7, program="p"), mapped_bytes=3 * PAGE)


@functools.cache
def written() -> bytes:
    return of_first_release(ITEMS, SNAPSHOT)


def refused(content: bytes) -> str:
    """Why a file with this content is not read."""
    return refusal(content, lambda file: PlainReader(file).check())


def test_what_was_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(written())
    with existing(tmp_path / "s") as file:
        reader = PlainReader(file)
        reader.check()
        assert list(reader.contents()) == ITEMS
        assert (reader.snapshot.grant.session, reader.snapshot.mapped_bytes) == (7, 3 * PAGE)


def test_it_is_read_only_if_somebody_wants_it(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(written())
    with existing(tmp_path / "s") as file, pytest.raises(Unencrypted, match="--allow-unencrypted"):
        read_head(file)


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_any_truncation_is_refused(data: st.DataObject) -> None:
    assert refused(written()[: data.draw(st.integers(0, len(written()) - 1))])


@pytest.mark.system
@settings(deadline=None, max_examples=20)
@given(st.data())
def test_any_flipped_bit_is_refused(data: st.DataObject) -> None:
    content = bytearray(written())
    near = st.sampled_from([20, 64, HEAD_SIZE, HEAD_SIZE + 8, PAGE, 3 * PAGE, len(content) - 40])
    place = st.one_of(st.integers(0, len(content) - 1), near.flatmap(lambda at: st.integers(at, at + 39)))
    content[data.draw(place)] ^= 1 << data.draw(st.integers(0, 7))
    assert refused(bytes(content))


def test_parts_that_do_not_fit_are_refused() -> None:
    """Even if all checksums are right: a file may have been made by somebody else."""
    assert "impossible size" in refused(of_first_release([Kept(b"\xff" * 30, 0)], SNAPSHOT))
    more = snapshot_pb2.Snapshot(parts=[snapshot_pb2.Part(kind=snapshot_pb2.Part.PAGES, size=PAGE)])
    assert "parts do not fit" in refused(of_first_release([], more))
    with pytest.raises(SnapshotError, match="cannot read"):
        existing(Path("/nowhere/at/all"))
