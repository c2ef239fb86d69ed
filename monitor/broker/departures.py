"""Guests that are gone: an API server that does not notice it, because it hangs, is ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog
from gpuferry.specs._generated import node_pb2

from ..pool.api_server import ApiServer
from ..pool.channel import ChannelBroken, HasFileno
from ..service.patience import HEARD_SECONDS, Patience
from ..service.rates import Sparing
from ..sessions.session import Session

HUNG_UP = select.EPOLLRDHUP | select.EPOLLONESHOT  # and what is always told: EPOLLHUP and EPOLLERR
FAREWELL_SECONDS = 1.0  # in which nearly every session has ended by itself
ANSWER_SECONDS = 10.0  # of its own time, in which who lives says something when it is asked
KEEPER_ANSWER_SECONDS = 60.0  # likewise: it may be waiting for another GPU server
AGAIN_SECONDS = 30.0  # until who answered, and may yet end the session by itself, is asked again
LONGEST_SECONDS = 120.0  # beyond the time for a guest to come back; no API server needs so long

log = structlog.get_logger()


@dataclass
class Watch:
    """On the connection of one session's guest."""

    epoll: select.epoll
    gone_at: float = 0.0  # 0: the guest is there
    timer: asyncio.TimerHandle | None = None


class Departures:
    """Notices when the guest of a session is gone, and sees to it that its session ends.

    The monitor keeps no copy of the guest's connection, for the API server's end must be the guest's end: an
    epoll set does not hold the connections that it watches, and watches them as long as anybody has them.
    """

    def __init__(self, sessions: Mapping[int, Session], resume_grace: float) -> None:
        self._sessions = sessions
        self._longest = resume_grace + LONGEST_SECONDS
        self._watches: dict[int, Watch] = {}  # by session
        self._notes = Sparing(log.warning)

    def watch(self, session: int, connection: HasFileno) -> None:
        """The session's guest has this connection from now on, and no other one. Where no descriptor is free
        for that, its API server alone sees when it goes.
        """
        self.ended(session)
        try:
            epoll = select.epoll(1)
            epoll.register(connection.fileno(), HUNG_UP)
        except OSError as error:
            self._notes.say("a guest is not watched", error.errno, session=session, error=str(error))
            return
        watch = self._watches[session] = Watch(epoll)
        asyncio.get_running_loop().add_reader(watch.epoll.fileno(), self._gone, session, watch)

    @property
    def absent(self) -> set[int]:
        """Sessions whose guests are gone."""
        return {session for session, watch in self._watches.items() if watch.gone_at}

    def watch_returned(self, session: int, beside: Iterable[HasFileno]) -> None:
        """An API server came back with the session, and with its guest's connection beside other files."""
        for each in beside:
            if stat.S_ISSOCK(os.fstat(each.fileno()).st_mode):
                self.watch(session, each)
                return

    def ended(self, session: int) -> None:
        """The session is over, or its guest has another connection."""
        if watch := self._watches.pop(session, None):
            if watch.timer:
                watch.timer.cancel()
            if not watch.gone_at:
                self._look_no_more(watch)

    def _look_no_more(self, watch: Watch) -> None:
        asyncio.get_running_loop().remove_reader(watch.epoll.fileno())
        watch.epoll.close()

    def _gone(self, session: int, watch: Watch) -> None:
        self._look_no_more(watch)
        watch.gone_at = time.monotonic()
        self._later(FAREWELL_SECONDS, watch, self._ask, session, watch)

    def _later(self, seconds: float, watch: Watch, call: Callable[..., None], *arguments: object) -> None:
        watch.timer = asyncio.get_running_loop().call_later(seconds, call, *arguments)

    def _ask(self, number: int, watch: Watch) -> None:
        """Whether the API server lives: then it ends the session when it is time."""
        session = self._sessions.get(number)
        server = session.server if session else None
        if server is None:  # it waits for another one
            self._later(AGAIN_SECONDS, watch, self._ask, number, watch)
            return
        if time.monotonic() - watch.gone_at > self._longest:
            self._end(
                number, server, f"it still has its session {self._longest:g} s after the guest was gone"
            )
            return
        with contextlib.suppress(ChannelBroken):
            server.send(node_pb2.ToServer(stats=node_pb2.StatsRequest()))
        limit = KEEPER_ANSWER_SECONDS if server.is_keeper else ANSWER_SECONDS
        self._listen(number, watch, server, server.heard, Patience(server.pid, limit))

    def _listen(self, number: int, watch: Watch, server: ApiServer, heard: int, patience: Patience) -> None:
        session = self._sessions.get(number)
        if session is None or session.server is not server:  # it moved
            self._ask(number, watch)
        elif server.heard > heard:
            self._later(AGAIN_SECONDS, watch, self._ask, number, watch)
        elif (left := patience.left()) > 0:
            self._later(max(left, HEARD_SECONDS), watch, self._listen, number, watch, server, heard, patience)
        else:
            self._end(number, server, "it hung when its guest was gone")

    def _end(self, number: int, server: ApiServer, reason: str) -> None:
        log.error("an API server does not see that its guest is gone", session=number, server=server.pid)
        server.kill(reason)
