"""`/function/NAME`: where functions are invoked."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDict

from .bodies import BYTES_PER_SECOND, SECONDS, Bodies, Held
from .catalogue import Catalogue
from .config import PREFIX
from .deployment import is_name
from .engine import Engine
from .invocation import Answer, Call, Code, Failed, Parts, Ran
from .metrics import Metrics
from .refusal import refusal

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
# Surrogates stand for bytes that are no UTF-8 (octets.py); others stand for nothing.
VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udc7f\udd00-\udfff]{0,8192}")
# Of one connection, or what the server alone says; a handler may not set them.
OURS = frozenset(
    {
        *("connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te", "trailer"),
        *("date", "server"),
    }
)
PIECE = 256 << 10  # bytes of an answer that are written at once
SAID_BY_US = "x-gpuferry-"  # how an invocation went, and why it failed


class Front:
    """Turns requests into invocations, and answers back."""

    def __init__(self, catalogue: Catalogue, engine: Engine, metrics: Metrics, bodies: Bodies) -> None:
        self._catalogue = catalogue
        self._engine = engine
        self._metrics = metrics
        self._bodies = bodies

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        raw = request.rel_url.raw_path.removeprefix(PREFIX)
        name, slash, rest = raw.partition("/")
        name = unquote(name)  # a caller may write any letter so; what is behind it is the function's to read
        try:
            function = self._catalogue.get(name) if is_name(name) else None
            if function is None:
                raise Failed(Code.NOT_FOUND, f"there is no function {name[:63]!r}")
        except Failed as error:
            return _closing(request, refusal(error))
        try:
            with self._bodies.hold() as held:
                body = await held.read(request, function.deployment.body)
                query = request.rel_url.raw_query_string
                headers = _headers(request)
                limit = function.deployment.body
                answer = await self._engine.invoke(
                    function, Call(request.method, slash + rest, query, headers, body)
                )
                if answer.stream:
                    return await _pass_on(request, answer, answer.stream, held, limit)
                return await _write(request, answer, answer.body, held)
        except Failed as error:
            if error.code in _NOT_ACCEPTED:
                self._metrics.refused(function, error.code)
            return refusal(error)


_NOT_ACCEPTED = {Code.TOO_LARGE, Code.TOO_SLOW, Code.MALFORMED, Code.QUEUE_FULL, Code.SHUTTING_DOWN}


def _closing(request: web.Request, response: web.Response) -> web.Response:
    if request.body_exists:
        response.force_close()  # nobody will read the body
    return response


def _headers(request: web.Request) -> tuple[tuple[str, str], ...]:
    """Without what opened this server: a function is not to have its callers' tokens."""
    mine = "gpuferry.functions.token" in request
    return tuple(
        (name, value)
        for name, value in request.headers.items()
        if not (mine and name.lower() == "authorization")
    )


async def _write(request: web.Request, answer: Answer, body: bytes, held: Held) -> web.StreamResponse:
    """Write the whole answer, which is in memory until its caller has read it. Raises Failed."""
    headers = _answered(answer)
    held.owe(len(body))
    response: web.StreamResponse
    if len(body) <= PIECE or _has_no_body(request, answer):
        response, rest = web.Response(status=answer.status, headers=headers, body=body), 0
        if request.method == "HEAD" and answer.length is not None:
            response.headers["Content-Length"] = str(answer.length)
    else:
        response, rest = web.StreamResponse(status=answer.status, headers=headers), len(body)
        response.content_length = rest
        transport = request.transport
        if transport and not transport.is_closing():  # what is written is with the system, should we end
            transport.set_write_buffer_limits(high=1, low=0)
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):  # its caller has gone
        with _in_time(request, began, PIECE):
            await response.prepare(request)
        last = (rest - 1) // PIECE * PIECE  # it goes with the end, which waits for it however small it is
        for start in range(0, last, PIECE):
            with _in_time(request, began, start + PIECE):
                await response.write(memoryview(body)[start : start + PIECE])
        with _in_time(request, began, rest + PIECE):
            await response.write_eof(body[last:] if rest else b"")
    return response


def _has_no_body(request: web.Request, answer: Answer) -> bool:
    return request.method == "HEAD" or answer.status in (204, 304)


async def _pass_on(
    request: web.Request, answer: Answer, stream: Parts, held: Held, most: int
) -> web.StreamResponse:
    """Write an answer in parts, as they come. One that breaks off ends its connection without a last chunk,
    so that nobody takes it for whole. Raises Failed as long as nothing was written.
    """
    try:
        headers = _answered(answer)
        if request.version < (1, 1):
            return await _write(request, answer, await stream.whole(most), held)
        response = web.StreamResponse(status=answer.status, headers=headers)
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            async for part in stream.parts():
                if _has_no_body(request, answer):
                    continue
                held.owe(len(part))
                with _in_time(request, time.monotonic(), len(part)):
                    await response.write(part)
                held.paid(len(part))
        except Failed:
            if request.transport:
                request.transport.close()
        except ConnectionError:  # its caller has gone
            pass
        return response
    finally:
        stream.leave()


@contextlib.contextmanager
def _in_time(request: web.Request, began: float, size: int) -> Iterator[None]:
    """Cut the caller off if it has not read so much in the time that this may take since it began: its
    handler's time may be over long before, and its connection is one of all callers'.
    """
    late = began + SECONDS + size / BYTES_PER_SECOND
    transport = request.transport
    left = late - time.monotonic()
    timer = asyncio.get_running_loop().call_later(left, transport.abort) if transport else None
    try:
        yield
    finally:
        if timer:
            timer.cancel()


def _answered(answer: Answer) -> CIMultiDict[str]:
    """An answer's headers. Raises Failed if the function's status or headers are none. What is not final is
    not passed on: after a 101 the next one's requests would go through a balancer's tunnel.
    """
    if not 200 <= answer.status <= 599:
        raise Failed(Code.BAD_ANSWER, f"the function answered with the status {answer.status}", Ran.YES)
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in answer.headers:
        if not (TOKEN.fullmatch(name) and VALUE.fullmatch(value)):
            raise Failed(
                Code.BAD_ANSWER, f"the function answered with a header of no sense: {name[:100]!r}", Ran.YES
            )
        if name.lower() not in OURS and not name.lower().startswith(SAID_BY_US):
            headers.add(name, value)
    headers["X-Gpuferry-Ran"] = Ran.YES.value
    headers["X-Gpuferry-Start"] = "cold" if answer.cold else "warm"
    return headers
