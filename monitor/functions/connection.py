"""A caller's connection, where aiohttp leaves to others what becomes of it: heads are bounded in all, few
requests wait behind the one that is answered, and who reads a body learns at once that it is malformed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import StreamReader, web, web_protocol, web_server
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from ..views.web.heads import REFUSED, TOO_LARGE

HEAD_MOST = 64 << 10  # bytes of a request's line and headers; aiohttp takes 128 headers of 8 KiB
WAITING_MOST = 2  # requests of one connection that came before they are wanted
LINGER_SECONDS = 1.0  # between an answer to what was not read, and the end: else that might be lost

_protocol: Any = web_protocol
_server: Any = web_server


class Connection(RequestHandler):
    """What aiohttp does on a connection, and what it does not."""

    __slots__ = ("_head", "_newest", "_over")

    _head: int  # bytes of a head that has not ended
    _newest: StreamReader | None  # body of the newest request
    _over: bool  # nothing is understood any more

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The caller is connected: nothing of a request has come yet."""
        self._head, self._newest, self._over = 0, None, False
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of requests, and note what aiohttp does not: how long a head is by now, and that a body
        which somebody may be reading is malformed.
        """
        if self._over:
            return
        count, at_head = self._request_count, self._is_at_head()
        super().data_received(data)
        for message, body in self._messages:
            if not isinstance(message, _ErrInfo):
                self._newest = body
            elif self._newest and not self._newest.is_eof():
                self._newest.set_exception(message.exc)
        still = at_head and self._request_count == count
        self._head = self._head + len(data) if still else 0
        if self._head > HEAD_MOST:
            self._refuse()

    def _is_at_head(self) -> bool:
        """Whether what comes next is part of a request's head: neither of a body, nor nothing for now."""
        over = self._newest is None or self._newest.is_eof()
        return over and self.transport is not None and self.transport.is_reading()

    def _refuse(self) -> None:
        """Take nothing more. Whoever was promised an answer before finds the connection cut."""
        assert self.transport
        self._over = True
        if self._request_in_progress or self._messages:
            self.transport.abort()
        else:
            self.transport.write(REFUSED % TOO_LARGE)
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self.force_close)


def check_head(request: web.BaseRequest) -> None:
    """Raise 431 for a head that is too large, and came at once."""
    if sum(len(name) + len(value) for name, value in request.raw_headers) > HEAD_MOST:
        refused = web.HTTPRequestHeaderFieldsTooLarge()
        refused.force_close()
        raise refused


def bound() -> None:
    """Have such connections from now on, in this process."""
    _protocol.MAX_MSG_QUEUE_SIZE = WAITING_MOST
    _server.RequestHandler = Connection
