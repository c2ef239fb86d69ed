"""How API servers outlive their monitor: a ledger for the next one, and the door by which they come back."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import structlog
from gpuferry.specs._generated import node_pb2

from ..service.rates import Sparing
from ..service.runtime import RuntimeDirectory
from ..service.waiting import within
from .channel import Channel, ChannelBroken, listen, peer

LEDGER, DOOR = "ledger", "node.sock"
BLOCK = 1000  # session numbers that are reserved at once
UNKNOWN = 1 << 50  # beyond what a monitor ever counts to
INTRODUCTION_SECONDS = 5.0
VISITS_MOST = 1024  # at once: API servers introduce themselves within milliseconds
PAUSE_SECONDS = 0.1  # when there are no descriptors
RETURN_SECONDS = 0.5  # in which API servers that are there come back; they look every 50 ms
LATEST_RETURN_SECONDS = 30.0  # on a machine that has much else to do

log = structlog.get_logger()


class Ledger:
    """What the next monitor must know. It is there exactly while this one runs, or after it was killed."""

    def __init__(self, runtime: RuntimeDirectory) -> None:
        self._runtime = runtime
        try:
            left = json.loads((runtime.path / LEDGER).read_text())
            self.secret, first = bytes.fromhex(left["secret"]), int(left["sessions"])
            self.inherited = True  # an earlier monitor was killed
        except FileNotFoundError:
            self.secret, first = secrets.token_bytes(32), 1
            self.inherited = False
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Nobody knows how far it went. No monitor counts that far, so no number is given twice.
            log.error("the ledger cannot be read: sessions of an earlier monitor are lost", error=str(error))
            self.secret, first = secrets.token_bytes(32), UNKNOWN + secrets.randbelow(UNKNOWN)
            self.inherited = False
        self._next = self._reserved = first
        self._failing = False

    def next_session(self) -> int | None:
        """A number that no session of this or an earlier monitor has; None: the ledger cannot be written, and
        all numbers that it promises were given.
        """
        if self._next + BLOCK // 2 >= self._reserved:
            self._try_to_reserve()
        if self._next >= self._reserved:
            return None
        self._next += 1
        return self._next - 1

    def _try_to_reserve(self) -> None:
        """Long before the numbers run out, so that a disk that is full for a while keeps nobody out."""
        try:
            self.reserve_numbers()
        except OSError as error:
            if not self._failing:
                left = self._reserved - self._next
                log.error("the ledger cannot be written", error=str(error), numbers_left=left)
            self._failing = True
        else:
            self._failing = False

    def reserve_numbers(self) -> None:
        """Write down how far session numbers may go, so that the next monitor gives none of them twice.
        Raises OSError, and nothing has changed.
        """
        reserved = self._reserved + BLOCK
        content = {"secret": self.secret.hex(), "sessions": reserved}
        self._runtime.publish(LEDGER, json.dumps(content) + "\n")
        self._reserved = reserved


class Door:
    """Where API servers of an earlier monitor come back; lets in those that know the secret."""

    def __init__(
        self, path: Path, secret: bytes, adopt: Callable[[Channel, int, node_pb2.Returned], None]
    ) -> None:
        self.path = path
        self._secret = secret
        self._adopt = adopt
        self._listening = listen(path)
        self._visits: dict[asyncio.Task[None], socket.socket] = {}  # oldest first
        self._complaints = Sparing(log.warning)

    async def serve(self) -> None:
        """Let API servers in, until cancelled."""
        while True:
            try:
                end, _ = await asyncio.get_running_loop().sock_accept(self._listening)
            except OSError as error:  # out of descriptors, say: they come again
                self._complaints.say("accept failed", "adoption", error=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if len(self._visits) >= VISITS_MOST:
                next(iter(self._visits)).cancel()
            task = asyncio.ensure_future(self._visit(end))
            self._visits[task] = end
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        end = self._visits.pop(task)
        if task.cancelled():
            end.close()

    async def _visit(self, end: socket.socket) -> None:
        channel = Channel(end)
        try:
            pid, user = peer(end)
            message = await within(INTRODUCTION_SECONDS, channel.receive())
            returned = message.returned if message else node_pb2.Returned()
            if user != os.getuid() or not hmac.compare_digest(returned.secret, self._secret):
                raise ChannelBroken("not one of ours")
            self._adopt(channel, pid, returned)
        except (ChannelBroken, OSError, asyncio.TimeoutError) as error:
            self._complaints.say("a stranger came for adoption", "stranger", reason=str(error))
            channel.close()

    def close(self) -> None:
        """Let nobody in any more."""
        for task in self._visits:
            task.cancel()
        self._listening.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
