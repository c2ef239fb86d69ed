"""The guest's side of the handshake, in Python."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any

from gpuferry.guest.endpoint import split_address
from gpuferry.monitor.door import handshake
from gpuferry.specs._generated import frames, wire


@dataclass
class Refused(Exception):
    reason: int
    cuda_error: int
    text: str


def connect(address: str, timeout: float = 120.0) -> socket.socket:
    target = split_address(address)
    family = socket.AF_UNIX if isinstance(target, str) else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    connection.connect(target)
    return connection


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError(f"closed after {len(data)} of {size} bytes")
        data += part
    return data


def read_frame(connection: socket.socket) -> tuple[int, bytes]:
    size, op, *_ = frames.Header.LAYOUT.unpack(read_exactly(connection, frames.Header.SIZE))
    return op, read_exactly(connection, size - frames.Header.SIZE)


def read_greeting(connection: socket.socket) -> bytes:
    op, body = read_frame(connection)
    magic, version, _, nonce = frames.Greeting.unpack(body)
    assert (op, magic, version) == (frames.Frame.GREETING, frames.MAGIC, frames.PROTOCOL_VERSION)
    return bytes(nonce)


def hello_frame(server_nonce: bytes, token: str, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "version": frames.PROTOCOL_VERSION,
        "spec": wire.SPEC_HASH,
        "nonce": secrets.token_bytes(32),
        "pid": os.getpid(),
        "memory": 0,
        "devices": 1,
        "tenant": b"",
        "function": b"",
        "program": b"fake",
        "extensions": {},
        "tail": b"",
    } | changes
    extensions = b"".join(handshake.extension(kind, value) for kind, value in fields["extensions"].items())
    extensions += fields["tail"]
    unproven = frames.Hello.LAYOUT.pack(
        fields["version"],
        0,
        *(
            fields[name]
            for name in ("spec", "nonce", "pid", "memory", "devices", "tenant", "function", "program")
        ),
        b"",
    )[:-32]
    proof = handshake.guest_proof(token.encode(), server_nonce, fields["nonce"], unproven + extensions)
    body = unproven + proof + extensions
    hello: bytes = frames.frame(frames.Frame.HELLO, body)[: frames.Header.SIZE] + body
    return hello


def outcome(connection: socket.socket) -> bytes:
    """The body of WELCOME, or Refused."""
    op, body = read_frame(connection)
    while op == frames.Frame.QUEUED:
        op, body = read_frame(connection)
    if op == frames.Frame.REFUSED:
        reason, error = frames.Refused.unpack(body)
        raise Refused(reason, error, body[8:].decode())
    assert op == frames.Frame.WELCOME
    return body


class FakeGuest:
    """A session: what WELCOME said, and what the fake API server echoes."""

    def __init__(self, address: str, token: str, meet: bool = True, **changes: Any) -> None:
        self.connection = connect(address)
        self.server_pid = 0
        try:
            server_nonce = read_greeting(self.connection)
            nonce = secrets.token_bytes(32)
            self.connection.sendall(hello_frame(server_nonce, token, nonce=nonce, **changes))
            body = outcome(self.connection)
            if meet:
                self.meet()
        except BaseException:
            self.connection.close()
            raise
        self.key = handshake.resume_key(token.encode(), server_nonce + nonce)
        self.welcome = body
        self.proven = body[:32] == handshake.server_proof(token.encode(), server_nonce, nonce)
        self.number, self.quota = (int.from_bytes(body[at : at + 8], "little") for at in (32, 56))

    def meet(self) -> None:
        """Its API server says first who it is."""
        self.server_pid = int.from_bytes(read_exactly(self.connection, 4), "little")

    def echo(self, data: bytes) -> bytes:
        self.connection.sendall(data)
        return read_exactly(self.connection, len(data))

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> FakeGuest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
