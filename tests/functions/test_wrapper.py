"""What a replica's process does, within this one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.functions.process import Process
from gpuferry.monitor.functions.wrapper import HEAD, Replica, Request

from .serving import gone


@pytest.fixture
def replica() -> Iterator[tuple[Replica, socket.socket]]:
    """And the server's end of its socket."""
    ours, theirs = socket.socketpair()
    orders, ordered = os.pipe()
    with ours:
        made = Replica({"socket": theirs.detach(), "orders": orders})
        yield made, ours
        made._socket.close()
        made._orders.close()
        if made._loop:
            made._loop.close()
        os.close(ordered)


def request(number: int) -> Request:
    return Request({"id": number, "method": "GET", "path": "", "query": {}, "headers": []}, b"")


def test_who_has_gone_while_its_request_was_on_its_way_is_told_of(
    replica: tuple[Replica, socket.socket],
) -> None:
    """A large body takes a while. Its handler worked for nobody, until its time was over."""
    made, _ = replica
    seen = []
    made._handle = lambda one: seen.append(one.cancelled)
    made._cancel(7)
    for number in (7, 8):
        made._answer(request(number))
    assert seen == [True, False]


def test_so_is_a_coroutine(replica: tuple[Replica, socket.socket]) -> None:
    made, server = replica

    async def handle(_: Request) -> None:
        await asyncio.sleep(3600)

    made._handle = handle
    made._cancel(7)
    answering = threading.Thread(target=made._answer, args=(request(7),), daemon=True)
    answering.start()
    said = b""
    while b"CancelledError" not in said:
        said += server.recv(1 << 16)
    answering.join()
    assert HEAD.size < len(said)


def test_a_process_that_nobody_can_watch_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no descriptors left it ran on, and its pipes stayed open."""
    pids, pipes, make_pipe = [], [], os.pipe

    def pipe() -> tuple[int, int]:
        ends = make_pipe()
        pipes.append(os.fstat(ends[0]).st_ino)
        return ends

    def none_left(pid: int) -> int:
        pids.append(pid)
        raise OSError(24, "Too many open files")

    async def start() -> None:
        said: dict[str, Any] = {"memory": 0, "command": ["sleep", "3600"]}
        Process(said, dict(os.environ), "", "/", (), lambda *_: None)

    monkeypatch.setattr(os, "pidfd_open", none_left)
    monkeypatch.setattr(os, "pipe", pipe)
    with pytest.raises(OSError, match="Too many open files"):
        asyncio.run(start())
    assert gone(pids[0])
    assert pipes
    assert not open_files() & {f"pipe:[{inode}]" for inode in pipes}


def open_files() -> set[str]:
    """What this process has open. Others in it may open and close meanwhile."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(each))
    return found
