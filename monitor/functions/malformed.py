"""A body that turns out to be malformed: whoever reads it is told at once. aiohttp answers it like a request
that comes next, and lets the reader wait.
"""

from __future__ import annotations

from typing import Any

from aiohttp import StreamReader, web_server
from aiohttp.web_protocol import RequestHandler, _ErrInfo

_server: Any = web_server


class _Handler(RequestHandler):
    __slots__ = ("_newest",)

    _newest: StreamReader | None  # body that began to come

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        for message, body in self._messages:
            if not isinstance(message, _ErrInfo):
                self._newest = body
            elif (newest := getattr(self, "_newest", None)) and not newest.is_eof():
                newest.set_exception(message.exc)


def tell() -> None:
    """From now on, in this process: a body's reader gets the HttpProcessingError that says what is wrong."""
    _server.RequestHandler = _Handler
