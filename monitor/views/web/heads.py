"""Between a connection and what speaks HTTP on it: requests pass that have no body, for ours need none."""

from __future__ import annotations

import asyncio
from typing import cast

HEAD_MOST = 16 << 10  # bytes of a request's line and headers
HELD_MOST = 256 << 10  # bytes of heads that wait for those before them: nobody needs so many
HEADS_ONCE = 4  # before others get their turn
BUSY_SECONDS = 0.05  # between looks whether what speaks HTTP takes more
REFUSED = b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
TOO_LARGE, BODY = b"431 Request Header Fields Too Large", b"413 Content Too Large"


class Heads(asyncio.Protocol):
    """Passes whole heads on to `inner`, a few in each round of the event loop, and none while that has paused
    reading: it has as many as it wants to keep.

    To read a body is work before anybody knows whose it is: one of a hundred thousand parts, which is half a
    megabyte, kept everybody else waiting for a second.
    """

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._held = bytearray()  # that was not passed on
        self._next: asyncio.Handle | None = None  # when more of it is
        self._passed = False  # something was
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """More of it came."""
        if self._over:
            return
        self._held += data
        if self._next is None:
            self._go_on()
        elif len(self._held) > HELD_MOST:
            self._refuse(TOO_LARGE)

    def _go_on(self) -> None:
        assert self._transport
        loop = asyncio.get_running_loop()
        self._next = None
        for _ in range(HEADS_ONCE):
            if self._over or self._transport.is_closing():
                return
            if not self._transport.is_reading():
                self._next = loop.call_later(BUSY_SECONDS, self._go_on) if self._held else None
                return
            end = self._held.find(b"\r\n\r\n") + 4
            if end < 4:
                break
            head = bytes(self._held[:end])
            if end > HEAD_MOST or _has_body(head):
                self._refuse(TOO_LARGE if end > HEAD_MOST else BODY)
                return
            del self._held[:end]
            self._passed = True
            self._inner.data_received(head)
        else:
            self._next = loop.call_soon(self._go_on)
            return
        if len(self._held) > HEAD_MOST:
            self._refuse(TOO_LARGE)

    def _refuse(self, why: bytes) -> None:
        """Nothing of it is read any more. Whoever was promised an answer before finds the connection cut."""
        assert self._transport
        self._stop()
        if self._passed:
            self._transport.abort()
        else:
            self._transport.write(REFUSED % why)
            self._transport.close()

    def _stop(self) -> None:
        self._over = True
        self._held.clear()
        if self._next:
            self._next.cancel()

    def eof_received(self) -> bool | None:
        """The other end says no more."""
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._stop()
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        """The other end does not read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Go on sending: the browser reads again."""
        self._inner.resume_writing()


def _has_body(head: bytes) -> bool:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            return True
    return False
