"""What processes of a program share passes between their API servers, and between no others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from gpuferry.monitor.broker.exchange import WANTED_MOST, Exchange
from gpuferry.monitor.pool.channel import ChannelBroken
from gpuferry.monitor.sessions.lease import Lease
from gpuferry.specs._generated import node_pb2

TOKEN = bytes(range(32))


@dataclass
class Server:
    """An API server that notes what it is sent."""

    sent: list[tuple[node_pb2.ToServer, tuple[Any, ...]]] = field(default_factory=list)
    gone: bool = False

    def send(self, message: node_pb2.ToServer, *descriptors: Any) -> None:
        if self.gone:
            raise ChannelBroken("gone")
        self.sent.append((message, descriptors))

    def take(self) -> tuple[node_pb2.ToServer, tuple[Any, ...]]:
        return self.sent.pop(0)


@dataclass
class Session:
    """As much of one as matters here."""

    id: int
    lease: Lease
    server: Server = field(default_factory=Server)
    running: bool = True


class Stage:
    """Sessions 1 and 2 share a lease, 3 has another."""

    def __init__(self) -> None:
        lease = Lease(1, b"program")
        lease.seats[2] = 5
        sessions = [Session(1, lease), Session(2, lease), Session(3, Lease(3, b"other"))]
        self.sessions: Any = {session.id: session for session in sessions}
        self.exchange: Any = Exchange(self.sessions, lambda _: None)

    def wants(self, importer: int, exporter: int, token: bytes = TOKEN, number: int = 7) -> None:
        fetch = node_pb2.Fetch(session=importer, number=number, exporter=exporter, token=token)
        self.exchange.wanted(self.sessions[importer].server, fetch)

    def asked(self, exporter: int) -> node_pb2.Export:
        message: node_pb2.ToServer = self.sessions[exporter].server.take()[0]
        return message.export

    def exports(self, exporter: int, number: int, more: bool = False) -> None:
        offer = node_pb2.Offer(found=True, more=more, pages=[1], extents=[2])
        message = node_pb2.Exported(session=exporter, number=number, offer=offer)
        self.exchange.exported(self.sessions[exporter].server, message, ("descriptor",))

    def refused(self, importer: int) -> bool:
        """Whether it was told that there is nothing."""
        message, descriptors = self.sessions[importer].server.take()
        return message.fetched.number == 7 and not message.fetched.offer.found and not descriptors


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_requests_and_descriptors_pass_within_a_lease(stage: Stage) -> None:
    stage.wants(2, 1)
    asked = stage.asked(1)
    assert (asked.session, asked.token, asked.seat) == (1, TOKEN, 5)
    for more in (True, False):
        stage.exports(1, asked.number, more)
        message, descriptors = stage.sessions[2].server.take()
        assert descriptors == ("descriptor",)
        assert (message.fetched.session, message.fetched.number) == (2, 7)
        assert (message.fetched.offer.found, message.fetched.offer.more) == (True, more)
    stage.exports(1, asked.number)
    assert not stage.sessions[2].server.sent, "a request is answered once"


@pytest.mark.parametrize(("importer", "exporter"), [(3, 1), (1, 3), (1, 1), (1, 99)])
def test_nothing_passes_between_leases(stage: Stage, importer: int, exporter: int) -> None:
    stage.wants(importer, exporter)
    assert stage.refused(importer)
    assert not any(session.server.sent for session in stage.sessions.values())


@pytest.mark.parametrize("token", [b"", TOKEN[:31], TOKEN + b"x"])
def test_what_is_no_token(stage: Stage, token: bytes) -> None:
    stage.wants(2, 1, token)
    assert stage.refused(2)


def test_who_speaks_for_another_is_not_heard(stage: Stage) -> None:
    fetch = node_pb2.Fetch(session=2, number=7, exporter=1, token=TOKEN)
    stage.exchange.wanted(stage.sessions[3].server, fetch)
    assert not any(session.server.sent for session in stage.sessions.values())
    stage.wants(2, 1)
    number = stage.asked(1).number
    stage.exports(3, number)
    assert not stage.sessions[2].server.sent
    stage.exports(1, number)
    assert stage.sessions[2].server.take()[0].fetched.offer.found


def test_whose_exporter_ends_hears_of_it(stage: Stage) -> None:
    stage.wants(2, 1)
    number = stage.asked(1).number
    stage.exchange.ended(1)
    assert stage.refused(2)
    stage.exports(1, number)
    assert not stage.sessions[2].server.sent


def test_an_exporter_that_is_gone_or_not_there_yet(stage: Stage) -> None:
    stage.sessions[1].server.gone = True
    stage.wants(2, 1)
    assert stage.refused(2)
    stage.sessions[1].running = False
    stage.wants(2, 1)
    assert stage.refused(2)


def test_a_flood_of_requests_is_bounded(stage: Stage) -> None:
    for _ in range(WANTED_MOST):
        stage.wants(2, 1)
    assert len(stage.sessions[1].server.sent) == WANTED_MOST
    stage.wants(2, 1)
    assert stage.refused(2)
