"""Orders to API servers about their sessions' memory, and what they answer, be it late."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from gpuferry.specs._generated import node_pb2

from ..pool.api_server import ApiServer
from ..pool.channel import ChannelBroken
from .books import Entry
from .files import CopyFile

ANSWER_SECONDS = 120.0  # for an order, then its API server is ended
IN_LINE_SECONDS = 3.0  # that those who wish for room wait for an answer
BYTES_PER_SECOND = 64 << 20  # of a slow disk: where there is to copy, both are longer
OVER = "the session is over"  # says an API server that has it no more

log = structlog.get_logger()


@dataclass(eq=False)
class _Given:
    """An order that was not answered yet. Whoever gave one that is late waits for it no longer."""

    entry: Entry
    hears: Callable[[node_pb2.Resides], None] | None  # of a late answer
    answer: asyncio.Future[node_pb2.Resides]
    late: bool = False


class Orders:
    """Those that were given and not answered yet, on the event loop's thread. `note` hears of each answer
    before anything else of the API server is heard, and whether it is late.
    """

    def __init__(
        self, servers: Mapping[int, ApiServer], note: Callable[[Entry, node_pb2.Resides, bool], None]
    ) -> None:
        self._servers = servers  # by key
        self._note = note
        # Another monitor's orders may be under way, whose answers shall not be taken for answers to ours.
        self._numbers = itertools.count(secrets.randbelow(1 << 31) + 1)
        # By key of the API server that was asked, and number: nobody answers for another.
        self._given: dict[tuple[int, int], _Given] = {}
        self._watches: set[asyncio.Task[None]] = set()

    async def give(
        self,
        entry: Entry,
        files: Sequence[CopyFile] = (),
        size: int = 0,
        hurry: bool = False,
        *,
        late: Callable[[node_pb2.Resides], None] | None = None,
        leave: node_pb2.Leave | None = None,
        come_back: node_pb2.ComeBack | None = None,
        allow: node_pb2.Allow | None = None,
        forget: node_pb2.Forget | None = None,
        demote: node_pb2.Demote | None = None,
    ) -> node_pb2.Resides | None:
        """Give an order, for which `size` bytes at most must be copied. Returns what the API server says of
        it; None: it is gone, or late. `hurry`: others wait in line, and what is said after their time is
        noted all the same; `late` hears of that too.
        """
        server = self._servers.get(entry.server)
        if server is None:
            return None
        number = next(self._numbers)
        for order in (leave, come_back, allow, forget, demote):
            if order is not None:
                order.number = number
        message = node_pb2.ToServer(
            leave=leave, come_back=come_back, allow=allow, forget=forget, demote=demote
        )
        given = _Given(entry, late, asyncio.get_running_loop().create_future())
        self._given[entry.server, number] = given
        try:
            server.send(message, *files)
        except ChannelBroken:
            del self._given[entry.server, number]
            return None
        copying = size / BYTES_PER_SECOND
        watch = asyncio.ensure_future(self._watch(server, number, given.answer, ANSWER_SECONDS + copying))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        patience = IN_LINE_SECONDS + copying if hurry else None
        try:
            await asyncio.wait({watch}, timeout=patience)
        finally:
            given.late = not watch.done() and not given.answer.done()
        return given.answer.result() if given.answer.done() else None

    async def _watch(
        self, server: ApiServer, number: int, answer: asyncio.Future[node_pb2.Resides], limit: float
    ) -> None:
        """Wait for the answer to an order, however late; who owes it for longer than `limit` is ended."""
        gone = asyncio.ensure_future(server.over.wait())
        waiting: set[asyncio.Future[Any]] = {answer, gone}
        try:
            await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            self._given.pop((server.key, number), None)
        if not answer.done() and not server.over.is_set():
            log.error("an API server does not say what became of its memory", server=server.pid)
            server.kill("it did not answer an order")

    def answered(self, server: ApiServer, told: node_pb2.Resides) -> bool:
        """An order was carried out, or was not. Returns whether it was one of these."""
        given = self._given.pop((server.key, told.number), None)
        if given is None:
            return False
        given.answer.set_result(told)
        if told.reason != OVER:
            self._note(given.entry, told, given.late)
            if given.late and given.hears:
                given.hears(told)
        return True

    def is_late(self, key: int) -> bool:
        """Whether the API server owes an answer for which nobody waits any longer."""
        return any(given.late and server == key for (server, _), given in self._given.items())
