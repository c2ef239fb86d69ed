"""A monitor whose API server says whatever it likes: its guest may have taken it over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import structlog
from google.protobuf.message import DecodeError
from gpuferry.monitor.assembly import Monitor, build, occupy
from gpuferry.monitor.moves.migration import ToDevice
from gpuferry.monitor.pool.api_server import ApiServer, State
from gpuferry.monitor.pool.channel import ChannelBroken, Descriptor, read_message
from gpuferry.monitor.pool.health import Health
from gpuferry.monitor.pool.returns import Returns
from gpuferry.monitor.service.stopping import Stopping
from gpuferry.monitor.sessions.session import Session
from gpuferry.monitor.settings.monitor import Config
from gpuferry.specs._generated import migration_pb2, node_pb2

from tests.fuzz.changing import Changing
from tests.fuzz.forger import Forger

MIB = 1 << 20
MESSAGES_MOST = 6
NAME = "abc"  # of an API server that comes back
KINDS = [field.name for field in node_pb2.FromServer.DESCRIPTOR.oneofs[0].fields]


class Said:
    """In place of the channel: messages that were written before, and no answer."""

    beside: tuple[Descriptor, ...] = ()

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages

    async def receive(self) -> node_pb2.FromServer | None:
        data = next(self._messages, None)
        if data is None:
            return None
        return read_message(data)

    def send(self, message: node_pb2.ToServer, *descriptors: object) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """There is nothing to close."""


class World:
    """A monitor without processes. A bystander's session, and one of a hostile guest after another."""

    def __init__(self, monitor: Monitor, seed: int, folder: Path) -> None:
        self._returns = Returns(folder, b"s" * 32, 60.0)
        self._monitor = monitor
        self._chance = random.Random(seed)
        self._numbers = iter(range(10, 1 << 62))
        self.messages = 0
        self.bystander = self._session(self._server(1), 7)

    def _server(self, device: int) -> ApiServer:
        pool = self._monitor.pool
        server = ApiServer((device,), Health(), lambda _: None, pool._events, pool.neighbourhood)
        server.ready = node_pb2.Ready(device=device, device_memory=4096 * MIB, device_name="a device")
        server._channel = Said(iter(()))  # type: ignore[assignment]
        pool.servers[server.key] = server
        return server

    def _session(self, server: ApiServer, number: int) -> Session:
        grant = node_pb2.Grant(session=number, memory_quota=MIB, tenant=f"tenant{number}")
        returned = node_pb2.Returned(grant=grant, spec_hash=server.spec_hash)
        server.serve(number)
        server._events.server_returned(server, returned)
        return self._monitor.broker.sessions[number]

    def on_its_way(self) -> tuple[int, ApiServer, ApiServer]:
        """A session that is being moved: its number, its source, its destination."""
        source, number = self._server(0), next(self._numbers)
        self._session(source, number)
        destination = self._server(1)
        destination.state = State.IDLE
        destination._events.server_ready(destination)
        assert self._monitor.broker.migrate(number, ToDevice(1), migration_pb2.Strategy.STRATEGY_STOP, 0.0)
        return number, source, destination

    def ends(self, server: ApiServer) -> None:
        """The API server's process is gone."""
        self._monitor.pool.servers.pop(server.key, None)
        server._events.server_lost(server)

    async def attack(self) -> list[bytes]:
        """One API server with a session says something; then it is gone. Raises whatever the monitor does."""
        server, number = self._server(0), next(self._numbers)
        self._session(server, number)
        said = [self._message(number) for _ in range(self._chance.randrange(1, MESSAGES_MOST))]
        self.messages += len(said)
        server._channel = Said(iter(said))  # type: ignore[assignment]
        try:
            with contextlib.suppress(ChannelBroken):
                await server._read()
            if server.state.value == "idle":
                assert server.session not in self._monitor.broker.sessions, "idle, and its session goes on"
        finally:
            self.ends(server)
        await asyncio.sleep(0)
        self.is_whole(number)
        return said

    async def come_back(self) -> None:
        """An API server of an earlier monitor says what it has, and shows orders that it may have changed."""
        server, number = self._server(0), next(self._numbers)
        self.messages += 1
        try:
            with contextlib.suppress(ChannelBroken):
                returned = read_message(self._returned(number)).returned
                self._returns.check(NAME, returned)
                if returned.HasField("grant"):
                    (server.expect if returned.grant.restore else server.serve)(returned.grant.session)
                    server._events.server_returned(server, returned)
        finally:
            self.ends(server)
        await asyncio.sleep(0)
        self.stands_by()

    def _returned(self, own: int) -> bytes:
        chance = self._chance
        forger = Forger(chance, (own, own, own, 7), wild=0.02)
        packet = forger.packet(node_pb2.FromServer(), "returned")
        said = node_pb2.FromServer()
        with contextlib.suppress(DecodeError):
            said.ParseFromString(packet)
        grant = node_pb2.Grant(session=own, memory_quota=MIB, tenant="a", restore=chance.random() < 0.3)
        file = migration_pb2.FileTarget(path="/a/file")
        given = [
            node_pb2.ToServer(grant=grant),
            node_pb2.ToServer(keep=node_pb2.Keep(grant=grant, file=file)),
            node_pb2.ToServer(migrate=migration_pb2.Migrate(session=own, file=file)),
        ]
        sealed = [self._returns.seal(NAME, order.SerializeToString()) for order in given]
        changing = Changing(sealed, chance.randrange(1 << 30))
        del said.returned.orders[:]
        for order in chance.sample(sealed, chance.randrange(4)):
            said.returned.orders.append(order if chance.random() < 0.8 else changing.next())
        return said.SerializeToString()

    def is_whole(self, number: int) -> None:
        """The bystander has what it had, and nothing is left of the other."""
        self.stands_by()
        assert number not in self._monitor.broker.sessions, "its session goes on without it"

    def stands_by(self) -> None:
        """The bystander has what it had."""
        sessions = self._monitor.broker.sessions
        assert sessions.get(7) is self.bystander, "the bystander's session is over"
        server = self.bystander.server
        assert server, "the bystander's session has no API server"
        assert (server.device, server.session, server.state.value) == (1, 7, "busy")
        assert self.bystander.running
        assert self.bystander.revoked is None
        assert not self._monitor.broker.custody.migration_of(7)

    def _message(self, own: int) -> bytes:
        forger = Forger(self._chance, (own, own, own, 7, own + 1))
        return forger.packet(node_pb2.FromServer(), self._chance.choice(KINDS))


@contextlib.asynccontextmanager
async def world(seed: int) -> AsyncIterator[World]:
    """A monitor of its own, in this process."""
    with tempfile.TemporaryDirectory(prefix="gpuferry-fuzz-") as folder:
        config = Config(
            runtime=Path(folder, "run"),
            token=b"t" * 32,
            simulated=True,
            devices=2,
            listen="127.0.0.1:0",
            socket=None,
            http=None,
            control=f"unix:{folder}/control",
            state=folder,
        )
        async with contextlib.AsyncExitStack() as stack:
            premises = occupy(config, stack)
            monitor = build(config, premises, Stopping())
            for listener in monitor.listeners:
                stack.callback(listener.close)
            yield World(monitor, seed, Path(folder))


def run(inputs: int, seed: int, back: bool = False) -> int:
    """Let API servers say so many things; with `back`, those of an earlier monitor. Returns how many it were;
    raises, with which it was.
    """

    async def attack() -> int:
        async with world(seed) as found:
            while found.messages < inputs:
                before = found.messages
                try:
                    await (found.come_back() if back else found.attack())
                except BaseException as error:
                    raise AssertionError(f"seed {seed}, message {before}: {error!r}") from error
            return found.messages

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return asyncio.run(attack())
    finally:
        structlog.reset_defaults()
