"""Talking to a guest before it has an API server: the handshake on a socket, and goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from dataclasses import dataclass

from .handshake import HEADER, Hello, Reason, Refusal, check_hello, greeting, hello_body_size, server_proof

FAREWELL_SECONDS = 2.0
FAREWELL_BYTES = 1 << 20


@dataclass(frozen=True)
class Guest:
    """A guest that proved itself and waits for WELCOME."""

    connection: socket.socket
    peer: str
    hello: Hello
    welcome_proof: bytes


def prepare(connection: socket.socket) -> None:
    """Settings that stay with the connection when it is handed over."""
    connection.setblocking(False)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A guest machine that vanishes says nothing; without this its session would live for ever.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, 15),
            (socket.TCP_KEEPINTVL, 5),
            (socket.TCP_KEEPCNT, 3),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


async def _read_exactly(connection: socket.socket, size: int) -> bytes:
    """Never a byte more: what follows belongs to the API server."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        part = await loop.sock_recv(connection, size - len(data))
        if not part:
            raise ConnectionResetError("closed during the handshake")
        data += part
    return data


async def _exchange(connection: socket.socket, nonce: bytes) -> bytes:
    """GREETING out, the body of HELLO in."""
    await asyncio.get_running_loop().sock_sendall(connection, greeting(nonce))
    header = await _read_exactly(connection, HEADER.size)
    return await _read_exactly(connection, hello_body_size(header))


async def shake_hands(connection: socket.socket, peer: str, token: bytes, limit: float) -> Guest:
    """A Guest; or Refusal, which the guest should be told; or OSError, when there is nobody to tell."""
    nonce = secrets.token_bytes(32)
    try:
        body = await asyncio.wait_for(_exchange(connection, nonce), limit)
    except asyncio.TimeoutError:
        raise Refusal(Reason.MALFORMED, f"no complete HELLO within {limit:g} s") from None
    hello = check_hello(body, nonce, token)
    return Guest(connection, peer, hello, server_proof(token, nonce, hello.nonce))


async def _say_goodbye(connection: socket.socket, frame: bytes) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, frame)
    connection.shutdown(socket.SHUT_WR)
    # Closing with unread bytes would reset the connection, and the guest might lose the text.
    left = FAREWELL_BYTES
    while left > 0 and (part := await loop.sock_recv(connection, 4096)):
        left -= len(part)


async def refuse(connection: socket.socket, refusal: Refusal) -> None:
    """Send REFUSED so that it arrives, then close."""
    with contextlib.closing(connection), contextlib.suppress(OSError, asyncio.TimeoutError):
        await asyncio.wait_for(_say_goodbye(connection, refusal.frame()), FAREWELL_SECONDS)
