"""TLS on a connection of the event loop, that whoever is at its other end cannot keep busy.

asyncio and uvloop give OpenSSL all that came at once. A record that says that keys change has 27 bytes, costs
a tenth of a millisecond and brings nothing: a quarter of a megabyte of them, from somebody without a token,
kept all others waiting for a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, cast

from gpuferry.native.tls.shake import RECORD_HEADER, ClearRecords

RECORD_MOST = RECORD_HEADER + (1 << 14) + 256  # a peer that says more speaks no TLS
BARREN_MOST = 32  # records that bring no data, those of the handshake among them, and one more for each
FORGIVEN_BYTES = 64 << 10  # bytes of data
RECORDS_ONCE = 64  # before others get their turn


class Encrypted(asyncio.Transport, asyncio.Protocol):
    """The protocol of a connection, and the transport of what is spoken on it encrypted (`inner`)."""

    def __init__(self, inner: asyncio.Protocol, context: ssl.SSLContext) -> None:
        super().__init__()
        self._inner: Any = inner
        self._context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport | None = None
        self._held = bytearray()  # that OpenSSL has not seen
        self._next: asyncio.Handle | None = None
        self._barren = 0.0  # records, of which data makes good some
        self._clear = ClearRecords()
        self._speaks = False  # the handshake is over, and `inner` has this transport
        self._paused = self._closing = False
        self._error: Exception | None = None
        self.secured: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- what the connection says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there; TLS begins when the other end says something."""
        self._raw = cast(asyncio.Transport, transport)  # uvloop's are none by their class

    def data_received(self, data: bytes) -> None:
        """Some records came, or parts of them."""
        self._held += data
        if self._next is None:
            self._go_on()

    def eof_received(self) -> bool | None:
        """The other end says no more, and did not say so by TLS."""
        if self._speaks and not self._closing:
            self._inner.eof_received()
        return None

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._closing = True
        self._held.clear()
        error = self._error or error
        if self._speaks:
            self._inner.connection_lost(error)
        elif not self.secured.done():
            self.secured.set_exception(error or ConnectionResetError("it hung up"))
            self.secured.exception()  # whoever was to wait for it may have gone

    def pause_writing(self) -> None:
        """The other end does not read."""
        if self._speaks:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        if self._speaks:
            self._inner.resume_writing()

    # -- records

    def _go_on(self) -> None:
        """Take what came, record by record, for a while."""
        assert self._raw
        self._next = None
        for _ in range(RECORDS_ONCE):
            if self._closing or self._paused or len(self._held) < RECORD_HEADER:
                break
            size = RECORD_HEADER + int.from_bytes(self._held[3:RECORD_HEADER], "big")
            if size > RECORD_MOST:
                self._fail(ConnectionAbortedError("it does not speak TLS"))
            elif len(self._held) < size:
                break
            else:
                record = bytes(self._held[:size])
                del self._held[:size]
                self._take(record)
        else:
            self._next = asyncio.get_running_loop().call_soon(self._go_on)
        self._read_no_more_than_is_taken()

    def _take(self, record: bytes) -> None:
        """Have OpenSSL read one record."""
        data = None
        self._incoming.write(record)
        try:
            if self._speaks:
                data = self._tls.read(RECORD_MOST)
            else:
                self._clear.add(record)
                self._tls.do_handshake()
                self._speak()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._send()  # the alert that says why
            self._fail(error)
            return
        self._send()
        if data:
            self._barren = max(self._barren - len(data) / FORGIVEN_BYTES, 0.0)
            self._inner.data_received(data)
        elif data is not None:  # the other end has said that it says no more
            self._inner.eof_received()
            self.close()
        else:
            self._barren += 1
            if self._barren >= BARREN_MOST:
                self._fail(ConnectionAbortedError("too many records of TLS that brought nothing"))

    def _speak(self) -> None:
        """The handshake is over."""
        if self.secured.done():  # cancelled: nobody wants it any more
            return
        self._speaks = True
        self.secured.set_result(None)
        self._inner.connection_made(self)

    def _read_no_more_than_is_taken(self) -> None:
        """Nothing is read as long as there is a record that nobody takes."""
        if self._raw is None or self._closing:
            return
        if self._paused or self._next:
            self._raw.pause_reading()
        else:
            self._raw.resume_reading()

    def _send(self) -> None:
        if self._raw and (data := self._outgoing.read()):
            self._raw.write(data)

    def _fail(self, error: Exception) -> None:
        self._error, self._closing = error, True
        self._held.clear()
        if self._raw:
            self._raw.abort()

    # -- what is spoken on it

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it, encrypted."""
        left = memoryview(data).cast("B")
        while left and not self._closing:
            left = left[self._tls.write(left) :]
        self._send()

    def close(self) -> None:
        """Send what was written, and that it was all."""
        if self._closing or not self._raw:
            return
        self._closing = True
        with contextlib.suppress(ssl.SSLError):  # what the other end says to it is not waited for
            self._tls.unwrap()
        self._send()
        self._raw.close()

    def abort(self) -> None:
        """End the connection now."""
        self._closing = True
        if self._raw:
            self._raw.abort()

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._closing

    def pause_reading(self) -> None:
        """Nothing more is to be passed on for now."""
        self._paused = True
        self._read_no_more_than_is_taken()

    def resume_reading(self) -> None:
        """Pass on what came meanwhile, and comes."""
        self._paused = False
        if self._next is None and not self._closing:
            self._next = asyncio.get_running_loop().call_soon(self._go_on)

    def is_reading(self) -> bool:
        """Whether what comes is passed on."""
        return not self._paused and not self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of TLS, and of the connection."""
        known = {"sslcontext": self._context, "ssl_object": self._tls}
        return known.get(name) or (self._raw.get_extra_info(name, default) if self._raw else default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another hear what comes."""
        self._inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who hears what comes."""
        return cast(asyncio.BaseProtocol, self._inner)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When whoever writes is told to wait."""
        if self._raw:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and are not sent."""
        return self._raw.get_write_buffer_size() if self._raw else 0

    def can_write_eof(self) -> bool:
        """A half of TLS is not closed alone."""
        return False
