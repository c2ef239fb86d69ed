"""By which names a GPU server finds another."""

from __future__ import annotations

import asyncio
import socket

import pytest
from gpuferry.monitor.cluster.cluster import Cluster
from gpuferry.monitor.cluster.neighbours import Neighbours, _connect, _shake_hands
from gpuferry.monitor.door import handshake
from gpuferry.monitor.door.handshake import Reason, Refusal
from gpuferry.monitor.moves.migration import CannotMove
from gpuferry.monitor.sessions.session import Session
from gpuferry.specs._generated import node_pb2, registry_pb2

from tests.monitor.test_gangs import HELLO


class Known(Neighbours):
    """Knows two servers, of which one has TLS."""

    def __init__(self) -> None:
        super().__init__(b"token", Cluster(b"key", ("here:7701",)))

    async def _registered(self) -> list[registry_pb2.Server]:
        return [
            registry_pb2.Server(
                registration=registry_pb2.Registration(address=address),
                alive=True,
                load=registry_pb2.Load(address=address, tls=tls),
            )
            for address, tls in (("gpu-a:7700", True), ("[fd00::2]:7700", False))
        ]


def found(name: str) -> tuple[str, str]:
    address, server = asyncio.run(Known()._find(name))
    return address, server.registration.address if server else ""


@pytest.mark.parametrize("name", ["gpu-a", "gpu-a:7700", "tls://gpu-a:7700"])
def test_a_server_with_tls(name: str) -> None:
    """With the address that guests are told, it was taken for one with the same token, which it has not."""
    assert found(name) == ("tls://gpu-a:7700", "gpu-a:7700")


@pytest.mark.parametrize("name", ["[fd00::2]", "[fd00::2]:7700"])
def test_a_server_in_clear(name: str) -> None:
    assert found(name) == ("[fd00::2]:7700", "[fd00::2]:7700")


def test_one_that_has_no_tls_is_not_gone_to_in_clear() -> None:
    assert found("tls://[fd00::2]:7700") == ("tls://[fd00::2]:7700", "")


def test_others() -> None:
    assert found("elsewhere:7700") == ("elsewhere:7700", "")
    with pytest.raises(CannotMove, match="no such GPU server is registered"):
        found("gpu-b")


def test_why_another_server_refuses_is_text() -> None:
    """Whoever answers there has not proven anything yet, and `migrate` and `status` show it."""
    greeting = handshake.greeting(bytes(32))
    refusal = Refusal(Reason.NO_CAPACITY, "full\x1b]0;mine\x07\x1b[2J").frame()
    session = Session(1, HELLO, "", None)
    session.grant = node_pb2.Grant()

    async def refused() -> str:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.sendall(greeting + refusal)
            with pytest.raises(CannotMove) as caught:
                await _shake_hands(ours, session, b"key", b"")
        return caught.value.reason

    assert asyncio.run(refused()) == "it refuses: full ]0;mine  [2J"


def test_what_can_be_no_name() -> None:
    """The move to it never ended, and the session could not be moved again."""
    with pytest.raises(CannotMove, match=r"gpu\.\.b:7700: there can be no such name"):
        asyncio.run(_connect("gpu..b:7700"))
