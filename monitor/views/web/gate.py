"""Lets HTTP connections in, a bounded number of them, and cuts off whoever is too slow: no half request
stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog
from aiohttp import StreamReader

from ...service.acceptor import Acceptor
from .encrypted import Encrypted

HEADER_SECONDS = 10.0  # for a request's line and headers, and for TLS before it
ANSWER_SECONDS = 30.0  # for an answer, from the request to its last byte
BYTES_PER_SECOND = 64 << 10  # as slow as who reads a large answer may be
SWEEP_SECONDS = 1.0
SEND_BYTES = 128 << 10  # that the kernel holds for one that does not read

log = structlog.get_logger()


@dataclass(eq=False)
class Visit:
    """A connection to the web page, from accept to close."""

    connection: socket.socket
    address: str
    deadline: float
    asked: bool = False  # a request of it, which is here whole, is being answered
    streams: bool = False  # that has no end
    tenant: str | None = None  # whose stream it is; None: not a tenant's
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    transport: asyncio.Transport | None = field(default=None, repr=False)

    def cut(self) -> None:
        """End the connection now."""
        if self.transport:
            self.transport.abort()
        elif self.task:
            self.task.cancel()

    def settled(self, _: asyncio.Task[None]) -> None:
        """The connection is a transport's now, or was given up, perhaps before anything was done with it."""
        if self.transport is None:
            self.connection.close()


class Gate:
    """The listening socket of an HTTP server. `most` connections in all, half as many from one address, and
    half of those may be streams. Where there are too many, one that has not asked for anything goes, the
    oldest first.
    """

    def __init__(
        self,
        listening: socket.socket,
        most: int,
        context: ssl.SSLContext | None = None,
        of_one: int | None = None,
        patient: bool = False,
    ) -> None:
        """`of_one`: connections from one address. `patient`: an answer may take as long as it takes, because
        whoever makes it has limits of its own; the last bytes have their time after that.
        """
        self._acceptor = Acceptor(listening, "HTTP", self._admit)
        self._patient = patient
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)  # connections inherit it
        self._most = max(most, 2)
        self._of_one = max(most // 2, 2) if of_one is None else of_one
        self._context = context
        self._visits: dict[Visit, None] = {}  # oldest first
        self._by_transport: dict[asyncio.BaseTransport, Visit] = {}
        self._make: Callable[[], asyncio.Protocol] | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    def open(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Let connections in; `make` makes what speaks HTTP on each."""
        self._make = make
        self._acceptor.open()

    def _admit(self, connection: socket.socket, address: str) -> None:
        same = [visit for visit in self._visits if visit.address == address]
        full, among = (
            (True, same) if len(same) >= self._of_one else (len(self._visits) >= self._most, self._visits)
        )
        if full:
            victim = next((visit for visit in among if not visit.asked), None)
            self._acceptor.complaints.say("HTTP: too many connections", address, address=address)
            if victim is None:
                connection.close()
                return
            del self._visits[victim]
            victim.cut()
        visit = Visit(connection, address, time.monotonic() + HEADER_SECONDS)
        self._visits[visit] = None
        visit.task = asyncio.ensure_future(self._connect(visit))
        visit.task.add_done_callback(visit.settled)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    async def _connect(self, visit: Visit) -> None:
        make = self._make
        assert make
        visit.connection.setblocking(False)
        try:
            transport = await _begin(make, visit.connection, self._context)
        except OSError as error:  # of TLS, or of who left at once
            log.debug("HTTP: no connection", address=visit.address, error=str(error))
            self._visits.pop(visit, None)
            return
        visit.transport = transport
        self._by_transport[transport] = visit

    def _sweep(self) -> None:
        now = time.monotonic()
        for visit in list(self._visits):
            if visit.connection.fileno() < 0:  # whoever only closes may have more to send, for ever
                self._forget(visit)
            elif now > visit.deadline and not visit.streams:
                visit.cut()
                self._forget(visit)
        waiting = self._visits and self._acceptor.is_open
        self._sweeping = (
            asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep) if waiting else None
        )

    def _forget(self, visit: Visit) -> None:
        self._visits.pop(visit, None)
        if visit.transport:
            self._by_transport.pop(visit.transport, None)

    @contextlib.contextmanager
    def answering(
        self, transport: asyncio.BaseTransport | None, body: StreamReader | None = None
    ) -> Iterator[Callable[[int], None]]:
        """While a request on this transport is answered. The last bytes of the answer have time after
        that, more if it is told that they are many. As long as its body is not here the connection may go
        where there are too many: to say half of it costs nothing.
        """
        visit = self._visit(transport)
        more = 0.0
        over = False

        def asked() -> None:
            if visit and not over:
                visit.asked = True

        def many(size: int) -> None:
            nonlocal more
            more = size / BYTES_PER_SECOND

        if visit:
            visit.deadline = time.monotonic() + ANSWER_SECONDS
            visit.streams = self._patient
        if body:
            body.on_eof(asked)
        else:
            asked()
        try:
            yield many
        finally:
            over = True
            if visit:
                visit.asked, visit.streams = False, False
                visit.deadline = time.monotonic() + ANSWER_SECONDS + more

    def _visit(self, transport: asyncio.BaseTransport | None) -> Visit | None:
        return self._by_transport.get(transport) if transport else None

    def may_stream(self, transport: asyncio.BaseTransport | None, tenant: str | None) -> bool:
        """Whether the answer on this transport may go on for ever; then it has no deadline as a whole. Of
        tenants' together, wherever they come from, those are a quarter of all connections at most, and half
        of those one tenant's.
        """
        visit = self._visit(transport)
        if visit is None:
            return True
        streams = [one for one in self._visits if one.streams]
        near = sum(one.address == visit.address for one in streams)
        visit.streams = near < max(self._of_one // 2, 1)
        if tenant is not None:
            of_tenants = [one.tenant for one in streams if one.tenant is not None]
            room = max(self._most // 4, 1)
            visit.streams &= len(of_tenants) < room and of_tenants.count(tenant) < max(room // 2, 1)
            visit.tenant = tenant
        return visit.streams

    def close(self) -> None:
        """Let nobody in any more. Those who are inside are the HTTP server's to end."""
        if self._sweeping:
            self._sweeping.cancel()
            self._sweeping = None
        for visit in self._visits:
            if visit.task and not visit.task.done():
                visit.task.cancel()
        self._acceptor.close()


async def _begin(
    make: Callable[[], asyncio.Protocol], connection: socket.socket, context: ssl.SSLContext | None
) -> asyncio.Transport:
    """The transport on which what `make` makes speaks, once TLS has begun there, if any. Raises OSError."""
    connect = asyncio.get_running_loop().connect_accepted_socket
    if context is None:
        transport, _ = await connect(make, connection)
        return transport
    encrypted = Encrypted(make(), context)
    await connect(lambda: encrypted, connection)
    try:
        await encrypted.secured
    except BaseException:
        encrypted.abort()
        raise
    return encrypted
