"""Reading requests' bodies: bounded each, bounded together, and in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from ..service.waiting import within
from .invocation import Code, Failed

SECONDS = 30.0  # for a body, and a second more for each that has come of
BYTES_PER_SECOND = 64 << 10  # as slow as a caller may be


class Bodies:
    """The memory that bodies may have, of all requests that are not yet answered."""

    def __init__(self, most: int) -> None:
        self._room = most
        self._owed = 0  # bytes of answers that were not read yet
        self._read = asyncio.Event()
        self._read.set()

    @contextlib.contextmanager
    def hold(self) -> Iterator[Held]:
        """Hold memory for one request; it is given back when the block ends."""
        held = Held(self)
        try:
            yield held
        finally:
            held.paid(held.owed)
            self._room += held.size

    def take(self, size: int) -> None:
        """Take so many bytes. Raises Failed if fewer are left."""
        if size > self._room:
            why = "bodies of requests have all the memory that they may have"
            raise Failed(Code.REFUSED, why, retry_after=1.0)
        self._room -= size

    def owe(self, size: int) -> None:
        """Take so many bytes even if fewer are left: later requests are refused until they are back."""
        self._room -= size
        self._owed += size
        if self._owed:
            self._read.clear()
        else:
            self._read.set()

    async def all_read(self) -> None:
        """Wait until all answers were read by their callers, or those have gone."""
        await self._read.wait()


class Held:
    """What one request has."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.size = 0
        self.owed = 0  # bytes of them that are an answer

    def take(self, size: int) -> None:
        """Take more bytes for this request. Raises Failed if fewer are left."""
        self._bodies.take(size)
        self.size += size

    def owe(self, size: int) -> None:
        """Count bytes of an answer that are in memory already, even if fewer are left."""
        self._bodies.owe(size)
        self.size += size
        self.owed += size

    def paid(self, size: int) -> None:
        """So much of the answer was written."""
        self._bodies.owe(-size)
        self.size -= size
        self.owed -= size

    async def read(self, request: web.BaseRequest, most: int) -> bytes:
        """The body. Raises Failed if it is too large, too slow, or malformed."""
        if not request.body_exists:
            return b""
        said = request.content_length
        if said is not None and said > most:
            raise too_large(most)
        if "Expect" in request.headers and request.version >= (1, 1) and request.transport:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            return await self._parts(request.content, most)
        except asyncio.TimeoutError:
            raise Failed(Code.TOO_SLOW, "the request's body came too slowly") from None
        except HttpProcessingError as error:
            why = error.message.partition("\n")[0]
            raise Failed(Code.MALFORMED, f"the request's body is malformed: {why}") from None

    async def _parts(self, content: StreamReader, most: int) -> bytes:
        body = bytearray()  # an object for each part would take many times its bytes, if those are few
        began = time.monotonic()
        while not content.at_eof():
            late = began + SECONDS + len(body) / BYTES_PER_SECOND
            part = await within(late - time.monotonic(), content.readany())
            if len(body) + len(part) > most:
                raise too_large(most)
            self.take(len(part))
            body += part
        return bytes(body)


async def expected(request: web.Request) -> None:
    """Nothing is said yet to who asks whether to send the body: it may be refused, and is asked for when it
    is read.
    """
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="only 100-continue is known\n")


def too_large(most: int) -> Failed:
    """The error for a body of more bytes."""
    return Failed(Code.TOO_LARGE, f"the body may have {most} bytes")
