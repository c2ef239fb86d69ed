"""HTTP on the monitor's own loop, with TLS where there is an identity. It tells, and changes nothing."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from gpuferry.specs._generated import control_pb2

from ...door.listener import name_of
from ...service.tls import Identity
from ...service.waiting import within
from ...settings.monitor import is_loopback
from ...store.interface import StoreError
from ..callers import OPERATOR, Caller, Callers, TooOften
from ..stats.plain import status_json
from .gate import Gate
from .heads import Heads

STATIC = Path(__file__).parent / "static"
CONNECTIONS = 64  # where nobody says how many there is room for
READ_SECONDS = 15.0  # for which a page may not read before it is cut off
CALLER = web.RequestKey("caller", Caller)  # of a request
FOR_TENANTS = ("/api/", "/metrics", "/static/")  # with a tenant's token; each shows that tenant's own
PROBES = ("/healthz", "/readyz")  # they have no key
OF_LOGIN = ("/login", "/static/login.js", "/static/page.css", "/static/icon.svg")
HEADERS = {
    # Nothing from outside, nothing that runs but our own files, in nobody's frame.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

BEARER = {"WWW-Authenticate": 'Bearer realm="gpuferry"'}


class Source(Protocol):
    """The monitor or registry whose state the page shows."""

    def readiness(self) -> tuple[bool, list[str]]:
        """Whether a guest could have a session, and everything that is wrong, as text."""

    async def metrics(self, caller: Caller) -> bytes:
        """The metrics of this moment that the caller may see, in Prometheus' text format."""

    async def status(self, caller: Caller) -> control_pb2.StatusReply:
        """What the caller may see of all that the monitor knows at this moment."""

    def events(self, caller: Caller) -> AsyncIterator[str]:
        """Server-sent events for this caller."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """One listening socket. It wants the page's key, as bearer, as a password, or as a login's cookie; or a
    tenant's token, which shows that tenant's own.
    """

    def __init__(
        self,
        source: Source,
        listening: socket.socket,
        key: str,
        identity: Identity | None = None,
        callers: Callers | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self._source = source
        self._callers = callers
        self.name = name_of(listening)
        self._local = is_loopback(self.name)
        self._key = key.encode()
        self._cookie = f"gpuferry-page-{listening.getsockname()[1]}"  # a browser has one jar for all ports
        self._entered = hmac.digest(self._key, b"gpuferry page cookie 1", hashlib.sha256).hex()
        self._tls = following(identity) if identity else None
        self._gate = Gate(listening, connections, self._tls)
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/login", self._form),
                web.post("/login", self._enter),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/api/status", self._status),
                web.get("/api/events", self._events, allow_head=False),  # it would never end
                web.static("/static", STATIC),
            ]
        )
        application.on_response_prepare.append(self._add_headers)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=0.2,
            logger=logger_of("gpuferry.page"),
        )

    async def start(self) -> None:
        """Answer requests on the listening socket, until `stop`."""
        await self._runner.setup()
        assert self._runner.server
        make = self._runner.server
        self._gate.open(lambda: Heads(make()))

    async def stop(self) -> None:
        """Answer no more requests; pages notice, and say so."""
        self._gate.close()
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        with self._gate.answering(request.transport):
            # A page of somebody else's, whose name was made to point here, must not read ours.
            if self._local and not is_local(host := host_of(request)):
                raise web.HTTPForbidden(text=f"{host} is not a name of this machine\n")
            if request.path in (*PROBES, *OF_LOGIN) and request.method in ("GET", "HEAD"):
                return await handler(request)
            if caller := await self._caller(request):
                request[CALLER] = caller
                return await handler(request)
            if request.path == "/":
                raise web.HTTPSeeOther("/login")  # browsers take what is behind the # along
            raise web.HTTPUnauthorized(
                text="the page's key is needed, as bearer token or password: `gpuferry page`\n",
                headers=BEARER,
            )

    async def _caller(self, request: web.Request) -> Caller | None:
        """Who may have what is asked for: the page's key opens all of it, a tenant's token what is for
        tenants, and the monitor's token nothing.
        """
        if self._proves(request):
            return OPERATOR
        if self._callers is None or not (request.path == "/" or request.path.startswith(FOR_TENANTS)):
            return None
        try:
            caller = await self._callers.of(shown(request).decode(errors="replace"))
        except TooOften as error:
            raise web.HTTPTooManyRequests(text=f"{error}\n") from None
        except StoreError as error:
            raise web.HTTPServiceUnavailable(text=f"tokens cannot be checked now: {error}\n") from None
        return caller if caller and caller.tenant is not None else None

    def _proves(self, request: web.Request) -> bool:
        """By the login's cookie or by the key. A browser sends an earlier key's cookie beside the new key."""
        cookie = request.cookies.get(self._cookie, "").encode(errors="replace")
        entered = hmac.compare_digest(cookie, self._entered.encode())
        return entered or hmac.compare_digest(shown(request), self._key)

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def _form(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "login.html")

    async def _enter(self, _: web.Request) -> web.StreamResponse:
        """Give the browser a cookie, which no script reads and which comes from our own pages only."""
        response = web.Response(status=204)
        response.set_cookie(
            self._cookie, self._entered, httponly=True, samesite="Strict", secure=self._tls is not None
        )
        return response

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
        return web.json_response(status_json(await self._source.status(request[CALLER])))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if not self._gate.may_stream(request.transport, request[CALLER].tenant):
            raise web.HTTPServiceUnavailable(text="too many pages are open on this machine: close some\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            async for event in self._source.events(request[CALLER]):
                if not await self._goes_on(request):
                    break
                await within(READ_SECONDS, response.write(event.encode()))
        except ConnectionResetError:  # the page was closed
            pass
        except asyncio.TimeoutError:  # it does not read
            if request.transport:
                request.transport.abort()
        return response

    async def _goes_on(self, request: web.Request) -> bool:
        """Whether a stream does: to a tenant each event is a call, as its token may have been revoked."""
        if request[CALLER].tenant is None:
            return True
        try:
            return await self._caller(request) is not None
        except web.HTTPException:
            return False


class _Sensible(logging.Filter):
    """Requests of no sense are their callers' affair, who could fill the log with them."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def logger_of(name: str) -> logging.Logger:
    """For an HTTP server's own troubles."""
    logger = logging.getLogger(name)
    if not logger.filters:
        logger.addFilter(_Sensible())
    return logger


def host_of(request: web.Request) -> str:
    """How the request calls this machine, as text. Of no browser's, which says nothing: localhost."""
    return request.headers.get("Host", "localhost").encode("ascii", "replace").decode()[:200]


def is_local(host: str) -> bool:
    """Whether a Host header means this machine's loopback."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def shown(request: web.Request) -> bytes:
    """The key that came with the request; empty: none."""
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except ValueError:  # no base64, or no ASCII
            return b""
    return value.encode(errors="surrogateescape") if scheme.lower() == "bearer" else b""


def following(identity: Identity) -> ssl.SSLContext:
    """A context for all connections, each of which gets the certificate that the files hold by then."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0

    def choose(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = identity.page_context()

    context.sni_callback = choose
    return context
