"""What processes of one program share: requests and descriptors pass between their API servers, and between
no others.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuferry.specs._generated import node_pb2
from gpuferry.specs._generated.frames import TOKEN_SIZE

from ..pool.api_server import ApiServer
from ..pool.channel import ChannelBroken, HasFileno
from ..sessions.session import Session

WANTED_MOST = 64  # by one session, and not answered yet


@dataclass
class _Request:
    importer: int  # session
    number: int  # as its API server has numbered it
    exporter: int
    asker: ApiServer
    asked: ApiServer | None = None


class Exchange:
    """Requests of sessions to open what another session of the same lease has exported."""

    def __init__(
        self, sessions: Mapping[int, Session], arrives_at: Callable[[int], ApiServer | None]
    ) -> None:
        self._sessions = sessions
        self._arrives_at = arrives_at  # where a session is just being moved to
        self._requests: dict[int, _Request] = {}
        self._numbers = itertools.count(1)

    def wanted(self, server: ApiServer, fetch: node_pb2.Fetch) -> None:
        """Ask the session that exported it, if it shares a lease with the one that wants it; what is not to
        be had, for whatever reason, is not found.
        """
        importer = self._sessions.get(fetch.session)
        arriving = self._arrives_at(fetch.session) is server
        if importer is None or (importer.server is not server and not arriving):
            return
        request = _Request(fetch.session, fetch.number, fetch.exporter, server)
        exporter = self._sessions.get(fetch.exporter)
        waiting = sum(one.importer == importer.id for one in self._requests.values())
        if (
            exporter is None
            or exporter is importer
            or exporter.lease is not importer.lease
            or not exporter.running
            or not (asked := self._arrives_at(exporter.id) if arriving else exporter.server)
            or waiting >= WANTED_MOST
            or len(fetch.token) != TOKEN_SIZE
        ):
            self._answer(request, node_pb2.Offer())
            return
        number = next(self._numbers) & 0xFFFFFFFF
        self._requests[number] = request
        request.asked = asked
        seat = importer.lease.seats[importer.id]
        export = node_pb2.Export(
            session=exporter.id, number=number, token=fetch.token, seat=seat, arriving=arriving
        )
        try:
            asked.send(node_pb2.ToServer(export=export))
        except ChannelBroken:
            self._answer(self._requests.pop(number), node_pb2.Offer())

    def exported(
        self, server: ApiServer, exported: node_pb2.Exported, descriptors: Sequence[HasFileno]
    ) -> None:
        """Pass the answer on. One that was not asked for goes nowhere."""
        request = self._requests.get(exported.number)
        if request is None or request.asked is not server:
            return
        if not exported.offer.more:
            del self._requests[exported.number]
        self._answer(request, exported.offer, descriptors)

    def _answer(
        self, request: _Request, offer: node_pb2.Offer, descriptors: Sequence[HasFileno] = ()
    ) -> None:
        fetched = node_pb2.Fetched(session=request.importer, number=request.number, offer=offer)
        with contextlib.suppress(ChannelBroken):  # its end is on its way
            request.asker.send(node_pb2.ToServer(fetched=fetched), *descriptors)

    def ended(self, session: int) -> None:
        """The session is over: nothing of it is found any more, and it waits for nothing."""
        for number, request in list(self._requests.items()):
            if session in (request.importer, request.exporter):
                del self._requests[number]
                self._answer(request, node_pb2.Offer())
