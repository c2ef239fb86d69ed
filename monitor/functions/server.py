"""The HTTP server of functions: who may ask what."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from aiohttp import web

from ..door.listener import name_of
from ..service.tls import Identity
from ..settings.monitor import is_loopback
from ..views.web.gate import Gate
from ..views.web.server import BEARER, HEADERS, following, host_of, is_local, logger_of, shown
from ..views.web.server import STATIC as SHARED
from . import connection, octets
from .bodies import expected
from .config import PREFIX
from .key import page_key

STATIC = Path(__file__).parent / "static"
PROBES = ("/healthz", "/readyz")
LOOKS = ("/system/status", "/metrics")  # which the page's key opens
STATICS = {
    **{name: STATIC / name for name in ("functions.js", "functions.css")},
    **{name: SHARED / name for name in ("page.css", "units.js", "icon.svg")},
}
PAGE = ("/", *(f"/static/{name}" for name in STATICS))
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FunctionServer:
    """One listening socket. Commands need the token, the page its key; to invoke needs nothing on this
    machine's own addresses, and the token elsewhere, unless the server is public.
    """

    def __init__(
        self,
        invoke: Handler,
        system: Sequence[web.RouteDef],
        listening: socket.socket,
        token: bytes,
        identity: Identity | None,
        connections: int,
        public: bool,
    ) -> None:
        octets.pass_on()
        connection.bound()
        self.name = name_of(listening)
        self._local = is_loopback(self.name)
        self._open = public or self._local
        self._token = token
        self._page_key = page_key(token).encode()
        self._gate = Gate(
            listening,
            connections,
            following(identity) if identity else None,
            of_one=connections,  # a gateway, or a load balancer, is one address
            patient=True,
        )
        self.ready = True
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.route("*", PREFIX + "{tail:.*}", invoke, expect_handler=expected),
                web.get("/healthz", self._health),
                web.get("/readyz", self._readiness),
                web.get("/", _file(STATIC / "functions.html")),
                *(web.get(f"/static/{name}", _file(path)) for name, path in STATICS.items()),
                *system,
            ]
        )
        application.on_response_prepare.append(_add_headers)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=1.0,
            handler_cancellation=True,  # who goes away cancels what was asked
            logger=logger_of("gpuferry.functions"),
            auto_decompress=False,  # a function gets the body that its headers speak of
        )

    async def start(self) -> None:
        """Answer requests on the listening socket, until `stop`."""
        await self._runner.setup()
        assert self._runner.server
        self._gate.open(self._runner.server)

    async def stop(self) -> None:
        """Answer no more requests."""
        self._gate.close()
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        with self._gate.answering(request.transport, request.content) as many:
            connection.check_head(request)
            # A page of somebody else's in this machine's browser must neither read nor invoke.
            if self._local and not is_local(host := host_of(request)):
                raise web.HTTPForbidden(text=f"{host} is not a name of this machine\n")
            if self._is_another_sites(request):
                raise web.HTTPForbidden(text="another site's page may not ask here\n")
            if not self._may(request):
                raise web.HTTPUnauthorized(text="the token is needed, as bearer\n", headers=BEARER)
            response = await handler(request)
            many(response.content_length or 0)
            return response

    def _is_another_sites(self, request: web.Request) -> bool:
        """Whether a browser asks in the name of another site's page. Older ones only say where the page that
        sends something is from, and proxies before a server that is not this machine's may call it otherwise.
        """
        if (site := request.headers.get("Sec-Fetch-Site")) is not None:
            return site not in ("none", "same-origin")
        origin = request.headers.get("Origin")
        return self._local and origin is not None and origin.partition("://")[2] != host_of(request)

    def _may(self, request: web.Request) -> bool:
        given = shown(request)
        if hmac.compare_digest(given, self._token):
            request["gpuferry.functions.token"] = True
            return True
        if request.path.startswith(PREFIX):
            return self._open
        if request.method in ("GET", "HEAD"):
            if request.path in PROBES or request.path in PAGE:
                return True
            if request.path in LOOKS:
                return hmac.compare_digest(given, self._page_key)
        return False

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _readiness(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=200 if self.ready else 503, text="ready\n" if self.ready else "draining\n")


def _file(path: Path) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.FileResponse(path)

    return answer


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    if not request.path.startswith(PREFIX):
        response.headers.update(HEADERS)
