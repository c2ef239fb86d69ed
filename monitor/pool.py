"""Keeps N API servers per device alive: starts them ahead, notices their deaths, replaces them at once."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import os
import signal
import socket
import time
from collections.abc import Mapping
from typing import Protocol

import structlog
from gpuferry.specs._generated import node_pb2

from .config import Config
from .node import Channel, ChannelBroken, channel_pair

BACKOFF_FIRST, BACKOFF_MOST = 0.25, 30.0  # seconds
SHORT_LIFE = 5.0  # seconds
FREE_RESTARTS = 3
LAST_WORDS = 0.2  # seconds
STDERR = 2

log = structlog.get_logger()
_keys = itertools.count(1)


class State(enum.Enum):
    """Where an API server is in its life."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    STOPPING = "stopping"


class Events(Protocol):
    """What the pool tells its user."""

    def server_ready(self, server: ApiServer) -> None:
        """It has an initialised context and serves nobody."""

    def session_started(self, session: int) -> None:
        """It took the guest's socket over."""

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        """A session is over; the API server is ready again only when it says so."""

    def server_lost(self, server: ApiServer) -> None:
        """It is gone, and with it the session it served."""


class ApiServer:
    """One API server process, from start to end."""

    def __init__(self, device: int) -> None:
        self.key = next(_keys)
        self.device = device
        self.state = State.STARTING
        self.started = time.monotonic()
        self.served = False
        self.session = 0  # the one granted last; sessions are numbered from 1
        self.ready: node_pb2.Ready | None = None
        self.stats = node_pb2.Stats()
        self.end_reason = ""
        self._channel: Channel | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stats_waiters: list[asyncio.Future[None]] = []

    @property
    def pid(self) -> int:
        """0 until the process is there."""
        return self._process.pid if self._process else 0

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started

    async def run(self, config: Config, environment: Mapping[str, str], events: Events) -> None:
        """Returns when the process is gone and was reaped."""
        self._channel, theirs = channel_pair()
        try:
            with theirs:
                descriptor = theirs.fileno()
                command = [
                    *config.server_command,
                    "--device",
                    str(self.device),
                    "--control-fd",
                    str(descriptor),
                ]
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    env=dict(environment),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=STDERR,
                    pass_fds=(descriptor,),
                    # A terminal's Ctrl-C is for the monitor, which ends each API server with its helpers.
                    start_new_session=True,
                )
            await self._live(config.ready_timeout, events)
        finally:
            self.state = State.STOPPING
            self._channel.close()
            if self._process:
                self.kill()
                await self._process.wait()
            self._answer_stats()

    async def _live(self, ready_timeout: float, events: Events) -> None:
        assert self._process
        late = asyncio.get_running_loop().call_later(ready_timeout, self._too_late, ready_timeout)
        reading = asyncio.ensure_future(self._read(events))
        exiting = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({reading, exiting}, return_when=asyncio.FIRST_COMPLETED)
            # What it wrote before it died still counts, and how it died is known a moment after that.
            await asyncio.wait({reading}, timeout=LAST_WORDS)
            if reading.done():
                reading.result()
            if not self.end_reason:
                await asyncio.wait({exiting}, timeout=LAST_WORDS)
                exited = exiting.done()
                self.end_reason = _describe_exit(exiting.result()) if exited else "closed its control socket"
        except ChannelBroken as error:
            self.end_reason = str(error)
        finally:
            late.cancel()
            reading.cancel()
            exiting.cancel()

    def _too_late(self, limit: float) -> None:
        if not self.ready:
            self.end_reason = f"not ready within {limit:g} s"
            self.kill()

    async def _read(self, events: Events) -> None:
        """Handles messages until the API server is of no more use."""
        assert self._channel
        while (message := await self._channel.receive()) is not None:
            kind = message.WhichOneof("message")
            if kind == "ready":
                self.ready = message.ready
                self.state = State.IDLE
                self.session = 0
                events.server_ready(self)
            elif kind == "started":
                self.served = True
                events.session_started(message.started.session)
            elif kind == "ended":
                events.session_ended(self, message.ended)
                if not message.ended.clean:
                    self.end_reason = f"not clean after session {message.ended.session}"
                    return
            elif kind == "stats":
                self.stats = message.stats
                self._answer_stats()
            elif kind == "failed":
                self.end_reason = message.failed.reason
                return
            else:
                raise ChannelBroken("unknown message")

    def _answer_stats(self) -> None:
        for waiter in self._stats_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._stats_waiters.clear()

    def send(self, message: node_pb2.ToServer, descriptor: socket.socket | None = None) -> None:
        """ChannelBroken if it is gone."""
        if not self._channel or self.state is State.STOPPING:
            raise ChannelBroken("stopping")
        self._channel.send(message, descriptor)

    async def refresh_stats(self, limit: float) -> None:
        """Ask for new statistics; the last ones stay if there is no answer in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stats_waiters.append(waiter)
        with contextlib.suppress(ChannelBroken, asyncio.TimeoutError):
            self.send(node_pb2.ToServer(stats=node_pb2.StatsRequest()))
            await asyncio.wait_for(waiter, limit)

    def take(self, session: int) -> None:
        """It is about to serve this session."""
        self.session = session
        self.state = State.BUSY

    def kill(self) -> None:
        """End it and whatever it started, now."""
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _describe_exit(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"


class Pool:
    """All API servers of this machine."""

    def __init__(self, config: Config, environment: Mapping[str, str], events: Events) -> None:
        self._config = config
        self._environment = environment
        self._events = events
        self._tasks: list[asyncio.Task[None]] = []
        self.servers: dict[int, ApiServer] = {}
        self.failures = 0  # API servers that were never ready
        self.last_failure = ""

    def start(self) -> None:
        """One task per place in the pool."""
        for device in range(self._config.devices):
            self._tasks += [asyncio.ensure_future(self._keep(device)) for _ in range(self._config.pool)]

    async def _keep(self, device: int) -> None:
        failures = 0
        while True:
            server = ApiServer(device)
            self.servers[server.key] = server
            try:
                await server.run(self._config, self._environment, self._events)
            except OSError as error:
                server.end_reason = f"{self._config.server_command[0]}: {error.strerror or error}"
            finally:
                del self.servers[server.key]
                if not server.ready:
                    self.failures += 1
                    self.last_failure = server.end_reason
                self._events.server_lost(server)
            log.warning("server ended", server=server.pid, device=device, reason=server.end_reason)
            # One that served or lasted is replaced at once; one that cannot live would only burn time.
            failures = 0 if server.served or server.age > SHORT_LIFE else failures + 1
            excess = failures - (FREE_RESTARTS if server.ready else 0)
            if excess > 0:
                await asyncio.sleep(min(BACKOFF_FIRST * 2 ** (excess - 1), BACKOFF_MOST))

    async def stop(self) -> None:
        """Ends every API server; returns when they are reaped."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
