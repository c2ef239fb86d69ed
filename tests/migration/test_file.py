"""Snapshot files: what is read is what was written, by whoever has the key, and nothing else is ever read."""

from __future__ import annotations

import errno
import functools
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from gpuferry.migration import frames
from gpuferry.migration.chunks import CHUNK, TAG, Opener, Sealer
from gpuferry.migration.errors import MigrationError, Refused, SnapshotError
from gpuferry.migration.file import Content, Reader, Writer
from gpuferry.migration.frames import PAGE, Kept
from gpuferry.migration.head import read_head
from gpuferry.migration.link import Link
from gpuferry.migration.place import ExistingFile, NewFile, existing
from gpuferry.migration.play import Player
from gpuferry.migration.seal import seal, unseal
from gpuferry.specs._generated import node_pb2, snapshot_pb2
from gpuferry.specs._generated.frames import Device, Welcome
from gpuferry.specs._generated.wire import SPEC_HASH
from hypothesis import given, settings
from hypothesis import strategies as st

FRAME = frames.HEADER.pack(frames.HEADER.size + 5, 300, 0, 1, 1) + b"hello"
ABOUT = snapshot_pb2.About(session=7, tenant="ann-the-tenant", program="p", version="0.2", created=1e9)
HERE = Welcome.unpack(bytes(Welcome.SIZE))._replace(device_count=1)
SECRET = b"s" * 64


def page(seed: int) -> bytes:
    """Mostly zeroes, as memory often is."""
    return bytes(PAGE // 2) + bytes([seed]) * 300_000 + bytes(PAGE // 2 - 300_000)


ITEMS: list[Content] = [Kept(FRAME, 11), (PAGE * 5, page(1)), (PAGE * 9, page(2)), Kept(FRAME * 1, 0)]


def write(path: Path, items: Sequence[Content], secret: bytes = SECRET, spec: bytes = SPEC_HASH) -> None:
    file = NewFile(path)
    snapshot = snapshot_pb2.Snapshot(grant=node_pb2.Grant(session=7, program="p"), spec_hash=spec)
    snapshot.welcome = HERE.pack() + bytes(Device.SIZE)
    writer = Writer(file, *seal(secret, ABOUT), snapshot)
    for item in items:
        if isinstance(item, Kept):
            writer.replay(item, "")
        else:
            writer.page(item[0], memoryview(item[1]))
    writer.finish(3 * PAGE)
    file.close()


def content_of(items: Sequence[Content], secret: bytes = SECRET) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "s", items, secret)
        return (Path(folder) / "s").read_bytes()


@functools.cache
def written() -> bytes:
    return content_of(ITEMS)


def open_with(file: ExistingFile, secret: bytes = SECRET) -> Reader:
    return Reader(file, unseal(secret, read_head(file), file.name)[1])


def refusal(content: bytes, read: Callable[[ExistingFile], object]) -> str:
    """Why a file with this content is not read; it is named."""
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(content)
        temporary.flush()
        with existing(Path(temporary.name)) as file, pytest.raises(SnapshotError) as caught:
            read(file)
        assert temporary.name in caught.value.reason
        return caught.value.reason


def refused(content: bytes, secret: bytes = SECRET) -> str:
    return refusal(content, lambda file: open_with(file, secret).check())


def head_size() -> int:
    """Where the contents begin."""
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(written())
        temporary.flush()
        with existing(Path(temporary.name)) as file:
            return len(read_head(file))


def interesting() -> st.SearchStrategy[int]:
    """Places in the file: anywhere, and near where something begins."""
    size, body = len(written()), head_size()
    edges = [0, 18, 20, 24, 40, 72, body, body + CHUNK, body + 2 * (CHUNK + TAG), size]
    near = st.sampled_from(edges).flatmap(lambda edge: st.integers(edge - 40, edge + 40))
    return st.one_of(st.integers(0, size - 1), near).map(lambda at: min(max(at, 0), size - 1))


def named_only(opens: Callable[..., int]) -> Callable[..., int]:
    """`os.open` of a file system that knows no files without a name."""

    def open_named(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return opens(path, flags, mode)

    return open_named


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "s", ITEMS)
    with existing(tmp_path / "s") as file:
        reader = open_with(file)
        assert list(reader.contents()) == ITEMS
        assert list(reader.contents()) == ITEMS  # as often as it is wanted
        assert (reader.snapshot.grant.session, reader.snapshot.mapped_bytes) == (7, 3 * PAGE)
        assert unseal(SECRET, read_head(file), "s")[0] == ABOUT


def test_nothing_of_it_can_be_read_without_the_key() -> None:
    """Neither the program's memory nor whose it is; and the same session looks different each time."""
    for plain in (b"hello", b"ann-the-tenant", page(1)[-300:]):
        assert plain not in written()
    other = content_of(ITEMS)
    assert len(other) == len(written())
    body = head_size()
    assert not any(
        other[at : at + 16] == written()[at : at + 16] for at in range(body, len(other) - 16, 4096)
    )


def test_another_key_is_refused_as_such() -> None:
    reason = refused(written(), b"t" * 64)
    assert "another key" in reason
    assert "--snapshot-key-file" in reason


def test_zeroes_need_no_space(tmp_path: Path) -> None:
    """Pages of zeroes are not there, neither are blocks of zeroes."""
    write(tmp_path / "s", [(PAGE * i, page(i) if i % 10 == 0 else bytes(PAGE)) for i in range(40)])
    with existing(tmp_path / "s") as file:
        found = list(open_with(file).contents())
    assert found == [(PAGE * i, page(i)) for i in (10, 20, 30)]
    assert (tmp_path / "s").stat().st_size < 4 * 400_000


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    write(tmp_path / "s", ITEMS)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_what_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    file = NewFile(tmp_path / "s")
    file.write(b"some of it")
    file.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unnamed", [True, False])
def test_nothing_is_under_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    """Nor under any other, where the file system knows files without a name: who is killed leaves nothing."""
    if not unnamed:
        monkeypatch.setattr(os, "open", named_only(os.open))
    file = NewFile(tmp_path / "s")
    file.write(b"all of it")
    assert [each.name for each in tmp_path.iterdir()] == ([] if unnamed else [f".s.{os.getpid()}.partial"])
    file.publish()
    assert (tmp_path / "s").read_bytes() == b"all of it"
    file.close()
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(Refused, match="exists already"):
        NewFile(tmp_path / "s")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Refused, match="exists already"):
        NewFile(tmp_path / "dangling")
    assert (tmp_path / "s").read_text() == "mine"


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """Nor is it removed when the session stays where it is."""
    file = NewFile(tmp_path / "s")
    file.write(b"a session")
    (tmp_path / "s").write_text("theirs")
    with pytest.raises(Refused, match="came meanwhile and is not overwritten"):
        file.publish()
    file.withdraw()
    file.close()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("s", "theirs")]


def test_what_is_withdrawn_is_gone(tmp_path: Path) -> None:
    file = NewFile(tmp_path / "s")
    file.publish()
    file.withdraw()
    file.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["relative", "/nowhere/at/all"])
def test_where_nothing_can_be_written(path: str) -> None:
    with pytest.raises(Refused, match=r"absolute|No such file"):
        NewFile(Path(path))


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s")
    with pytest.raises(SnapshotError, match="is no file"):
        existing(tmp_path / "s")


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
    assert "damaged or forged" in refused(written() + more)


def chunks_of(content: bytes, begin: int) -> list[bytes]:
    step = CHUNK + TAG
    return [content[at : at + step] for at in range(begin, len(content), step)]


def test_pieces_in_another_order_are_refused() -> None:
    """Reordered, left out, repeated, cut off at the edge of one."""
    head, chunks = written()[: head_size()], chunks_of(written(), head_size())
    assert len(chunks) > 2
    first, second, *rest = chunks
    for wrong in (
        [second, first, *rest],
        [first, *rest],
        [first, first, second, *rest],
        chunks[:-1],
        [*chunks, chunks[-1]],
        [],
    ):
        assert "damaged or forged" in refused(head + b"".join(wrong))


def test_pieces_of_two_files_are_refused() -> None:
    """Of the same session with the same key: two files of it share nothing."""
    one, other, body = written(), content_of(ITEMS), head_size()
    step = CHUNK + TAG
    for spliced in (
        one[:body] + other[body:],
        one[: body + step] + other[body + step :],
        one[: body + step] + other[body + step : body + 2 * step] + one[body + 2 * step :],
    ):
        assert len(spliced) == len(one)
        assert "damaged or forged" in refused(spliced)


def test_another_file_under_its_key_is_refused() -> None:
    """The key of one file's contents, which an API server gets, opens no other file and makes no head."""
    head, key = seal(SECRET, ABOUT)
    assert "damaged or forged" in refusal(written(), lambda file: Reader(file, key))
    with tempfile.TemporaryDirectory() as folder:
        file = NewFile(Path(folder) / "s")
        forged = seal(key, snapshot_pb2.About(session=1, tenant="bob"))[0]
        sealer = Sealer(file, forged, key)
        sealer.finish()
        file.publish()
        file.close()
        assert "another key" in refused((Path(folder) / "s").read_bytes())
    assert head != forged


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=5000))
def test_other_files_are_refused(content: bytes) -> None:
    assert "no snapshot" in refused(content)


def test_another_version_is_refused_as_such() -> None:
    content = bytearray(written())
    content[18] = 3
    assert "format version 3; this gpuferry reads 2" in refused(bytes(content))


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (b"", "record is cut short"),
        (b"\x07", "does not say what it is"),
        (b"\x01" + b"\xff" * 4, "impossible size"),
        (b"\x01\3\0\0\0\xff\xff\xff", "cannot be read"),
        (b"\x01\0\0\0\0\x09", "no record of kind 9"),
        (b"\x01\0\0\0\0\x02" + b"\xff" * 60, "impossible size"),
        (b"\x01\0\0\0\0\x03" + bytes(8) + b"\1\0\0\0" + b"short", "record is cut short"),
        (b"\x01\0\0\0\0\x04" + bytes(8) + b"more", "behind its end"),
    ],
)
def test_records_that_cannot_be_are_refused(tmp_path: Path, records: bytes, reason: str) -> None:
    """Even with the right key: an API server has it, and may be its guest's by then."""
    file = NewFile(tmp_path / "s")
    head, key = seal(SECRET, ABOUT)
    sealer = Sealer(file, head, key)
    sealer.write(records)
    sealer.finish()
    file.publish()
    file.close()
    with existing(tmp_path / "s") as again, pytest.raises(SnapshotError, match=reason):
        Reader(again, key).check()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 7])
def test_contents_of_every_length(tmp_path: Path, size: int) -> None:
    file = NewFile(tmp_path / "s")
    head, key = seal(SECRET, ABOUT)
    sealer = Sealer(file, head, key)
    sealer.write(b"x" * size)
    sealer.finish()
    file.publish()
    file.close()
    with existing(tmp_path / "s") as again:
        assert b"".join(Opener(again, head, key).chunks()) == b"x" * size


@pytest.mark.parametrize(
    ("spec", "reason"),
    [(b"", "of which nothing is known here"), (SPEC_HASH, "another address window")],
    ids=["wire", "device"],
)
def test_what_does_not_fit_here_is_not_played(tmp_path: Path, spec: bytes, reason: str) -> None:
    """Its frames may mean something else here, or its addresses cannot be had; the link is not touched."""
    write(tmp_path / "s", ITEMS, spec=spec)
    elsewhere = HERE._replace(window_base=PAGE)
    with existing(tmp_path / "s") as file, socket.socket() as unconnected:
        player = Player(open_with(file), Link(unconnected), Unheard())
        with pytest.raises(MigrationError, match=reason):
            player.run(elsewhere.pack() + bytes(Device.SIZE), [])


class Unheard:
    """Nobody is told how it goes."""

    def phase(self, phase: int, done: int = 0, total: int = 0) -> None:
        """And nobody stops it."""
