"""HTTP on the monitor's own loop. It only ever answers GET, and tells; it changes nothing."""

from __future__ import annotations

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
from ...settings.monitor import is_loopback
from ..stats.plain import status_json

STATIC = Path(__file__).parent / "static"
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

    async def metrics(self) -> bytes:
        """The metrics of this moment, in Prometheus' text format."""

    async def status(self) -> control_pb2.StatusReply:
        """What the monitor knows at this moment."""

    def events(self) -> AsyncIterator[str]:
        """Server-sent events."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """One listening socket. Beyond this machine it asks for the token: as bearer, or as a password."""

    def __init__(self, source: Source, listening: socket.socket, token: bytes) -> None:
        self._source = source
        self._listening = listening
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
        await web.SockSite(self._runner, self._listening).start()

    async def stop(self) -> None:
        """Answer no more requests; pages notice, and say so."""
        await self._runner.cleanup()
        self._listening.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
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

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        content_type = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await self._source.metrics(), headers=content_type)

    async def _status(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(status_json(await self._source.status()))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            async for event in self._source.events():
                await response.write(event.encode())
        except ConnectionResetError:  # the page was closed
            pass
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


def _proves(request: web.Request, token: bytes) -> bool:
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    given = value.encode()
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(value, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given, token)
