"""Opens the file into which a session is suspended, for its API server, which sees no files, and names it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from gpuferry.migration.errors import MigrationError
from gpuferry.migration.place import ExistingFile, NewFile, existing

from .migration import CannotMove

WORD_MOST = 64

_tasks = set[asyncio.Task[None]]()


@contextlib.contextmanager
def new_file(path: str) -> Iterator[tuple[socket.socket, NewFile]]:
    """A new file, and the socket on which its writer says when it is complete: both go beside the order. A
    file that was not completed is gone with its writer. Raises CannotMove.
    """
    try:
        file = NewFile(Path(path))
    except MigrationError as error:
        raise CannotMove(error.reason) from None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    task = asyncio.ensure_future(_serve(ours, file))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    with theirs:
        yield theirs, file


async def _serve(end: socket.socket, file: NewFile) -> None:
    loop = asyncio.get_running_loop()
    try:
        with end, contextlib.suppress(OSError):
            while word := await loop.sock_recv(end, WORD_MOST):
                await loop.sock_sendall(end, await asyncio.to_thread(file.oblige, word))
    finally:
        file.close()


def old_file(path: str) -> ExistingFile:
    """The file of a suspended session, to go beside the order. Raises CannotMove."""
    try:
        return existing(Path(path))
    except MigrationError as error:
        raise CannotMove(error.reason) from None
