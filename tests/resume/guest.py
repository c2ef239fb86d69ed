"""A guest in Python that counts the streams of its session, over all its connections."""

from __future__ import annotations

import socket
from typing import Any

from gpuferry.specs._generated.frames import Frame

from tests.apiserver.guest import Guest


class Counted:
    """A socket that knows how much went out."""

    def __init__(self, inner: socket.socket, sent: int) -> None:
        self._inner = inner
        self.sent = sent

    def sendall(self, data: bytes) -> None:
        self._inner.sendall(data)
        self.sent += len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class CountingGuest(Guest):
    """From WELCOME on."""

    socket: Any

    def receive_welcome(self) -> None:
        self.received = 0
        super().receive_welcome()
        self.received = 0
        self.adopt(self.socket, 0)

    @property
    def sent(self) -> int:
        return int(self.socket.sent)

    def adopt(self, connection: socket.socket, sent: int | None = None) -> None:
        """Goes on with another connection."""
        self.socket = Counted(connection, self.sent if sent is None else sent)

    def _exactly(self, size: int) -> bytes:
        data = super()._exactly(size)
        self.received += size
        return data

    def _frame(self) -> tuple[int, bytes, int, int]:
        while True:
            frame = super()._frame()
            if frame[0] != Frame.ACKNOWLEDGE:
                return frame


def counting(guest: Guest) -> CountingGuest:
    """From here on; it has read WELCOME, and said nothing."""
    guest.__class__ = CountingGuest
    assert isinstance(guest, CountingGuest)
    guest.received = 0
    guest.adopt(guest.socket, 0)
    return guest
