"""A guest in Python that proves itself in every way there is, and follows redirects."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
from dataclasses import dataclass, field
from typing import Any

import pytest
from gpuferry.monitor.door import handshake
from gpuferry.monitor.door.tokens import proof
from gpuferry.specs._generated import frames, wire

from tests.monitor.fake_guest import Refused, connect, read_exactly, read_frame, read_greeting

__all__ = ["Guest", "Identity", "Redirect", "Refused", "ask", "redirect_of"]


@dataclass
class Identity:
    """A token, or a ticket with its session key."""

    token: str = ""
    tenant: str = ""
    ticket: bytes = b""
    session_key: bytes = b""

    def prove(self, message: bytes) -> bytes:
        if self.ticket:
            return hmac.digest(self.session_key, message, hashlib.sha256)
        if proof.tenant_of(self.token):
            return proof.prove(self.token, message)
        return hmac.digest(self.token.encode(), message, hashlib.sha256)

    @property
    def key(self) -> bytes:
        if self.ticket:
            return self.session_key
        return proof.server_key(self.token) if proof.tenant_of(self.token) else self.token.encode()


@dataclass
class Redirect(Exception):
    address: str
    ticket: bytes
    session_key: bytes
    proven: bool


@dataclass
class Request:
    """What goes into HELLO."""

    labels: str = ""
    memory: int = 0
    function: str = ""
    devices: int = 1
    extra: bytes = b""
    resumable: bool = False


@dataclass
class Asked:
    """A handshake that brought a session, and what went over the wire."""

    connection: socket.socket
    welcome: bytes
    proven: bool
    sent: bytes = field(repr=False, default=b"")


def extension(kind: handshake.Extension, value: bytes) -> bytes:
    return handshake.extension(kind, value) if value else b""


def hello(identity: Identity, server_nonce: bytes, nonce: bytes, request: Request) -> bytes:
    tenant = (proof.tenant_of(identity.token) or identity.tenant).encode()
    flags = frames.HelloFlag.RESUMABLE if request.resumable else 0
    fields = (
        frames.PROTOCOL_VERSION,
        flags,
        wire.SPEC_HASH,
        nonce,
        os.getpid(),
        request.memory,
        request.devices,
    )
    fixed = frames.Hello.LAYOUT.pack(*fields, tenant, request.function.encode(), b"fake", b"")[:-32]
    extensions = (
        extension(handshake.Extension.TICKET, identity.ticket)
        + extension(handshake.Extension.LABELS, request.labels.encode())
        + request.extra
    )
    proven = identity.prove(handshake.guest_message(server_nonce, nonce, fixed + extensions))
    body = fixed + proven + extensions
    return frames.frame(frames.Frame.HELLO, body)


def ask(address: str, identity: Identity, request: Request, recorded: bytes = b"") -> Asked:
    """One handshake: a session, or Redirect or Refused. `recorded` is sent instead of a HELLO of its own."""
    connection = connect(address)
    try:
        server_nonce, nonce = read_greeting(connection), secrets.token_bytes(32)
        sent = recorded or hello(identity, server_nonce, nonce, request)
        connection.sendall(sent)
        op, body = read_frame(connection)
        while op == frames.Frame.QUEUED:
            op, body = read_frame(connection)
        if op == frames.Frame.REFUSED:
            reason, error = frames.Refused.unpack(body)
            raise Refused(reason, error, body[8:].decode())
        nonces = server_nonce + nonce
        if op == frames.Frame.REDIRECT:
            raise read_redirect(body, identity.key, nonces)
        assert op == frames.Frame.WELCOME
        read_exactly(connection, 4)  # the fake API server's process id, its first words
        expected = handshake.server_proof(identity.key, server_nonce, nonce)
        return Asked(connection, body, body[:32] == expected, sent)
    except BaseException:
        connection.close()
        raise


def read_redirect(body: bytes, key: bytes, nonces: bytes) -> Redirect:
    given, hidden, ticket_size, address_size = frames.Redirect.unpack(body)
    rest = body[frames.Redirect.SIZE :]
    assert len(rest) == ticket_size + address_size
    mask = hmac.digest(key, frames.KEY_REDIRECT + nonces, hashlib.sha256)
    session_key = bytes(a ^ b for a, b in zip(hidden, mask, strict=True))
    expected = hmac.digest(key, frames.PROOF_REDIRECT + nonces + body[32:], hashlib.sha256)
    return Redirect(rest[ticket_size:].decode(), rest[:ticket_size], session_key, given == expected)


def redirect_of(address: str, identity: Identity, request: Request | None = None) -> Redirect:
    """Where a registry sends this guest."""
    with pytest.raises(Redirect) as caught:
        ask(address, identity, request or Request())
    assert caught.value.proven
    return caught.value


def follow(address: str, identity: Identity, request: Request) -> tuple[str, Asked]:
    """To a session, by way of a registry if there is one; and where it is."""
    try:
        asked = ask(address, identity, request)
    except Redirect as redirect:
        address, proven = redirect.address, redirect.proven
        ticket = Identity(identity.token, identity.tenant, redirect.ticket, redirect.session_key)
        asked = ask(address, ticket, request)
        asked.proven &= proven
    assert asked.proven
    return address, asked


class Guest:
    """A session, perhaps by way of a registry."""

    def __init__(self, address: str, token: str, tenant: str = "", **wishes: Any) -> None:
        request = Request(**wishes)
        self.server, found = follow(address, Identity(token, tenant), request)
        self.connection, self.sent = found.connection, found.sent

    def echo(self, data: bytes) -> bytes:
        self.connection.sendall(data)
        return read_exactly(self.connection, len(data))

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
