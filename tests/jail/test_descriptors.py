"""Descriptors that one process of ours sends to another are for that one, not for a child that it starts."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from gpuferry.apiserver.control import Control
from gpuferry.migration import handover
from gpuferry.monitor.arbiter.process import Process
from gpuferry.monitor.policy.sharing import Sharing
from gpuferry.monitor.pool.channel import Channel
from gpuferry.specs._generated import handover_pb2, node_pb2


def by_monitor(end: socket.socket) -> list[int]:
    async def first() -> list[int]:
        channel = Channel(end)
        assert await channel.receive()
        return [each.fileno() for each in channel.beside]

    return asyncio.run(first())


def by_api_server(end: socket.socket) -> list[int]:
    control = Control(os.dup(end.fileno()), frozenset({"home"}))
    _, given = control.receive()
    control._socket.close()
    return given


def by_keeper(end: socket.socket) -> list[int]:
    taken = handover.take(end)
    assert taken
    return [each.detach() for each in taken[1]]


def by_arbiter(end: socket.socket) -> list[int]:
    given: list[int] = []

    class Obedient(Process):
        def _do(self, order: Mapping[str, Any], files: list[int]) -> None:
            given.extend(files)

    Obedient(end, Sharing(), 0, False)._obey()
    return given


@pytest.mark.parametrize(
    ("received", "message"),
    [
        (by_monitor, node_pb2.FromServer(stats=node_pb2.Stats()).SerializeToString()),
        (by_api_server, node_pb2.ToServer(home=node_pb2.Home(grace_seconds=1)).SerializeToString()),
        (by_keeper, handover_pb2.Handover(session=1).SerializeToString()),
        (by_arbiter, b'{"do": "add"}'),
    ],
)
def test_no_child_gets_them(received: Callable[[socket.socket], list[int]], message: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(theirs, [message], [theirs.fileno()])
        (number,) = received(ours)
        try:
            assert not os.get_inheritable(number)
        finally:
            os.close(number)
