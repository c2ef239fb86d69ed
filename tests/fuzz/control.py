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
from gpuferry.monitor.assembly import Monitor, build, occupy
from gpuferry.monitor.pool.api_server import ApiServer
from gpuferry.monitor.pool.channel import ChannelBroken, Descriptor, read_message
from gpuferry.monitor.pool.health import Health
from gpuferry.monitor.service.stopping import Stopping
from gpuferry.monitor.sessions.session import Session
from gpuferry.monitor.settings.monitor import Config
from gpuferry.specs._generated import node_pb2

from tests.fuzz.forger import Forger

MIB = 1 << 20
MESSAGES_MOST = 6
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

    def __init__(self, monitor: Monitor, seed: int) -> None:
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
            self._monitor.pool.servers.pop(server.key, None)
            server._events.server_lost(server)
        await asyncio.sleep(0)
        self.is_whole(number)
        return said

    def is_whole(self, number: int) -> None:
        """The bystander has what it had, and nothing is left of the other."""
        sessions = self._monitor.broker.sessions
        assert sessions.get(7) is self.bystander, "the bystander's session is over"
        server = self.bystander.server
        assert server, "the bystander's session has no API server"
        assert (server.device, server.session, server.state.value) == (1, 7, "busy")
        assert self.bystander.running
        assert self.bystander.revoked is None
        assert not self._monitor.broker.custody.migration_of(7)
        assert number not in sessions, "its session goes on without it"

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
            yield World(monitor, seed)


def run(inputs: int, seed: int) -> int:
    """Let API servers say so many things. Returns how many it were; raises, with what was said in a note."""

    async def attack() -> int:
        async with world(seed) as found:
            while found.messages < inputs:
                before = found.messages
                try:
                    await found.attack()
                except BaseException as error:
                    raise AssertionError(f"seed {seed}, message {before}: {error!r}") from error
            return found.messages

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return asyncio.run(attack())
    finally:
        structlog.reset_defaults()
