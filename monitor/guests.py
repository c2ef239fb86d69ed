"""Talking to a guest before it has an API server: the handshake on a socket, and goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from .credentials import Authority
from .handshake import (
    HEADER,
    CudaError,
    Hello,
    Reason,
    Refusal,
    accept_hello,
    greeting,
    hello_body_size,
    read_hello,
    server_proof,
)
from .store.interface import StoreError

FAREWELL_SECONDS = 2.0
FAREWELL_BYTES = 1 << 20

log = structlog.get_logger()


@dataclass(frozen=True)
class Guest:
    """A guest that proved itself and waits for WELCOME."""

    connection: socket.socket
    peer: str
    hello: Hello
    nonces: bytes  # the server's, then the guest's
    key: bytes = field(repr=False)  # the server proves itself with it
    invited: bool  # by a registry

    @property
    def welcome_proof(self) -> bytes:
        """What WELCOME begins with."""
        return server_proof(self.key, self.nonces[:32], self.nonces[32:])


class Reception(Protocol):
    """Who takes guests from a listener."""

    def arrive(self, guest: Guest) -> None:
        """A guest proved itself."""

    def turn_away(self, connection: socket.socket, peer: str, refusal: Refusal) -> None:
        """A guest did not; it shall be told why."""


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


async def shake_hands(connection: socket.socket, peer: str, authority: Authority, limit: float) -> Guest:
    """A Guest; or Refusal, which the guest should be told; or OSError, when there is nobody to tell."""
    nonce = secrets.token_bytes(32)
    try:
        body = await asyncio.wait_for(_exchange(connection, nonce), limit)
    except asyncio.TimeoutError:
        raise Refusal(Reason.MALFORMED, f"no complete HELLO within {limit:g} s") from None
    claim = read_hello(body, nonce)
    try:
        proven = authority.at_once(claim) or await authority.judge(claim)
    except StoreError as error:
        log.error("tokens cannot be checked", error=str(error))
        raise Refusal(
            Reason.NO_CAPACITY, "tokens cannot be checked at the moment", CudaError.SYSTEM_NOT_READY
        ) from None
    hello = accept_hello(claim, proven)
    assert proven
    return Guest(connection, peer, hello, nonce + hello.nonce, proven.key, proven.invited)


async def _say_goodbye(connection: socket.socket, frame: bytes) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, frame)
    connection.shutdown(socket.SHUT_WR)
    # Closing with unread bytes would reset the connection, and the guest might lose the text.
    left = FAREWELL_BYTES
    while left > 0 and (part := await loop.sock_recv(connection, 4096)):
        left -= len(part)


async def dismiss(connection: socket.socket, frame: bytes) -> None:
    """Send a last frame, REFUSED or REDIRECT, so that it arrives, then close."""
    with contextlib.closing(connection), contextlib.suppress(OSError, asyncio.TimeoutError):
        await asyncio.wait_for(_say_goodbye(connection, frame), FAREWELL_SECONDS)


class Farewells:
    """Last frames on their way, in the background."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, connection: socket.socket, frame: bytes) -> None:
        """Takes the connection over."""
        task = asyncio.ensure_future(dismiss(connection, frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Until all have arrived, or were given up."""
        if self._tasks:
            await asyncio.wait(self._tasks)
