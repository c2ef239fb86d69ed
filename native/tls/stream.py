"""A connected socket that speaks TLS, with the methods of a socket that are needed here."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence

from ._records import NoTls as NoTls
from ._records import Records

INPUT_MOST = 64 << 10  # bytes that may have come and not been asked for: who receives so many leaves none


class TlsSocket:
    """As socket.socket. What `send` returns is with the system: BlockingIOError means that the same bytes
    are to be sent again, for some of them are encrypted.
    """

    def __init__(self, connection: socket.socket, records: Records) -> None:
        self._socket = connection
        self._records = records
        self._taken = 0  # bytes that were encrypted, of what is sent next

    @classmethod
    def restore(cls, connection: socket.socket, state: bytes) -> TlsSocket:
        """Go on where `state` was taken, perhaps in another process. Raises NoTls."""
        return cls(connection, Records.restore(state))

    @property
    def socket(self) -> socket.socket:
        """The socket that carries the encrypted records."""
        return self._socket

    def state(self) -> bytes:
        """What whoever gets the socket next needs to go on; this one must not be used afterwards."""
        return self._records.save()

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()

    @property
    def has_input(self) -> bool:
        """Whether `recv` returns something that the descriptor does not tell of."""
        return self._records.has_input

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive as a socket does. ConnectionAbortedError: what came is not what was sent."""
        return self._records.receive(self.fileno(), size, flags)

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        """Send as a socket does."""
        flags |= socket.MSG_NOSIGNAL
        if not self._taken:
            self._taken = self._records.send(self.fileno(), data, flags)
        if not self._records.flush(self.fileno(), flags):
            raise BlockingIOError
        taken, self._taken = self._taken, 0
        return taken

    def sendall(self, data: bytes) -> None:
        """Send all of it, on a socket that waits."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.send(rest) :]

    def sendmsg(self, parts: Sequence[memoryview], beside: Sequence[object], flags: int = 0) -> int:
        """Send the first part that there is. Nothing can be beside it: TLS goes to another machine."""
        assert not beside
        return self.send(next(part for part in parts if part), flags)

    def __enter__(self) -> TlsSocket:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.close()


Connection = socket.socket | TlsSocket


def state_of(connection: object) -> bytes:
    """What whoever gets the socket next needs besides; empty: nothing, it is in clear."""
    return connection.state() if isinstance(connection, TlsSocket) else b""


def with_state(connection: socket.socket, state: bytes) -> Connection:
    """The socket, as it was when `state_of` gave this. Raises NoTls."""
    return TlsSocket.restore(connection, state) if state else connection
