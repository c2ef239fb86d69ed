"""Counts over all sessions, past and present, from what their API servers tell."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable

from gpuferry.specs._generated import migration_pb2, node_pb2, wire

from ...pool.api_server import ApiServer, PoolListener

COUNTED = ("calls_async", "calls_sync", "launches", "bytes_in", "bytes_out", "busy_seconds")

FIRST_LOOK_SECONDS = 1.0


class Calls:
    """How many calls succeeded, failed and how long they took, by operation; unsupported ones by function.
    Operations and functions that the spec does not have are not counted: there would be no end of them.
    """

    def __init__(self) -> None:
        self.succeeded: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.timed: Counter[int] = Counter()
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self.unsupported: Counter[int] = Counter()

    def add(self, stats: node_pb2.Stats, before: node_pb2.Stats) -> None:
        """Count what is in `stats` and was not there `before`."""
        past = {calls.operation: calls for calls in before.calls}
        for calls in stats.calls:
            if calls.operation not in wire.OPERATIONS:
                continue
            old = past.get(calls.operation, node_pb2.Calls())
            operation = calls.operation
            self.succeeded[operation] += max(calls.succeeded - old.succeeded, 0)
            self.failed[operation] += max(calls.failed - old.failed, 0)
            self.timed[operation] += max(calls.timed - old.timed, 0)
            self.seconds[operation] += max(calls.seconds - old.seconds, 0.0)
        missed = {unsupported.function: unsupported.calls for unsupported in before.unsupported}
        for unsupported in stats.unsupported:
            function = unsupported.function
            if function not in wire.UNSUPPORTED:
                continue
            self.unsupported[function] += max(unsupported.calls - missed.get(function, 0), 0)


class Accounting(PoolListener):
    """Totals over all sessions, past and present. It must hear of an end before the session is forgotten."""

    def __init__(self, from_elsewhere: Callable[[int], bool] = lambda _: False) -> None:
        self._from_elsewhere = from_elsewhere  # a session that another GPU server has counted so far
        self._asking: set[asyncio.Task[None]] = set()
        self._seen: dict[int, node_pb2.Stats] = {}  # by session, wherever it goes: what is in the totals
        self.totals: Counter[str] = Counter()
        self.calls = Calls()

    def count(self, server: ApiServer) -> None:
        """Count what an API server last said of the session that it has now."""
        if server.session and server.stats.session == server.session:
            self._add(server.stats)

    def forget(self, session: int) -> None:
        """The session is over: nothing more comes of it."""
        self._seen.pop(session, None)

    def _add(self, stats: node_pb2.Stats) -> None:
        before = self._seen.get(stats.session)
        if before is None:
            before = stats if self._from_elsewhere(stats.session) else node_pb2.Stats()
        for name in COUNTED:
            self.totals[name] += max(getattr(stats, name) - getattr(before, name), 0)
        self.calls.add(stats, before)
        self._seen[stats.session] = stats

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        if ended.session == server.session == ended.stats.session:  # else they are another's figures
            self._add(ended.stats)

    def server_lost(self, server: ApiServer) -> None:
        self.count(server)

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        self.count(server)

    def taken_over(self, server: ApiServer, session: int) -> None:
        if self._from_elsewhere(session) and session not in self._seen:
            task = asyncio.ensure_future(self._first_look(server))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _first_look(self, server: ApiServer) -> None:
        """Note what a session from another GPU server had used there: none of that is counted here."""
        await server.refresh_stats(FIRST_LOOK_SECONDS)
        self.count(server)
