"""Asks another GPU server whether a session arrived there, for a keeper, which has no network."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

from gpuferry.migration import follow
from gpuferry.specs._generated import migration_pb2

ASK_SECONDS = 30.0  # until nobody knows
PAUSE = 0.2

_tasks = set[asyncio.Task[None]]()


@contextlib.contextmanager
def inquiries(remote: migration_pb2.RemoteTarget) -> Iterator[socket.socket]:
    """A socket for a keeper. For each byte that it writes there it gets one: y, or n if the session of this
    target is not there, or nobody knows.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    task = asyncio.ensure_future(_serve(ours, remote))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    with theirs:
        yield theirs


async def _serve(end: socket.socket, remote: migration_pb2.RemoteTarget) -> None:
    loop = asyncio.get_running_loop()
    with end, contextlib.suppress(OSError):
        while await loop.sock_recv(end, 1):
            await loop.sock_sendall(end, b"y" if await _arrived(remote) else b"n")


async def _arrived(remote: migration_pb2.RemoteTarget) -> bool:
    session = follow.session_of(remote.welcome)
    until = time.monotonic() + ASK_SECONDS
    while time.monotonic() < until:
        found = await asyncio.to_thread(follow.ask, remote.address, remote.key, session, remote.authority)
        if found is not None:
            return found
        await asyncio.sleep(PAUSE)
    return False
