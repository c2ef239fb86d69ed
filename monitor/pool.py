"""Keeps API servers alive on each device: starts or adopts them, notices deaths, replaces them at once."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Protocol

import structlog
from gpuferry.specs._generated import migration_pb2, node_pb2, wire

from .config import Config
from .health import PAUSE_MOST, Health
from .node import Channel, ChannelBroken, channel_pair
from .process import Adopted, Process

LAST_WORDS = 0.2  # seconds
STDERR = 2
STARTING_MOST = 2 * (os.cpu_count() or 1)  # at once: more would only wait for each other
NOWHERE = -1  # device of a keeper
SURPLUS_SECONDS = 10.0  # for which an API server may be one too many

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

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        """It serves a session that an earlier monitor granted."""

    def moving(self, server: ApiServer, moving: migration_pb2.Moving) -> None:
        """How far a migration is, says its source."""

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        """How a migration ended, says its source."""

    def taken_over(self, server: ApiServer, session: int) -> None:
        """The session is this one's now."""

    def launched(self, session: int) -> None:
        """It launched the kernel that somebody waited for."""

    def device_lost(self, device: int, reason: str) -> None:
        """No API server lives there any more; `server_ready` says that one does again."""


class ApiServer:
    """One API server process, from start or adoption to end."""

    def __init__(self, device: int, health: Health, replenish: Callable[[int], None]) -> None:
        self.key = next(_keys)
        self.device = device
        self.state = State.STARTING
        self.started = time.monotonic()
        self.served = False
        self.outdated = False  # of an earlier version: serves its session, and no other
        self.session = 0  # the one granted last; sessions are numbered from 1
        self.restoring = 0  # the session that it will have when it takes over
        self.ready: node_pb2.Ready | None = None
        self.stats = node_pb2.Stats()
        self.end_reason = ""
        self._health = health
        self._turn: asyncio.Semaphore | None = None
        self._replenish = replenish
        self._channel: Channel | None = None
        self._process: Process | None = None
        self._stats_waiters: list[asyncio.Future[None]] = []
        self.there = asyncio.Event()  # ready for the first time, or never more

    @property
    def pid(self) -> int:
        """0 until the process is there."""
        return self._process.pid if self._process else 0

    @property
    def is_keeper(self) -> bool:
        """Without a device: it holds a guest whose session is in a file, or went to another machine."""
        return self.device == NOWHERE

    @property
    def age(self) -> float:
        """Seconds since it was started, or adopted."""
        return time.monotonic() - self.started

    async def run(
        self,
        config: Config,
        environment: Mapping[str, str],
        home: node_pb2.Home | None,
        events: Events,
        turns: asyncio.Semaphore,
    ) -> None:
        """Starts it when it is its turn; returns when the process is gone and was reaped."""
        await turns.acquire()
        self._turn = turns
        self.started = time.monotonic()
        self._channel, theirs = channel_pair()
        try:
            with theirs:
                descriptor = theirs.fileno()
                which = ["--device", str(self.device)]
                command = [*config.keeper_command] if self.is_keeper else [*config.server_command, *which]
                command += ["--control-fd", str(descriptor)]
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    env=dict(environment),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=STDERR,
                    pass_fds=(descriptor,),
                    # A terminal's Ctrl-C is for the monitor, which ends each API server with its helpers.
                    start_new_session=True,
                )
            if home:
                self._channel.send(node_pb2.ToServer(home=home))
            await self._live(config.ready_timeout, events)
        finally:
            await self._end()

    async def adopt(
        self,
        channel: Channel,
        pid: int,
        returned: node_pb2.Returned,
        home: node_pb2.Home | None,
        events: Events,
    ) -> None:
        """Takes over what an earlier monitor started; returns when the process is gone."""
        self._channel, self._process = channel, Adopted(pid)
        self.ready, self.served = returned.ready, True
        self.outdated = returned.spec_hash != wire.SPEC_HASH
        try:
            if home:
                self.send(node_pb2.ToServer(home=home))
            if returned.HasField("grant"):
                if returned.grant.restore:
                    self.restore(returned.grant.session)
                else:
                    self.take(returned.grant.session)
                events.server_returned(self, returned)
            else:
                self._make_idle(events)
            await self._live(0, events)
        finally:
            await self._end()

    def _let_next_start(self) -> None:
        if self._turn:
            self._turn.release()
            self._turn = None

    async def _end(self) -> None:
        self._let_next_start()
        self.state = State.STOPPING
        if self._channel:
            self._channel.close()
        if self._process:
            self.kill()
            await self._process.wait()
        self._answer_stats()
        self.there.set()

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
                self._make_idle(events)
            elif kind == "started":
                self.served = True
                events.session_started(message.started.session)
            elif kind == "ended":
                events.session_ended(self, message.ended)
                if not message.ended.clean:
                    self.end_reason = f"not clean after session {message.ended.session}"
                    return
            elif kind == "stats":
                self._note_stats(message.stats)
                self._answer_stats()
            elif kind == "failed":
                self.end_reason = message.failed.reason
                return
            elif kind == "moving":
                events.moving(self, message.moving)
            elif kind == "moved":
                events.moved(self, message.moved)
            elif kind == "taken_over":
                events.taken_over(self, message.taken_over.session)
            elif kind == "launched":
                events.launched(message.launched.session)
            else:
                raise ChannelBroken("unknown message")

    def _make_idle(self, events: Events) -> None:
        self._let_next_start()
        self.session = self.restoring = 0
        self.there.set()
        if self.is_keeper:
            self.state = State.IDLE
            return
        if self.outdated:
            self.dismiss("of another version")
            return
        self.state = State.IDLE
        self._health.alive()
        events.server_ready(self)
        self._replenish(self.device)

    def _note_stats(self, stats: node_pb2.Stats) -> None:
        """What it said before a session was its own may arrive when it is."""
        if self.session and stats.session != self.session:
            self.stats.rss = stats.rss
        else:
            self.stats = stats

    def _answer_stats(self) -> None:
        for waiter in self._stats_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._stats_waiters.clear()

    def send(self, message: node_pb2.ToServer, *descriptors: socket.socket) -> None:
        """ChannelBroken if it is gone."""
        if not self._channel or self.state is State.STOPPING:
            raise ChannelBroken("stopping")
        self._channel.send(message, *descriptors)

    async def refresh_stats(self, limit: float) -> None:
        """Ask for new statistics; the last ones stay if there is no answer in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stats_waiters.append(waiter)
        with contextlib.suppress(ChannelBroken, asyncio.TimeoutError):
            self.send(node_pb2.ToServer(stats=node_pb2.StatsRequest()))
            await asyncio.wait_for(waiter, limit)

    def take(self, session: int) -> None:
        """It is about to serve this session."""
        self.session, self.restoring = session, 0
        self.state = State.BUSY
        self._replenish(self.device)

    def restore(self, session: int) -> None:
        """It is about to take this session over, and does not have it yet."""
        self.session, self.restoring = 0, session
        self.state = State.BUSY
        self._replenish(self.device)

    def carry_on(self, stats: node_pb2.Stats) -> None:
        """What its session was like elsewhere; what it said itself before it had it counts for nothing."""
        if stats.session == self.restoring:
            rss = self.stats.rss
            self.stats = node_pb2.Stats()
            self.stats.CopyFrom(stats)
            self.stats.rss = rss

    def let_go(self) -> None:
        """Its session is elsewhere; it is busy until it has cleared what was there."""
        self.session = self.restoring = 0

    def dismiss(self, reason: str) -> None:
        """End it in peace; it serves nobody."""
        self.end_reason = reason
        with contextlib.suppress(ChannelBroken):
            self.send(node_pb2.ToServer(shutdown=node_pb2.Shutdown()))
        self.state = State.STOPPING

    def kill(self) -> None:
        """End it and whatever it started, now."""
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _describe_exit(status: int | None) -> str:
    if status is None:
        return "gone"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"


class Pool:
    """All API servers of this machine."""

    def __init__(self, config: Config, environment: Mapping[str, str], events: Events) -> None:
        self._config = config
        self._environment = environment
        self._events = events
        self._turns = asyncio.Semaphore(STARTING_MOST)
        # Bytes of a device: that nobody has or was promised; that shall not be promised.
        self.spare: Callable[[int], int] = lambda _: 0
        self.withhold: Callable[[int, int], None] = lambda _, __: None
        self.home: node_pb2.Home | None = None  # where API servers find the next monitor
        self._tasks: set[asyncio.Task[None]] = set()
        self._health = {device: Health() for device in range(config.devices)}
        self._filling = False
        self._wished: Counter[int] = Counter()  # API servers beyond those that there should be, by device
        self._to_fill: set[int] = set()
        self.servers: dict[int, ApiServer] = {}
        self.keepers: dict[int, ApiServer] = {}
        self.failures = 0  # API servers that were never ready
        self.last_failure = ""

    def start(self) -> None:
        """Fill it, and keep it filled."""
        self._filling = True
        for device in range(self._config.devices):
            self._fill(device)

    def adopt(self, channel: Channel, pid: int, returned: node_pb2.Returned) -> None:
        """An API server, or a keeper, of an earlier monitor comes in."""
        if returned.ready.keeper:
            keeper = ApiServer(NOWHERE, Health(), lambda _: None)
            log.info("keeper adopted", keeper=pid, session=returned.grant.session)
            life = keeper.adopt(channel, pid, returned, self.home, self._events)
            self._attend_to(self._attend_keeper(keeper, life))
            return
        device = returned.ready.device
        server = ApiServer(device, self._health.setdefault(device, Health()), self._fill)
        log.info("server adopted", server=pid, gpu=server.device, session=returned.grant.session)
        self._keep(server, server.adopt(channel, pid, returned, self.home, self._events))

    def start_keeper(self) -> ApiServer:
        """One more process without a device; `there` says when it can be given a session."""
        keeper = ApiServer(NOWHERE, Health(), lambda _: None)
        life = keeper.run(self._config, self._environment, self.home, self._events, self._turns)
        self._attend_to(self._attend_keeper(keeper, life))
        return keeper

    def wish(self, device: int, more: int) -> None:
        """For a session that shall move there while no API server is idle; -1 takes the wish back."""
        self._wished[device] += more
        self._fill(device)

    def can_start(self, device: int) -> bool:
        """Whether there is memory for another context."""
        cost = self._config.context_cost
        return not cost or self.spare(device) >= cost

    def uuids(self) -> dict[int, bytes]:
        """Of the devices on which an API server lives."""
        found: dict[int, bytes] = {}
        for server in self.servers.values():
            if server.device not in found and server.ready:
                found[server.device] = server.ready.device_uuid
        return found

    def problems(self) -> dict[int, str]:
        """Devices on which no API server lives, and why."""
        return {device: health.reason for device, health in self._health.items() if health.reason}

    def is_failing(self, device: int) -> bool:
        """Whether it was taken out because no API server lives there."""
        return self._health[device].out

    def _fill_soon(self, device: int) -> None:
        if device not in self._to_fill:
            self._to_fill.add(device)
            asyncio.get_running_loop().call_soon(self._fill, device)

    def _fill(self, device: int) -> None:
        self._to_fill.discard(device)
        if not self._filling or device >= self._config.devices or self._health[device].resting:
            return
        here = [s for s in self.servers.values() if s.device == device and s.state is not State.STOPPING]
        wanted = self._wanted(device, here)
        if len(here) > wanted:
            asyncio.get_running_loop().call_later(SURPLUS_SECONDS, self._trim, device)
        for _ in range(wanted - len(here)):
            server = ApiServer(device, self._health[device], self._fill_soon)
            self._keep(
                server,
                server.run(self._config, self._environment, self.home, self._events, self._turns),
            )

    def _wanted(self, device: int, here: list[ApiServer]) -> int:
        """How many there should be: more than the pool while too few are idle and memory is to spare."""
        config = self._config
        wanted = sum(s.state is State.BUSY for s in here) + config.min_idle
        if self._wished[device]:
            return max(wanted, config.pool, sum(s.state is State.BUSY for s in here) + self._wished[device])
        if wanted <= config.pool:
            return config.pool
        cost = config.context_cost
        return wanted if not cost else min(wanted, max(config.pool, len(here) + self.spare(device) // cost))

    def _trim(self, device: int) -> None:
        """Those that were started when many were busy are not kept for ever."""
        here = [s for s in self.servers.values() if s.device == device and s.state is not State.STOPPING]
        idle = [s for s in here if s.state is State.IDLE]
        for server in idle[: max(len(here) - self._wanted(device, here), 0)]:
            server.dismiss("not needed any more")

    def _keep(self, server: ApiServer, life: Coroutine[None, None, None]) -> None:
        self.servers[server.key] = server
        self._withhold_contexts(server.device)
        self._attend_to(self._attend(server, life))

    def _withhold_contexts(self, device: int) -> None:
        """Those of more API servers than the headroom is meant for."""
        more = sum(s.device == device for s in self.servers.values()) - self._config.pool
        self.withhold(device, max(more, 0) * self._config.context_cost)

    def _attend_to(self, life: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(life)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend_keeper(self, keeper: ApiServer, life: Coroutine[None, None, None]) -> None:
        self.keepers[keeper.key] = keeper
        try:
            await life
        except (OSError, ChannelBroken) as error:
            keeper.end_reason = str(error)
        finally:
            del self.keepers[keeper.key]
            keeper.there.set()
            self._events.server_lost(keeper)
        log.info("keeper ended", keeper=keeper.pid, reason=keeper.end_reason)

    async def _attend(self, server: ApiServer, life: Coroutine[None, None, None]) -> None:
        try:
            await life
        except OSError as error:
            server.end_reason = f"{self._config.server_command[0]}: {error.strerror or error}"
        except ChannelBroken as error:
            server.end_reason = str(error)
        finally:
            del self.servers[server.key]
            self._withhold_contexts(server.device)
            if not server.ready:
                self.failures += 1
                self.last_failure = server.end_reason
            self._events.server_lost(server)
        log.warning("server ended", server=server.pid, gpu=server.device, reason=server.end_reason)
        self._replace(server)

    def _replace(self, server: ApiServer) -> None:
        device, health = server.device, self._health[server.device]
        pause = health.died(server.ready is not None, server.served, server.age)
        if not pause:
            self._fill(device)
            return
        if not any(s.ready for s in self.servers.values() if s.device == device):
            if health.hopeless:
                self._take_out(device, server.end_reason)
            elif not health.out:
                health.reason = server.end_reason
        self._rest(device, pause)

    def lose(self, device: int, reason: str) -> None:
        """Somebody else found out that the device failed: its sessions are told, and its API servers end."""
        self._take_out(device, reason)
        for server in [s for s in self.servers.values() if s.device == device and s.state is not State.BUSY]:
            server.end_reason = reason
            server.kill()
        self._rest(device, PAUSE_MOST)

    def _take_out(self, device: int, reason: str) -> None:
        health = self._health[device]
        if not health.out:
            health.out, health.reason = True, reason
            log.error("device taken out", gpu=device, reason=reason)
            self._events.device_lost(device, reason)

    def _rest(self, device: int, pause: float) -> None:
        self._health[device].resting = True
        asyncio.get_running_loop().call_later(pause, self._try_again, device)

    def _try_again(self, device: int) -> None:
        self._health[device].resting = False
        self._fill(device)

    async def stop(self) -> None:
        """Ends every API server; returns when they are reaped."""
        self._filling = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
