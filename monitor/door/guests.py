"""Talking to a guest before it has an API server: the handshake on a socket, and goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from gpuferry.native.tls.stream import Connection, TlsSocket
from gpuferry.specs._generated.frames import NONCE_SIZE, Header
from gpuferry.specs._generated.frames import Hello as HelloFrame

from ..service.waiting import within
from .handshake import (
    Claim,
    Hello,
    Proven,
    Refusal,
    Resume,
    accept_hello,
    first_frame,
    greeting,
    read_hello,
    read_resume,
    resume_key,
    server_proof,
)

FAREWELL_SECONDS = 2.0
FAREWELL_BYTES = 1 << 20
FAREWELLS_MOST = 128  # at once; whoever comes beyond has to read faster

log = structlog.get_logger()


@dataclass
class Guest:
    """A guest that proved itself and waits for WELCOME."""

    connection: Connection
    peer: str
    hello: Hello
    nonces: bytes  # the server's, then the guest's
    key: bytes = field(repr=False)  # the server proves itself with it
    invited: bool  # by a registry
    welcome_proof: bytes = field(repr=False)  # the server's own, with which WELCOME begins (32 bytes)

    def welcome(self, frame: bytes) -> None:
        """Send the WELCOME frame. A guest that does not take it is gone, as its API server will see."""
        try:
            sent = self.connection.send(frame, socket.MSG_DONTWAIT)
        except OSError:
            sent = 0
        if sent < len(frame):
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    @property
    def resume_key(self) -> bytes:
        """The session's key: with it the guest proves, when it comes again, that the session is its own."""
        return resume_key(self.key, self.nonces)


class Reception(Protocol):
    """Takes guests over from a listener: a monitor's broker, or a registry's redirector."""

    def arrive(self, guests: Sequence[Guest]) -> None:
        """These guests have shaken hands and proved who they are: from now on they are this object's."""

    def quiet(self) -> None:
        """No other guest is at the door."""

    def resume(self, connection: Connection, peer: str, resume: Resume) -> None:
        """A guest says that it lost the connection of a session."""

    def turn_away(self, connection: Connection, peer: str, refusal: Refusal) -> None:
        """A guest did not prove itself, or asks for what cannot be: it shall be told why."""


class Handshake:
    """GREETING out, HELLO or RESUME in, on one connection."""

    __slots__ = ("_data", "_error", "_nonce", "_wanted", "connection", "ends", "peer")

    def __init__(self, connection: Connection, peer: str, ends: float) -> None:
        self.connection = connection
        self.peer = peer
        self.ends = ends  # when it must be over
        self._nonce = os.urandom(NONCE_SIZE)
        self._data = b""
        self._error: OSError | None = None
        self._wanted = Header.SIZE + HelloFrame.SIZE
        try:  # noqa: SIM105 - suppress() would cost more than the frame
            connection.send(greeting(self._nonce), socket.MSG_DONTWAIT)
        except OSError:  # told again by the next read
            pass

    @property
    def can_be_told(self) -> bool:
        """Whether the guest would understand a REFUSED."""
        return True

    def late(self, limit: float) -> str:
        """Why it is refused, if it was not over within so many seconds."""
        return f"no complete HELLO within {limit:g} s"

    def receive(self) -> None:
        """Read what has come, without waiting."""
        try:
            # Never a byte more than HELLO, if it is one: what follows belongs to the API server.
            part = self.connection.recv(self._wanted - len(self._data), socket.MSG_DONTWAIT)
            if not part:
                raise ConnectionResetError("closed during the handshake")
            self._data += part
        except BlockingIOError:
            pass
        except OSError as error:
            self._error = error

    def read(self) -> Claim | Resume | None:
        """What the guest said, once that is complete; Refusal or OSError if it never will be."""
        if self._error:
            raise self._error
        if len(self._data) < Header.SIZE:
            return None
        self._wanted, resumes = first_frame(self._data)
        if len(self._data) < self._wanted:
            return None
        body = self._data[Header.SIZE : self._wanted]
        return read_resume(body, self._nonce) if resumes else read_hello(body, self._nonce)


def admit(connection: Connection, peer: str, claim: Claim, proven: Proven | None) -> Guest:
    """The Guest that made a claim; Refusal if nobody knows it, or it asks for what cannot be."""
    hello = accept_hello(claim, proven)
    assert proven
    proof = server_proof(proven.key, claim.server_nonce, hello.nonce)
    nonces = claim.server_nonce + hello.nonce
    return Guest(connection, peer, hello, nonces, proven.key, proven.invited, proof)


def address_of(peer: str) -> str:
    """The machine that a peer, HOST:PORT or unix, comes from."""
    return peer.rpartition(":")[0] or peer


async def _say_goodbye(guest: Connection, rest: bytes) -> None:
    loop = asyncio.get_running_loop()
    guest.setblocking(False)
    if isinstance(guest, TlsSocket):
        connection = guest.socket
        while rest:
            rest = rest[guest.send(rest) :]  # it has room for one more, or the guest does not read
    else:
        connection = guest
        await loop.sock_sendall(connection, rest)
    connection.shutdown(socket.SHUT_WR)
    # Closing with unread bytes would reset the connection, and the guest might lose the text.
    left = FAREWELL_BYTES
    while left > 0 and (part := await loop.sock_recv(connection, 4096)):
        left -= len(part)


async def _dismiss(connection: Connection, rest: bytes) -> None:
    """Send what is left of a last frame (REFUSED or REDIRECT) so that it arrives, then close."""
    with contextlib.closing(connection), contextlib.suppress(OSError, asyncio.TimeoutError):
        await within(FAREWELL_SECONDS, _say_goodbye(connection, rest))


class Farewells:
    """Last frames on their way, in the background."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], Connection] = {}  # oldest first

    def send(self, connection: Connection, frame: bytes) -> None:
        """Send a last frame, at once as far as nobody has to wait: a crowd is refused in one go, and is more
        than are waited for. Takes the connection over.
        """
        try:
            sent = connection.send(frame, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError:  # it has gone
            connection.close()
            return
        if len(self._tasks) >= FAREWELLS_MOST:
            oldest = next(iter(self._tasks))
            self._tasks.pop(oldest).close()
            oldest.cancel()
        task = asyncio.ensure_future(_dismiss(connection, frame[sent:]))
        self._tasks[task] = connection
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        if connection := self._tasks.pop(task, None):
            connection.close()

    async def finish(self) -> None:
        """Wait until all last frames have arrived, or were given up."""
        if self._tasks:
            await asyncio.wait(self._tasks)
