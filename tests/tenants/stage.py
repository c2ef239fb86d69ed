"""Tokens and guests of several tenants at one monitor."""

from __future__ import annotations

import asyncio
import secrets
import socket
from pathlib import Path
from typing import Any

import grpc
from gpuferry.monitor.door.tokens import proof
from gpuferry.monitor.door.tokens.book import TokenBook, new_record
from gpuferry.monitor.settings.folders import STORE
from gpuferry.monitor.store.sqlite import SqliteStore
from gpuferry.specs._generated import frames

from tests.monitor import harness
from tests.monitor.fake_guest import connect, read_frame, read_greeting
from tests.registry.guest import Identity, Request, hello


def tokens(monitor: harness.Monitor, *tenants: str) -> dict[str, str]:
    """A new token for each tenant."""
    made = {tenant: proof.make(tenant) for tenant in tenants}

    async def main() -> None:
        store = SqliteStore(Path(f"{monitor.runtime}-state", STORE))
        for token in made.values():
            await TokenBook(store).add(new_record(token))
        await store.close()

    asyncio.run(main())
    return made


def waiting(monitor: harness.Monitor, token: str, **wishes: Any) -> tuple[socket.socket, int, bytes]:
    """A guest that said HELLO, and the first that it is told: the operation, and its body."""
    connection = connect(monitor.tcp)
    nonce = read_greeting(connection)
    connection.sendall(hello(Identity(token), nonce, secrets.token_bytes(32), Request(**wishes)))
    op, body = read_frame(connection)
    return connection, op, body


def next_frame(connection: socket.socket) -> tuple[int, bytes]:
    """The next thing that a waiting guest is told, but for its place in the queue."""
    op, body = read_frame(connection)
    while op == frames.Frame.QUEUED:
        op, body = read_frame(connection)
    return op, body


def as_tenant(token: str) -> Any:
    """The metadata of calls with this token."""
    return (("authorization", f"Bearer {token}"),)


def code_of(call: Any, request: Any, token: str) -> tuple[grpc.StatusCode, str]:
    """How a call with this token ends that must fail."""
    try:
        answer = call(request, metadata=as_tenant(token), timeout=harness.DEADLINE)
        if hasattr(answer, "cancel"):
            next(iter(answer))
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("the call was answered")
