"""Ends API servers that fill the disk with files which they were given to write, and which nothing seals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from ..pool.api_server import ApiServer
from ..sessions.session import Session

LOOK_SECONDS = 1.0

log = structlog.get_logger()


class Greed:
    """Looks at the figures of each API server and keeper, and at the book of each lease."""

    def __init__(self, servers: Callable[[], Iterable[ApiServer]], sessions: Mapping[int, Session]) -> None:
        self._servers = servers
        self._sessions = sessions

    async def run(self) -> None:
        """Look every second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """End whoever takes too much: of a book, all who have it, for nobody knows which of them it was."""
        greedy = {one for one in self._servers() if not one.trusted and one.takes_too_much()}
        leases = {session.lease for session in self._sessions.values() if session.lease.book}
        for lease in [one for one in leases if one.book and one.book.takes_too_much()]:
            members = [self._sessions[number] for number in lease.members if number in self._sessions]
            greedy |= {session.server for session in members if session.server}
        for server in greedy:
            log.error("an API server took more of the disk than it was given", server=server.pid)
            server.kill("it took more of the disk than it was given")
