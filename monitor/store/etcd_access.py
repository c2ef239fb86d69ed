"""How an etcd cluster is reached: with TLS or without, as which user, below which prefix."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import grpc
from gpuferry.specs._generated import etcd_pb2, etcd_pb2_grpc

LOGIN_SECONDS = 5.0  # a password takes etcd a moment
# A member that is cut off from the others shall say so, rather than answer from what it knew.
METADATA = (("hasleader", "true"),)
Metadata = tuple[tuple[str, str], ...]
Stamp = tuple[tuple[int, int, int] | None, ...]
# What etcd calls a token that it does not take any more: it expired, or users and roles have changed.
_OLD = ("invalid auth token", "revision of auth store is old", "user name is empty")


@dataclass(frozen=True)
class Access:
    """How an etcd cluster is reached. Without a CA it is reached in the clear."""

    root: str = "/gpuferry/"  # what all keys begin with
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)

    def stamp(self) -> Stamp:
        """Another one after every change of the files."""
        return tuple(map(_stamp, (self.ca, self.certificate, self.key)))

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Those of every channel; None: in the clear. Raises OSError if a file cannot be read."""
        if self.ca is None:
            return None
        key, certificate = (path.read_bytes() if path else None for path in (self.key, self.certificate))
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), key, certificate)


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino, status.st_size) if status else None


class Login:
    """The token that a user is given for a password, which etcd forgets when it is not used for minutes."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._token = ""

    async def metadata(self, channel: grpc.aio.Channel) -> Metadata:
        """What goes along with a call to a member."""
        if not self._access.user:
            return METADATA
        if not self._token:
            request = etcd_pb2.AuthenticateRequest(name=self._access.user, password=self._access.password)
            stub = etcd_pb2_grpc.AuthStub(channel)
            self._token = (await stub.Authenticate(request, timeout=LOGIN_SECONDS, metadata=METADATA)).token
        return (*METADATA, ("token", self._token))

    def forget(self, reason: str) -> bool:
        """Whether a call that failed for this reason may go well with another token."""
        old = bool(self._token) and any(words in reason for words in _OLD)
        if old:
            self._token = ""
        return old
