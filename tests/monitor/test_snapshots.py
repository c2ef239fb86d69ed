"""Who may be suspended into a file, which session may come out of it, and with which key."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.migration.seal import identity, seal
from gpuferry.monitor.moves.migration import CannotMove
from gpuferry.monitor.moves.snapshots import NAME, Snapshots, read_secret
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.specs._generated import node_pb2, snapshot_pb2

SECRET = b"k" * 64


def session(number: int = 7, tenant: str = "ann", seals: bool = True, **more: Any) -> Any:
    hello = SimpleNamespace(tenant=tenant, function="f", program="p", pid=4)
    ready = node_pb2.Ready(seals=seals, device_name="one")
    server = SimpleNamespace(ready=ready, device=0, spec_hash=b"h")
    return SimpleNamespace(id=number, hello=hello, server=server, **more)


def test_a_process_that_cannot_encrypt_is_not_asked_to() -> None:
    """Of release 0.1, which outlived its monitor: it would write the program's memory in the clear."""
    with pytest.raises(CannotMove, match="earlier gpuferry, which cannot encrypt"):
        Snapshots(lambda: SECRET).target(session(seals=False), "/f")


def test_a_file_is_its_sessions_alone(tmp_path: Path) -> None:
    """Another tenant's is refused, even where session numbers are alike and the file is genuine."""
    snapshots, path = Snapshots(lambda: SECRET), tmp_path / "file"
    target = snapshots.target(session(), str(path))
    path.write_bytes(target.head)
    ours = session(file=str(path), file_head=target.head)
    assert snapshots.play(ours, False).key == target.key
    for other in (
        session(tenant="bob", file=str(path), file_head=target.head),
        session(number=8, file=str(path), file_head=target.head),
        session(file=str(path), file_head=seal(SECRET, snapshot_pb2.About(session=7, tenant="ann"))[0]),
    ):
        with pytest.raises(CannotMove, match=r"session 7 of ann, program p, of .* bring back"):
            snapshots.play(other, True)


def test_the_key_of_one_file_is_no_other_files_key() -> None:
    """An API server gets the key of the file that it writes, never the secret."""
    snapshots = Snapshots(lambda: SECRET)
    one, other = snapshots.target(session(), "/f"), snapshots.target(session(), "/f")
    assert one.key != other.key
    assert SECRET not in one.SerializeToString()
    assert identity(one.key) != identity(SECRET)


def test_where_the_key_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("f" * 64 + "\n")
    assert read_secret(str(file), b"c" * 64, tmp_path)() == b"f" * 64
    assert read_secret(None, b"c" * 64, tmp_path)() == b"c" * 64
    assert not (tmp_path / "state").exists()
    made = read_secret(None, None, tmp_path / "state")()
    assert (tmp_path / "state" / NAME).stat().st_mode & 0o777 == 0o600
    assert read_secret(None, None, tmp_path / "state")() == made
    assert os.listdir(tmp_path / "state") == [NAME]
    assert len({made, read_secret(None, None, tmp_path / "other")()}) == 2


def test_a_key_that_is_weak_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weak").write_text("secret\n")
    with pytest.raises(ConfigError, match="has 6 characters: 32 at least") as caught:
        read_secret(str(tmp_path / "weak"), None, tmp_path)
    assert "openssl rand" in caught.value.hint
    with pytest.raises(ConfigError, match="No such file"):
        read_secret(str(tmp_path / "none"), None, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CannotMove, match="cannot make a key"):
        Snapshots(read_secret(None, None, tmp_path / "file")).target(session(), "/f")
