"""Guests on their way: what a registry takes for a server's load between, and in spite of, its heartbeats."""

from __future__ import annotations

import itertools
import secrets
import socket
from collections.abc import Iterator, Sequence

import pytest
from gpuferry.monitor.door import handshake, tickets
from gpuferry.specs._generated import registry_pb2

from tests.helpers.door import Door
from tests.registry.guest import Identity, redirect_of
from tests.registry.running import PATIENT, Registry, registry

GIB = 1 << 30


class Server:
    """A GPU server that greets, and whose heartbeats the test writes."""

    def __init__(self, running: Registry) -> None:
        self._registry = running
        self._incarnation = secrets.token_bytes(16)
        self._sequence = itertools.count(1)
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self._door = Door(listening, self._greet).__enter__()
        running.register(self.address)
        self.beat()

    def _greet(self, connection: socket.socket) -> None:
        with connection:
            connection.sendall(handshake.greeting(secrets.token_bytes(32)))

    def beat(self, *came: bytes, programs: Sequence[registry_pb2.Program] = ()) -> None:
        """Its two API servers are idle; with these tickets guests came whose sessions are over."""
        sequence = next(self._sequence)
        load = registry_pb2.Load(
            address=self.address,
            incarnation=self._incarnation,
            sequence=sequence,
            accepting=True,
            tickets=[tickets.number_of(ticket) for ticket in came],
            programs=programs,
        )
        load.devices.add(places=2, idle=2, memory_grantable=GIB)
        self._registry.call("Heartbeat", registry_pb2.HeartbeatRequest(load=load))
        self._registry.wait_for(self.address, beats=sequence)

    def close(self) -> None:
        self._door.close()


@pytest.fixture
def running() -> Iterator[Registry]:
    with registry("--lease", "600", constants=PATIENT) as started:
        yield started


@pytest.fixture
def servers(running: Registry) -> Iterator[tuple[Server, Server]]:
    """The one that is chosen where both are alike, and the other."""
    both = sorted((Server(running), Server(running)), key=lambda server: server.address)
    yield both[0], both[1]
    for server in both:
        server.close()


def sent(running: Registry) -> tuple[str, bytes]:
    """Where the next guest is sent, and its ticket."""
    redirect = redirect_of(running.address, Identity(running.token))
    return redirect.address, redirect.ticket


def test_a_heartbeat_that_was_written_before_a_guest_came(
    running: Registry, servers: tuple[Server, Server]
) -> None:
    one, other = servers
    assert sent(running)[0] == one.address
    one.beat()
    assert sent(running)[0] == other.address


def test_a_guest_that_came_is_counted_by_its_server(
    running: Registry, servers: tuple[Server, Server]
) -> None:
    one, _ = servers
    address, ticket = sent(running)
    assert address == one.address
    one.beat(ticket)
    assert sent(running)[0] == one.address


def test_a_guest_that_does_not_come(running: Registry, servers: tuple[Server, Server]) -> None:
    """It is not waited for for ever."""
    one, _ = servers
    assert sent(running)[0] == one.address
    one.beat()
    one.beat()
    assert sent(running)[0] == one.address
