"""Opens the file into which a session is suspended, for its API server, which sees no files, and names it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import structlog
from gpuferry.migration.errors import MigrationError
from gpuferry.migration.place import ExistingFile, NewFile, existing

from .migration import CannotMove

WORD_MOST = 64
LOOK_SECONDS = 1.0  # between two looks how large a file has become

log = structlog.get_logger()
_tasks = set[asyncio.Task[None]]()


class Writer(Protocol):
    """The process that writes a file."""

    over: asyncio.Event  # it is gone

    @property
    def trusted(self) -> bool:
        """Whether it has the file open no longer than it says."""

    def kill(self) -> None:
        """End the process at once, whatever it is doing."""


@contextlib.contextmanager
def new_file(path: str, writer: Writer, most: int) -> Iterator[tuple[socket.socket, NewFile]]:
    """A new file, and the socket on which its writer says when it is complete: both go beside the order. A
    file that was not completed is gone with its writer; who makes it larger than `most` bytes is ended.
    Raises CannotMove.
    """
    try:
        file = NewFile(Path(path))
    except MigrationError as error:
        raise CannotMove(error.reason) from None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    task = asyncio.ensure_future(_keep(ours, file, writer, most))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    with theirs:
        yield theirs, file


async def _keep(end: socket.socket, file: NewFile, writer: Writer, most: int) -> None:
    """Oblige the writer, and look after the file for as long as it may have it open."""
    serving = asyncio.ensure_future(_serve(end, file))
    over = asyncio.ensure_future(writer.over.wait())
    try:
        while not over.done():
            if file.size > most:
                log.error("a session's file is larger than the session", path=str(file.path), bytes=file.size)
                await asyncio.to_thread(file.empty)
                writer.kill()
                break
            waiting = {over} if serving.done() else {over, serving}
            await asyncio.wait(waiting, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await asyncio.to_thread(file.discard)
                if writer.trusted:
                    break
        await serving  # it ends with the process
        await asyncio.to_thread(file.discard)  # gigabytes, of which a disk may take its time
    finally:
        over.cancel()
        serving.cancel()
        file.close()


async def _serve(end: socket.socket, file: NewFile) -> None:
    loop = asyncio.get_running_loop()
    with end, contextlib.suppress(OSError):
        while word := await loop.sock_recv(end, WORD_MOST):
            await loop.sock_sendall(end, await asyncio.to_thread(file.oblige, word))


def old_file(path: str) -> ExistingFile:
    """The file of a suspended session, to go beside the order. Raises CannotMove."""
    try:
        return existing(Path(path))
    except MigrationError as error:
        raise CannotMove(error.reason) from None
