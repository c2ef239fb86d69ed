"""The handshake of a guest that comes over TLS: first TLS's own, then ours in it."""

from __future__ import annotations

import contextlib
import socket
import ssl

from gpuferry.native.tls.shake import HANDSHAKE_RECORD, Shake
from gpuferry.native.tls.stream import Connection, TlsSocket

from .guests import Handshake
from .handshake import Claim, Reason, Refusal, Resume

RECEIVE = 16 << 10
IN_CLEAR = (
    "this port speaks TLS only: set GPUFERRY_MONITOR=tls://HOST:PORT, and GPUFERRY_TLS_CA to its authority's"
    " certificate"
)


class SecureHandshake:
    """As `Handshake`, on a connection that must begin with TLS."""

    __slots__ = ("_connection", "_inner", "_problem", "_shake", "_spoke", "ends", "peer")

    def __init__(self, connection: socket.socket, peer: str, ends: float, context: ssl.SSLContext) -> None:
        self._connection = connection
        self.peer = peer
        self.ends = ends  # when it must be over
        self._shake = Shake(context)
        self._spoke = False
        self._inner: Handshake | None = None  # once TLS stands
        self._problem: OSError | Refusal | None = None

    @property
    def connection(self) -> Connection:
        """The guest's connection; with TLS as soon as its handshake is done."""
        return self._inner.connection if self._inner else self._connection

    @property
    def can_be_told(self) -> bool:
        """Whether the guest would understand a REFUSED: in the middle of TLS's own handshake none does."""
        return not self._spoke or self._inner is not None

    def late(self, limit: float) -> str:
        """Why it is refused, if it was not over within so many seconds."""
        return f"no complete HELLO within {limit:g} s" if self._spoke else IN_CLEAR

    def receive(self) -> None:
        """Read what has come, without waiting, and answer to TLS."""
        try:
            if self._inner:
                self._inner.receive()
            else:
                self._step(self._connection.recv(RECEIVE, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
        except (OSError, Refusal) as error:
            self._problem = error

    def _step(self, came: bytes) -> None:
        if not came:
            raise ConnectionResetError("closed during the handshake")
        if not self._spoke and came[0] != HANDSHAKE_RECORD:
            raise Refusal(Reason.MALFORMED, IN_CLEAR)
        self._spoke = True
        try:
            answer = self._shake.step(came)
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._connection.send(self._shake.last_word(), socket.MSG_DONTWAIT)
            raise
        if answer and self._connection.send(answer, socket.MSG_DONTWAIT) < len(answer):
            raise ConnectionResetError("it does not read the handshake")
        if self._shake.done:
            secured = TlsSocket(self._connection, self._shake.records())
            self._inner = Handshake(secured, self.peer, self.ends)

    def read(self) -> Claim | Resume | None:
        """What the guest said, once that is complete; Refusal or OSError if it never will be."""
        if self._problem:
            raise self._problem
        if not self._inner:
            return None
        said = self._inner.read()
        while said is None and isinstance(self.connection, TlsSocket) and self.connection.has_input:
            self._inner.receive()
            said = self._inner.read()
        return said
