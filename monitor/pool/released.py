"""API servers that a monitor of release 0.1 started: they have no jail, and all know one secret.

Nobody else comes in here: a monitor opens the door only where a monitor of that release was before it.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import structlog
from gpuferry.specs._generated import node_pb2

from ..service.processes import start_time
from ..service.rates import Sparing
from ..service.waiting import within
from .channel import Channel, ChannelBroken, listen
from .returns import Record

DOOR = "node.sock"
INTRODUCTION_SECONDS = 5.0
PAUSE_SECONDS = 0.1  # when there are no descriptors
PEER = struct.Struct("3i")  # struct ucred

log = structlog.get_logger()


class Door:
    """A socket where API servers of release 0.1 come back; they must know its secret."""

    def __init__(
        self,
        runtime: Path,
        secret: bytes,
        grace: float,
        adopt: Callable[[Channel, Record, node_pb2.Returned, node_pb2.Home], None],
    ) -> None:
        path = runtime / DOOR
        path.unlink(missing_ok=True)
        self._home = node_pb2.Home(path=str(path), secret=secret, grace_seconds=grace)
        self._adopt = adopt
        self._listening = listen(path)
        self._listening.setblocking(False)
        self._complaints = Sparing(log.warning)

    async def run(self) -> None:
        """Let API servers in, until cancelled."""
        with self._listening:
            while True:
                try:
                    end, _ = await asyncio.get_running_loop().sock_accept(self._listening)
                except OSError as error:  # out of descriptors, say: they come again
                    self._complaints.say("accept failed", "adoption", error=str(error))
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                await self._visit(end)

    async def _visit(self, end: socket.socket) -> None:
        channel = Channel(end)
        try:
            pid, user, _ = PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
            message = await within(INTRODUCTION_SECONDS, channel.receive())
            returned = message.returned if message else node_pb2.Returned()
            if user != os.getuid() or not hmac.compare_digest(returned.secret, self._home.secret):
                raise ChannelBroken("not one of ours")
            self._adopt(channel, Record("", pid, start_time(pid), pid), returned, self._home)
        except (ChannelBroken, OSError, asyncio.TimeoutError) as error:
            self._complaints.say("a stranger came for adoption", "stranger", reason=str(error))
            channel.close()
