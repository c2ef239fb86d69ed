"""Snapshot files: what is read is what was written, and nothing else is ever read."""

from __future__ import annotations

import functools
import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from gpuferry.migration import frames
from gpuferry.migration.errors import MigrationError, Refused, SnapshotError
from gpuferry.migration.file import HEAD_SIZE, Reader, Writer
from gpuferry.migration.frames import PAGE, Kept
from gpuferry.migration.link import Link
from gpuferry.migration.play import Player
from gpuferry.specs._generated import node_pb2, snapshot_pb2
from gpuferry.specs._generated.frames import Device, Welcome
from gpuferry.specs._generated.wire import SPEC_HASH
from hypothesis import given, settings
from hypothesis import strategies as st

FRAME = frames.HEADER.pack(frames.HEADER.size + 5, 300, 0, 1, 1) + b"hello"
SNAPSHOT = snapshot_pb2.Snapshot(grant=node_pb2.Grant(session=7, program="p"), mapped_bytes=3 * PAGE)
Item = Kept | tuple[int, bytes]
WELCOME_SIZE = Welcome.SIZE + Device.SIZE


def page(seed: int) -> bytes:
    """Mostly zeroes, as memory often is."""
    return bytes(PAGE // 2) + bytes([seed]) * 100_000 + bytes(PAGE // 2 - 100_000)


def write(path: Path, items: Sequence[Item]) -> None:
    writer = Writer(path)
    for item in items:
        if isinstance(item, Kept):
            writer.replay(item, "")
        else:
            writer.page(item[0], memoryview(item[1]))
    snapshot = snapshot_pb2.Snapshot()
    snapshot.CopyFrom(SNAPSHOT)
    writer.finish(snapshot)
    writer.close()


ITEMS: list[Item] = [Kept(FRAME, 11), (PAGE * 5, page(1)), (PAGE * 9, page(2)), Kept(FRAME * 1, 0)]


@functools.cache
def written() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "s", ITEMS)
        return (Path(folder) / "s").read_bytes()


def refused(content: bytes) -> str:
    """Why a file with this content is not read."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with pytest.raises(SnapshotError) as caught, Reader(Path(file.name)) as reader:
            reader.check()
        assert file.name in caught.value.reason
        return caught.value.reason


def interesting() -> st.SearchStrategy[int]:
    """Places in the file: anywhere, and near where something begins."""
    size = len(written())
    edges = [0, 18, 20, 64, HEAD_SIZE, HEAD_SIZE + 8, HEAD_SIZE + 30, PAGE, 2 * PAGE, 3 * PAGE, size]
    near = st.sampled_from(edges).flatmap(lambda edge: st.integers(edge - 40, edge + 40))
    return st.one_of(st.integers(0, size - 1), near).map(lambda at: min(max(at, 0), size - 1))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "s", ITEMS)
    with Reader(tmp_path / "s") as reader:
        assert list(reader.contents()) == ITEMS
        assert reader.snapshot.grant.session == 7


def test_zeroes_need_no_space(tmp_path: Path) -> None:
    """Pages of zeroes are not there, blocks of zeroes are holes."""
    write(tmp_path / "s", [(PAGE * i, page(i) if i % 10 == 0 else bytes(PAGE)) for i in range(40)])
    with Reader(tmp_path / "s") as reader:
        assert [address for address, _ in reader.contents()] == [PAGE * i for i in (10, 20, 30)]
    assert os.stat(tmp_path / "s").st_blocks * 512 < 4 * 300_000


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    write(tmp_path / "s", ITEMS)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_what_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "s")
    writer.page(0, memoryview(page(1)))
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_under_the_name_before_the_end(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "s")
    writer.replay(ITEMS[0], "")  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()
    writer.finish(snapshot_pb2.Snapshot())
    assert (tmp_path / "s").exists()
    writer.close()
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(Refused, match="exists already"):
        Writer(tmp_path / "s")
    assert (tmp_path / "s").read_text() == "mine"


@pytest.mark.parametrize("path", ["relative", "/nowhere/at/all"])
def test_where_nothing_can_be_written(path: str) -> None:
    with pytest.raises(Refused, match=r"absolute|No such file"):
        Writer(Path(path))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_truncation_is_refused(data: st.DataObject) -> None:
    assert refused(written()[: data.draw(interesting())])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_flipped_bit_is_refused(data: st.DataObject) -> None:
    content = bytearray(written())
    content[data.draw(interesting())] ^= 1 << data.draw(st.integers(0, 7))
    assert refused(bytes(content))


@settings(deadline=None, max_examples=20)
@given(st.binary(min_size=1, max_size=100))
def test_whatever_is_appended_is_refused(more: bytes) -> None:
    assert "damaged" in refused(written() + more)


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=5000))
def test_other_files_are_refused(content: bytes) -> None:
    assert "no snapshot" in refused(content)


def test_another_version_is_refused_as_such() -> None:
    import hashlib

    content = bytearray(written())
    content[18] = 2
    content[HEAD_SIZE - 32 : HEAD_SIZE] = hashlib.sha256(content[: HEAD_SIZE - 32]).digest()
    assert "format version 2; this gpuferry reads 1" in refused(bytes(content))


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Even if all checksums are right: a file may have been made by somebody else."""
    writer = Writer(tmp_path / "s")
    writer.page(0, memoryview(page(1)))
    writer._parts[-1].addresses.append(PAGE)
    writer.finish(snapshot_pb2.Snapshot())
    writer.close()
    with pytest.raises(SnapshotError, match="pages do not fit"):
        Reader(tmp_path / "s")
    tmp_path.joinpath("s").unlink()
    writer = Writer(tmp_path / "s")
    writer.replay(Kept(b"\xff" * 30, 0), "")
    writer.finish(snapshot_pb2.Snapshot())
    writer.close()
    with pytest.raises(SnapshotError, match="impossible size"), Reader(tmp_path / "s") as reader:
        reader.check()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [(b"", "of which nothing is known here"), (SPEC_HASH, "another address window")],
    ids=["wire", "device"],
)
def test_what_does_not_fit_here_is_not_played(tmp_path: Path, spec: bytes, reason: str) -> None:
    """Its frames may mean something else here, or its addresses cannot be had; the link is not touched."""
    write(tmp_path / "s", ITEMS)
    with Reader(tmp_path / "s") as reader, socket.socket() as unconnected:
        reader.snapshot.spec_hash, reader.snapshot.welcome = spec, bytes(WELCOME_SIZE)
        player = Player(reader, Link(unconnected), Unheard())
        with pytest.raises(MigrationError, match=reason):
            player.run(bytes(40) + b"w" + bytes(WELCOME_SIZE - 41), [])


class Unheard:
    """Nobody is told how it goes."""

    def phase(self, phase: int, done: int = 0, total: int = 0) -> None:
        """And nobody stops it."""
