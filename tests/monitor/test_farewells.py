"""The last words to guests that get no session here."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from gpuferry.monitor.door import guests
from gpuferry.monitor.door.guests import Farewells

CROWD = 20


def test_a_crowd_that_is_refused_in_one_go_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of a monitor, with its queue: all but the last 128 found their connections closed."""
    monkeypatch.setattr(guests, "FAREWELLS_MOST", 4)

    async def refuse(crowd: list[tuple[socket.socket, socket.socket]]) -> list[bytes]:
        farewells = Farewells()
        for ours, _ in crowd:
            farewells.send(ours, b"no")
        told = [theirs.recv(10, socket.MSG_DONTWAIT) for _, theirs in crowd]
        for _, theirs in crowd:
            theirs.close()
        await farewells.finish()
        return told

    with contextlib.ExitStack() as stack:
        crowd = [socket.socketpair() for _ in range(CROWD)]
        for pair in crowd:
            for end in pair:
                stack.enter_context(end)
        assert asyncio.run(refuse(crowd)) == [b"no"] * CROWD


def test_a_long_word_that_is_read_late_arrives_whole() -> None:
    async def tell() -> int:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            theirs.setblocking(False)
            farewells, read = Farewells(), 0
            farewells.send(ours, bytes(1 << 20))
            while part := await asyncio.get_running_loop().sock_recv(theirs, 1 << 16):
                read += len(part)
            theirs.close()
            await farewells.finish()
            return read

    assert asyncio.run(tell()) == 1 << 20
