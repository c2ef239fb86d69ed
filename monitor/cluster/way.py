"""The connection to another GPU server's guest port, in clear or over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from gpuferry.native.tls.shake import Shake
from gpuferry.native.tls.stream import Connection, TlsSocket

RECEIVE = 16 << 10


async def secure(connection: socket.socket, context: ssl.SSLContext, name: str) -> TlsSocket:
    """TLS from here on, with whoever proves to be `name`. Raises OSError."""
    loop = asyncio.get_running_loop()
    shake = Shake(context, name)
    came = b""
    while True:
        try:
            answer = shake.step(came)
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                await loop.sock_sendall(connection, shake.last_word())
            raise
        await loop.sock_sendall(connection, answer)
        if shake.done:
            return TlsSocket(connection, shake.records())
        came = await loop.sock_recv(connection, RECEIVE)
        if not came:
            raise ConnectionResetError("it closed the connection during the TLS handshake")


async def send(connection: Connection, frame: bytes) -> None:
    """Send a frame of a handshake, on a socket that does not wait."""
    if isinstance(connection, TlsSocket):
        connection.send(frame)
    else:
        await asyncio.get_running_loop().sock_sendall(connection, frame)


async def receive(connection: Connection, size: int) -> bytes:
    """Receive up to `size` bytes; none at the end."""
    loop = asyncio.get_running_loop()
    if not isinstance(connection, TlsSocket):
        return await loop.sock_recv(connection, size)
    while True:
        with contextlib.suppress(BlockingIOError):
            return connection.recv(size)
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(connection.fileno(), _tell, readable)
        try:
            await readable
        finally:
            loop.remove_reader(connection.fileno())


def _tell(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
