"""The files into which sessions are suspended: with which key, and whether a session may come out of one."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from gpuferry.guest.endpoint import read_token
from gpuferry.migration.errors import SnapshotError
from gpuferry.migration.head import Unencrypted, read_head
from gpuferry.migration.place import existing
from gpuferry.migration.seal import seal, unseal
from gpuferry.specs._generated import control_pb2, migration_pb2, node_pb2, snapshot_pb2

from ..service.files import make_once
from ..service.versions import package_version
from ..sessions.session import Session
from ..settings.errors import ConfigError
from .migration import CannotMove

NAME = "snapshot.key"
SECRET_MIN = 32  # characters


def read_secret(file: str | None, cluster_key: bytes | None, state: Path) -> Callable[[], bytes]:
    """What gives the secret from which the keys of all files follow: from this file, else the cluster's
    key, else one that is made in the state folder when it is wanted first. Raises ConfigError, now or then.
    """
    if file:
        secret = _read(Path(file))
        return lambda: secret
    if cluster_key:
        return lambda: cluster_key
    return lambda: _read_or_make(state / NAME)


def _read(path: Path) -> bytes:
    try:
        secret = read_token(str(path))
    except OSError as error:
        raise ConfigError(f"snapshot key file {path}: {error.strerror}") from None
    if len(secret) < SECRET_MIN:
        raise ConfigError(
            f"the snapshot key in {path} has {len(secret)} characters: {SECRET_MIN} at least",
            f"`openssl rand -hex 32 > {path}`, mode 0600",
        )
    return secret.encode()


def _read_or_make(path: Path) -> bytes:
    try:
        if not path.exists():
            _make(path)
    except OSError as error:
        raise ConfigError(
            f"cannot make a key for snapshots in {path}: {error.strerror}", "choose a folder: --state"
        ) from None
    return _read(path)


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # another monitor with this folder was quicker
        make_once(path, secrets.token_hex(32) + "\n")


class Snapshots:
    """Says what is in the files of sessions, which only this monitor, or one with its key, can make."""

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret

    def target(self, session: Session, path: str) -> migration_pb2.FileTarget:
        """What the session's API server needs to write the file. Raises CannotMove."""
        assert session.server
        ready = session.server.ready
        if ready is None or not ready.seals:
            raise CannotMove(
                f"session {session.id} is served by a process of an earlier gpuferry, which cannot encrypt "
                "a file: move it to another GPU first (`gpuferry migrate`)"
            )
        about = snapshot_pb2.About(
            session=session.id,
            tenant=session.hello.tenant,
            function=session.hello.function,
            program=session.hello.program,
            guest_pid=session.hello.pid,
            host=socket.gethostname(),
            device=session.server.device,
            device_name=ready.device_name,
            device_uuid=ready.device_uuid,
            version=package_version(),
            spec_hash=session.server.spec_hash,
            created=time.time(),
        )
        head, key = seal(self._known_secret(), about)
        return migration_pb2.FileTarget(path=path, head=head, key=key)

    def play(self, session: Session, allow_unencrypted: bool) -> node_pb2.Play:
        """What the keeper of a suspended session needs to play its file. Raises CannotMove unless it is the
        file into which this session went.
        """
        play = node_pb2.Play(session=session.id, path=session.file)
        try:
            head, about, play.key = self._look(session.file)
        except Unencrypted as error:
            if not allow_unencrypted or session.file_head:
                reason = f"{session.file} was replaced: its session was encrypted"
                raise CannotMove(reason if session.file_head else error.reason) from None
            play.unencrypted = True
            return play
        except SnapshotError as error:
            raise CannotMove(error.reason) from None
        whose = (about.session, about.tenant)
        if head != session.file_head or whose != (session.id, session.hello.tenant):
            raise CannotMove(
                f"{session.file} holds another session than the one that was suspended into it "
                f"({_describe(about)}): bring back the file that was written"
            )
        return play

    def inspect(self, path: str) -> control_pb2.InspectFileReply:
        """Return whose session is in a file. Raises SnapshotError unless the file was made with our key."""
        _, about, _ = self._look(path)
        return control_pb2.InspectFileReply(about=about, size=os.stat(path).st_size)

    def _look(self, path: str) -> tuple[bytes, snapshot_pb2.About, bytes]:
        with existing(Path(path)) as file:
            head = read_head(file)
        return head, *unseal(self._known_secret(), head, path)

    def _known_secret(self) -> bytes:
        try:
            return self._secret()
        except ConfigError as error:
            raise CannotMove(str(error)) from None


def _describe(about: snapshot_pb2.About) -> str:
    tenant = f" of {about.tenant}" if about.tenant else ""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about.created))
    return f"session {about.session}{tenant}, program {about.program}, of {when}"
