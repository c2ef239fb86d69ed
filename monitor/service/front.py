"""Stands before a gRPC server, which tells callers from each other only once they have made calls.

gRPC takes connections until it has as many as it may, whoever they are of. So TCP ends here, and what is said
passes, as it is, to the server on a Unix socket that nobody else can reach. The server knows each connection
by the name of its end there, and tells whose it is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from .acceptor import Acceptor
from .places import Places, Visitor

SWEEP_SECONDS = 1.0


class _End(asyncio.Protocol):
    """One end of a passage: what comes in here goes out at the other."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.other = self
        self.transport: asyncio.Transport | None = None
        self._held = b""  # that came before the other end was there
        self._gone = False
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport of this end is connected: what came for it before is written."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class
        if self.other._held:
            self.transport.write(self.other._held)
            self.other._held = b""
        if self.other._gone:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Write to the other end what came in at this one, or hold it until that is connected."""
        out = self.other.transport
        if out is None:
            self._held += data
        elif not out.is_closing():
            out.write(data)

    def pause_writing(self) -> None:
        """Who is at this end does not read, so the other is not listened to."""
        if self.other.transport and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Who is at this end reads again, so the other is listened to."""
        if self.other.transport and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection of this end is closed: tell the passage."""
        self._gone = True
        self._lost()

    def abort(self) -> None:
        """Close this end without writing what is left for it."""
        if self.transport:
            self.transport.abort()


class _Passage:
    """The way of one connection to the server."""

    _ending: Callable[[], None]
    _over: Callable[[], None]

    def __init__(self) -> None:
        self._outside, self._inside = _End(self._outside_lost), _End(self._inside_lost)
        self._outside.other, self._inside.other = self._inside, self._outside
        self._task: asyncio.Task[None] | None = None

    def begin(
        self,
        outside: socket.socket,
        inside: socket.socket,
        ending: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        """Pass on what is said. From here on both sockets are the passage's. `ending` is called when there is
        only something left to say to the caller, `over` when nothing is.
        """
        self._ending, self._over = ending, over
        outside.setblocking(False)
        self._task = asyncio.ensure_future(self._join(outside, inside))

        def joined(task: asyncio.Task[None]) -> None:
            if task.cancelled() or task.exception():  # it was cut, perhaps before anything was done, or left
                for end, its in ((self._outside, outside), (self._inside, inside)):
                    end.abort() if end.transport else its.close()
                self._over()

        self._task.add_done_callback(joined)

    async def _join(self, outside: socket.socket, inside: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._inside, sock=inside)
        await loop.connect_accepted_socket(lambda: self._outside, outside)

    def cut(self) -> None:
        """Close both ends without passing on what is left."""
        if self._task and not self._task.done():
            self._task.cancel()
        self._outside.abort()
        self._inside.abort()

    def _outside_lost(self) -> None:
        self._inside.abort()
        self._over()

    def _inside_lost(self) -> None:
        if self._outside.transport:
            self._outside.transport.close()  # with what it was not told yet
            self._ending()


class Front:
    """The TCP port of a gRPC server that listens on the Unix socket `inside`. `most`: connections."""

    def __init__(self, listening: socket.socket, inside: Path, most: int) -> None:
        self._inside = str(inside)
        self._acceptor = Acceptor(listening, "control", self._admit)
        self._places = Places(most)
        self._visitors: dict[str, Visitor] = {}  # by how the server names their connections
        self._sweeping: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Let callers in."""
        self._acceptor.open()

    def prove(self, peer: str, tenant: str | None) -> str | None:
        """The connection that the server calls `peer` made a call of this tenant; None: of the operator.
        Returns why it may not be made. Of a connection that did not come by here: nothing.
        """
        visitor = self._visitors.get(peer)
        return self._places.prove(visitor, tenant) if visitor else None

    def _admit(self, connection: socket.socket, address: str) -> None:
        passage = _Passage()
        visitor = self._places.arrive(address, passage.cut)
        if visitor is None:
            self._acceptor.complaints.say("control: too many connections", address, address=address)
            connection.close()
            return
        try:
            inside = self._way_inside()
        except OSError as error:
            self._acceptor.complaints.say("control: no way to the server", "inside", error=str(error))
            self._places.leave(visitor)
            connection.close()
            return
        name = f"unix-abstract:{inside.getsockname()[1:].decode()}"
        self._visitors[name] = visitor
        passage.begin(
            connection, inside, partial(self._places.end, visitor), partial(self._forget, visitor, name)
        )
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def _way_inside(self) -> socket.socket:
        """A connection to the server. Raises OSError, as where there are no descriptors left."""
        inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            inside.bind("")  # a name of the kernel's choice
            inside.connect(self._inside)
        except OSError:
            inside.close()
            raise
        return inside

    def _forget(self, visitor: Visitor, name: str) -> None:
        self._places.leave(visitor)
        if self._visitors.get(name) is visitor:
            del self._visitors[name]

    def _sweep(self) -> None:
        self._places.cut_late()
        more = len(self._places) and self._acceptor.is_open
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep) if more else None

    def close(self) -> None:
        """Let nobody in any more, and end all connections."""
        self._acceptor.close()
        if self._sweeping:
            self._sweeping.cancel()
        for visitor in list(self._visitors.values()):
            visitor.cut()
