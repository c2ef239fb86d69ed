"""HTTP on the monitor's own loop. It only ever answers GET, and tells; it changes nothing."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

from aiohttp import web
from gpuferry.specs._generated import control_pb2

from ...door.listener import name_of
from ...service.waiting import within
from ...settings.monitor import is_loopback
from ...store.interface import StoreError
from ..callers import OPERATOR, Caller, Callers, TooOften, visible
from ..stats.plain import status_json
from .gate import Gate

STATIC = Path(__file__).parent / "static"
CONNECTIONS = 64  # where nobody says how many there is room for
READ_SECONDS = 15.0  # for which a page may not read before it is cut off
CALLER = web.RequestKey("caller", Caller)  # of a request
FOR_TENANTS = ("/api/", "/metrics", "/static/")  # with a tenant's token; each shows that tenant's own
OPEN_PATHS = ("/healthz", "/readyz")  # for probes, which have no token
HEADERS = {
    # Nothing from outside, nothing that runs but our own files, in nobody's frame.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Source(Protocol):
    """Where the server gets what it tells."""

    def readiness(self) -> tuple[bool, list[str]]:
        """Whether a guest could have a session, and everything that is wrong, as text."""

    async def metrics(self, caller: Caller) -> bytes:
        """The metrics of this moment that the caller may see, in Prometheus' text format."""

    async def status(self) -> control_pb2.StatusReply:
        """What the monitor knows at this moment."""

    def events(self, caller: Caller) -> AsyncIterator[str]:
        """Server-sent events for this caller."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """One listening socket. Beyond this machine it asks for the token: as bearer, or as a password."""

    def __init__(
        self,
        source: Source,
        listening: socket.socket,
        token: bytes,
        callers: Callers | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self._source = source
        self._callers = callers
        self._gate = Gate(listening, connections)
        self.name = name_of(listening)
        self._token = None if is_loopback(self.name) else token
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/api/status", self._status),
                web.get("/api/events", self._events),
                web.static("/static", STATIC),
            ]
        )
        application.on_response_prepare.append(self._add_headers)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.2)

    async def start(self) -> None:
        """Answer requests on the listening socket, until `stop`."""
        await self._runner.setup()
        assert self._runner.server
        self._gate.open(self._runner.server)

    async def stop(self) -> None:
        """Answer no more requests; pages notice, and say so."""
        self._gate.close()
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        with self._gate.answering(request.transport):
            request[CALLER] = tenant = await self._tenant(request) or OPERATOR
            path = request.path
            for_tenant = tenant is not OPERATOR and (path == "/" or path.startswith(FOR_TENANTS))
            return await (handler(request) if for_tenant else self._guard_token(request, handler))

    async def _tenant(self, request: web.Request) -> Caller | None:
        """The tenant whose token comes with the request; None: the token is none of a tenant's."""
        try:
            caller = await self._callers.of(_given(request)) if self._callers else None
        except TooOften as error:
            raise web.HTTPTooManyRequests(text=f"{error}\n") from None
        except StoreError as error:
            raise web.HTTPServiceUnavailable(text=f"tokens cannot be checked now: {error}\n") from None
        return caller if caller and caller.tenant is not None else None

    async def _guard_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token is None:
            # A page of somebody else's, whose name was made to point here, must not read ours.
            if not _is_local(request.host):
                raise web.HTTPForbidden(text=f"{request.host} is not a name of this machine\n")
        elif request.path not in OPEN_PATHS and not _proves(request, self._token):
            raise web.HTTPUnauthorized(
                text="the token is needed: as bearer token, or as the password of any user\n",
                headers={"WWW-Authenticate": 'Basic realm="gpuferry", charset="UTF-8"'},
            )
        return await handler(request)

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.StreamResponse:
        ready, problems = self._source.readiness()
        lines = ["ready" if ready else "not ready", *problems]
        return web.Response(status=200 if ready else 503, text="".join(f"{line}\n" for line in lines))

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        content_type = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await self._source.metrics(request[CALLER]), headers=content_type)

    async def _status(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(status_json(visible(await self._source.status(), request[CALLER])))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if not self._gate.may_stream(request.transport):
            raise web.HTTPServiceUnavailable(text="too many pages are open on this machine: close some\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            async for event in self._source.events(request[CALLER]):
                await within(READ_SECONDS, response.write(event.encode()))
        except ConnectionResetError:  # the page was closed
            pass
        except asyncio.TimeoutError:  # it does not read
            if request.transport:
                request.transport.abort()
        return response


def _is_local(host: str) -> bool:
    """Whether a Host header means this machine's loopback."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _given(request: web.Request) -> str:
    """The token that comes with the request; empty: none."""
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2].decode(errors="replace")
        except binascii.Error:
            return ""
    return value if scheme.lower() == "bearer" else ""


def _proves(request: web.Request, token: bytes) -> bool:
    return hmac.compare_digest(_given(request).encode(), token)
