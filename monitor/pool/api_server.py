"""One API server process: how it starts or is adopted, what it says, how it ends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import enum
import functools
import itertools
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from gpuferry.specs._generated import migration_pb2, node_pb2, wire

from ..service.processes import age_of, how_it_ended, start_time
from ..service.waiting import within
from .channel import Channel, ChannelBroken, Descriptor, HasFileno, channel_pair
from .health import Health
from .process import Adopted, Launch, Process
from .returns import Record, Returns

LAST_WORDS = 0.2  # seconds in which none comes any more
LAST_MESSAGES = 1000  # which no socket holds
CLEAR_SECONDS = 120.0  # after a session until it is ready, and until it is gone once it was asked to end
TENANTS_CLEAR_SECONDS = 10.0  # where it serves nobody else anyway, and what it keeps is beyond all quotas
CLOSED = "closed its control socket"
# What it says of a session, which must be its own.
OF_A_SESSION = ("started", "ended", "moving", "moved", "taken_over", "launched", "stats", "shared", "resides")
SHARING = ("fetch", "exported", "room_wanted")  # likewise
NOWHERE = -1  # device of a keeper
GIVEN_MOST = 16  # sessions, the last ones: an API server may serve one after another for weeks

log = structlog.get_logger()
_keys = itertools.count(1)


class State(enum.Enum):
    """The stage of its life that an API server is in."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    STOPPING = "stopping"


class PoolListener:
    """Hears what API servers tell. Each method does nothing unless a subclass says what."""

    def server_ready(self, server: ApiServer) -> None:
        """The API server has an initialised context and serves nobody."""

    def session_granted(self, server: ApiServer, session: int) -> None:
        """The API server is about to be given this session, or to take it over."""

    def session_started(self, session: int) -> None:
        """The API server took the guest's socket over."""

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        """A session is over; the API server is ready again only when it says so."""

    def server_dismissed(self, server: ApiServer) -> None:
        """The API server, which was idle, has been asked to end: nobody may be given to it."""

    def server_lost(self, server: ApiServer) -> None:
        """The API server is gone, and with it the session that it served."""

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        """The API server serves a session that an earlier monitor granted."""

    def moving(self, server: ApiServer, moving: migration_pb2.Moving) -> None:
        """The source of a migration says how far it is."""

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        """The source of a migration says how it ended."""

    def taken_over(self, server: ApiServer, session: int) -> None:
        """The destination of a migration has the session now."""

    def launched(self, session: int) -> None:
        """The session launched the kernel that somebody waited for (NextLaunch)."""

    def shared(self, session: int) -> None:
        """The session claims its memory in its lease's book (Share)."""

    def wanted(self, server: ApiServer, fetch: node_pb2.Fetch) -> None:
        """The API server's session wants to open what another of its lease has exported."""

    def exported(
        self, server: ApiServer, exported: node_pb2.Exported, descriptors: Sequence[HasFileno]
    ) -> None:
        """The API server answers what was wanted of its session. The descriptors are closed after this."""

    def resides(self, server: ApiServer, told: node_pb2.Resides) -> None:
        """The API server says where its session's memory is, after an order."""

    def room_wanted(self, server: ApiServer, wanted: node_pb2.RoomWanted) -> None:
        """The API server's session waits for room on its device."""

    def device_lost(self, device: int, reason: str) -> None:
        """No API server lives on the device any more; `server_ready` says that one does again."""

    def contexts_withheld(self, device: int, size: int) -> None:
        """API servers beyond those that the headroom is meant for take this many bytes of the device."""


@dataclass
class Neighbourhood:
    """Whether the sessions of this GPU server trust each other."""

    tenants: bool  # people who do not trust each other: a process serves one session, and no other


class ApiServer:
    """One API server process, from start or adoption to end."""

    def __init__(
        self,
        devices: Sequence[int],
        health: Health,
        replenish: Callable[[int], None],
        events: PoolListener,
        neighbourhood: Neighbourhood,
        percentage: int = 0,
    ) -> None:
        self._neighbourhood = neighbourhood
        self.percentage = percentage  # of its device's threads, by MPS: for one session; 0: all
        self._apart = False  # started since tenants come
        self.key = next(_keys)
        self.devices = tuple(devices)  # ordinals
        self.state = State.STARTING
        self.started = time.monotonic()
        self.served = False
        self.spec_hash = wire.SPEC_HASH
        self.outdated = False  # of an earlier version: serves its session, and no other
        self.session = 0  # the one granted last; sessions are numbered from 1
        self.restoring = 0  # the session that it will have when it takes over
        self.ready: node_pb2.Ready | None = None
        self.welcome = b""  # of `ready`, which would copy it at each look
        self._ended = 0  # the session that it said is over
        self.stats = node_pb2.Stats()
        self.end_reason = ""
        self.dismissed = False  # asked to end, with nothing amiss
        self.gone = False  # the process, and its number may be another's
        self._killed = False
        self.over = asyncio.Event()  # nothing is heard of it any more
        self._health = health
        self._turn: asyncio.Semaphore | None = None
        self._clearing: asyncio.TimerHandle | None = None
        self._replenish = replenish
        self._events = events
        self.heard = 0  # messages of it
        self._exit_unknown = False  # its channel was closed, and how it exited was not known yet
        self._channel: Channel | None = None
        self._process: Process | None = None
        self._record: Record | None = None  # for the next monitor, which
        self._returns: Returns | None = None  # reads it there
        self._given = deque[int](maxlen=GIVEN_MOST)  # sessions of which it may speak, and which it had
        self._stats_waiters: list[asyncio.Future[None]] = []
        self.ready_or_gone = asyncio.Event()  # ready for the first time, or it never will be

    @property
    def pid(self) -> int:
        """Process id of the API server; 0 before it was started."""
        return self._process.pid if self._process else 0

    @property
    def device(self) -> int:
        """The ordinal of its device; of several, of the first."""
        return self.devices[0]

    @property
    def several(self) -> bool:
        """Whether its session has several devices."""
        return len(self.devices) > 1

    @property
    def own(self) -> bool:
        """Whether it was started for one session, and is no other's."""
        return self.several or self.percentage > 0

    @property
    def is_keeper(self) -> bool:
        """Whether it has no device: it holds a guest whose session is in a file or on another machine."""
        return self.device == NOWHERE

    @property
    def trusted(self) -> bool:
        """Whether nobody comes who could have taken it over."""
        return not self._neighbourhood.tenants

    @property
    def age(self) -> float:
        """Seconds since the process was started, by whichever monitor."""
        return time.monotonic() - self.started

    async def run(
        self,
        launch: Launch,
        returns: Returns | None,
        turns: asyncio.Semaphore,
    ) -> None:
        """Start the process when it is its turn. Returns when it is gone and was reaped."""
        await turns.acquire()
        self._turn = turns
        self.started = time.monotonic()
        try:
            if self._killed:
                self.end_reason = self.end_reason or "not wanted any more"
                return
            self._channel, theirs = channel_pair()
            with theirs:
                which = () if self.is_keeper else launch.on(self.devices)
                self._apart = self._neighbourhood.tenants
                self._process = await launch.start(which, theirs, self._apart)
            if self._killed:  # meanwhile
                self._process.kill()
            if returns:
                self._settle(returns, self._channel)
            await self._live(launch.ready_timeout)
        finally:
            await self._end()

    def _settle(self, returns: Returns, channel: Channel) -> None:
        """It outlives its monitor, and the next one will find it."""
        assert self._process
        process, stay = self._process, self._process.stay
        try:
            began = start_time(process.pid)
            name, door = returns.enter()
        except OSError as error:
            self._complain(error)
            return
        self._record = Record(name, process.pid, began, process.group)
        if stay:
            self._record.uid, self._record.cgroup = stay.uid, stay.cgroup
        self._returns = returns
        self._note()
        channel.seal = functools.partial(returns.seal, name)
        with door:
            channel.send(node_pb2.ToServer(home=returns.home), door)

    async def adopt(
        self,
        channel: Channel,
        process: Adopted,
        record: Record,
        returned: node_pb2.Returned,
        home: node_pb2.Home,
        returns: Returns | None,
    ) -> None:
        """Take over a process that an earlier monitor started. Returns when it is gone."""
        self._channel, self._process = channel, process
        self._record, self._returns = record, returns
        self.started = time.monotonic() - age_of(record.began)
        self._describe(record.description or returned.ready)
        self.served = True
        self.spec_hash = returned.spec_hash
        self.outdated = self.spec_hash != wire.SPEC_HASH
        if returns:
            channel.seal = functools.partial(returns.seal, record.name)
        try:
            self.send(node_pb2.ToServer(home=home))
            if returned.HasField("grant"):
                # One that comes from another GPU server, with its WELCOME sent, is its own from the start.
                if returned.grant.restore and not returned.grant.welcomed:
                    self.expect(returned.grant.session)
                else:
                    self.serve(returned.grant.session)
                self._events.server_returned(self, returned)
            else:
                self._make_idle()
            await self._live(0)
        finally:
            await self._end()

    def _let_next_start(self) -> None:
        if self._turn:
            self._turn.release()
            self._turn = None

    async def _end(self) -> None:
        self._let_next_start()
        self._is_clear()
        self.state = State.STOPPING
        self.over.set()
        if self._channel:
            self._channel.close()
        if self._process:
            self.kill()
            status = await self._process.wait()
            if self._process.stay:
                self._process.stay.leave()
            if self._exit_unknown and status not in (None, -signal.SIGKILL):
                self.end_reason = _describe_exit(status)
        self.gone = True
        if self._returns and self._record:
            self._returns.forget(self._record.name)
        self._answer_stats()
        self.ready_or_gone.set()

    async def _live(self, ready_timeout: float) -> None:
        assert self._process
        late = asyncio.get_running_loop().call_later(ready_timeout, self._too_late, ready_timeout)
        reading = asyncio.ensure_future(self._read())
        exiting = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({reading, exiting}, return_when=asyncio.FIRST_COMPLETED)
            # What it wrote before it died still counts, and how it died is known a moment after that.
            await self._last_words(reading)
            if reading.done():
                reading.result()
            if not self.end_reason:
                await asyncio.wait({exiting}, timeout=LAST_WORDS)
                self._exit_unknown = not exiting.done()
                self.end_reason = CLOSED if self._exit_unknown else _describe_exit(exiting.result())
        except ChannelBroken as error:
            self.end_reason = str(error)
        finally:
            late.cancel()
            reading.cancel()
            exiting.cancel()

    async def _last_words(self, reading: asyncio.Future[None]) -> None:
        """Wait for what is in its socket, however slow we are; but not for those that have its end still."""
        for _ in range(LAST_MESSAGES):
            heard = self.heard
            await asyncio.wait({reading}, timeout=LAST_WORDS)
            if reading.done() or self.heard == heard:
                return

    def _too_late(self, limit: float) -> None:
        if not self.ready:
            self.kill(f"not ready within {limit:g} s")

    async def _read(self) -> None:
        """Handles messages until the API server is of no more use."""
        assert self._channel
        while (message := await self._channel.receive()) is not None:
            kind = message.WhichOneof("message")
            self.heard += 1
            self._check(message)
            if kind == "ready":
                self._check_may_be_ready()
                self._note_ready(message.ready)
                self._make_idle()
            elif kind == "started":
                if message.started.session not in (self.session, self.restoring):
                    raise ChannelBroken(f"it speaks of session {message.started.session}, which it has not")
                self.served = True
                self._events.session_started(message.started.session)
            elif kind == "ended":
                self._check_may_be_over(message.ended.session)
                self._ended = message.ended.session
                self._must_clear(f"not ready in time after session {self._ended}")
                self._events.session_ended(self, message.ended)
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
                self._events.moving(self, message.moving)
            elif kind == "moved":
                self._events.moved(self, message.moved)
            elif kind == "taken_over":
                self._events.taken_over(self, message.taken_over.session)
            elif kind == "launched":
                self._events.launched(message.launched.session)
            elif kind == "shared":
                self._events.shared(message.shared.session)
            elif kind == "fetch":
                self._events.wanted(self, message.fetch)
            elif kind == "exported":
                self._events.exported(self, message.exported, self._channel.beside)
            elif kind == "resides":
                self._events.resides(self, message.resides)
            elif kind == "room_wanted":
                self._events.room_wanted(self, message.room_wanted)
            else:
                raise ChannelBroken("unknown message")

    def _must_clear(self, why: str) -> None:
        """It has no session in anybody's books, so that it must not go on for long with what it had."""
        self._is_clear()
        seconds = TENANTS_CLEAR_SECONDS if self._neighbourhood.tenants else CLEAR_SECONDS
        self._clearing = asyncio.get_running_loop().call_later(seconds, self.kill, why)

    def _is_clear(self) -> None:
        if self._clearing:
            self._clearing.cancel()
            self._clearing = None

    def _check(self, message: node_pb2.FromServer) -> None:
        """Raises ChannelBroken if it speaks of a session that it was never given."""
        kind = message.WhichOneof("message")
        session = getattr(getattr(message, kind), "session", 0) if kind in OF_A_SESSION + SHARING else 0
        if session and session not in self._given:
            raise ChannelBroken(f"it spoke of session {session}, which it was never given")

    def _note_ready(self, ready: node_pb2.Ready) -> None:
        """The first one counts: what it says when it has had a guest may be the guest's word."""
        if self.ready is not None:
            return
        self._describe(ready)
        if self._returns and self._record:
            self._record.ready = base64.b64encode(ready.SerializeToString()).decode()
            self._note()

    def _note(self) -> bool:
        """On a full disk it serves all the same, and the next monitor may not find it."""
        assert self._returns
        assert self._record
        try:
            self._returns.note(self._record)
        except OSError as error:
            self._complain(error)
            return False
        return True

    def note_files(self, session: int, files: Mapping[str, int]) -> bool:
        """Write down which files on a disk its session's copies have, and how large they may be: the next
        monitor wants to have them. False: what was written before stays.
        """
        if not self._returns or not self._record:
            return True
        self._record.session, self._record.files = session, dict(files)
        return self._note()

    def noted_files(self, session: int) -> Mapping[str, int]:
        """What an earlier monitor wrote down of them."""
        return self._record.files if self._record and self._record.session == session else {}

    @property
    def handed_back(self) -> Sequence[Descriptor]:
        """The files that came with the Returned, until it says something else."""
        return self._channel.beside if self._channel else ()

    def _complain(self, error: OSError) -> None:
        log.error("an API server may not outlive this monitor", server=self.pid, error=str(error))

    def _check_may_be_ready(self) -> None:
        """Raise ChannelBroken if it has a session of which it did not say that it is over."""
        held = self.session or self.restoring
        over = self.state is State.BUSY and held in (0, self._ended)
        if self.state is not State.STARTING and not over:
            raise ChannelBroken(f"ready {f'in the middle of session {held}' if held else 'once more'}")

    def _check_may_be_over(self, session: int) -> None:
        """Raise ChannelBroken if that is not the session that it has, or it has said so before: its turns
        would be counted anew, and its time to be ready, as often as it likes.
        """
        held = self.session or self.restoring or session
        if session in (0, self._ended) or session != held:
            again = "again" if session == self._ended else "and is not its own"
            raise ChannelBroken(f"it said that session {session} is over, {again}")

    def _make_idle(self) -> None:
        self._let_next_start()
        self._is_clear()
        self.session = self.restoring = 0
        self.ready_or_gone.set()
        if self.is_keeper:
            self.state = State.IDLE
            return
        if self.outdated:
            self.dismiss("of another version")
            return
        if self._neighbourhood.tenants and not (self._apart and not self._given):
            self.dismiss("tenants come: none gets the process that another had")
            return
        if self.own and self._given:
            self.dismiss("it was started for one session, which is over")
            return
        self.state = State.IDLE
        self._health.server_ready()
        self._events.server_ready(self)
        self._replenish(self.device)

    def _describe(self, ready: node_pb2.Ready) -> None:
        self.ready, self.welcome = ready, ready.welcome

    def _note_stats(self, stats: node_pb2.Stats) -> None:
        """What it said before a session was its own may arrive when it is."""
        if self.is_keeper:  # which knows nothing of what its session did before
            self.stats.session, self.stats.rss = stats.session, stats.rss
            self.stats.disconnected = stats.disconnected
        elif self.session and stats.session != self.session:
            self.stats.rss = stats.rss
        else:
            self.stats = stats

    def _answer_stats(self) -> None:
        for waiter in self._stats_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._stats_waiters.clear()

    def send(self, message: node_pb2.ToServer, *descriptors: HasFileno) -> None:
        """Send a message, with descriptors beside it. Raises ChannelBroken if the process is gone."""
        if not self._channel or self.state is State.STOPPING:
            raise ChannelBroken("stopping")
        self._channel.send(message, *descriptors)

    async def refresh_stats(self, limit: float) -> None:
        """Ask for new statistics and wait `limit` seconds at most; without an answer the last ones stay."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked = bool(self._stats_waiters)
        self._stats_waiters.append(waiter)
        try:
            if not asked:  # one that does not answer is not asked again and again
                self.send(node_pb2.ToServer(stats=node_pb2.StatsRequest()))
            await within(limit, waiter)
        except (ChannelBroken, asyncio.TimeoutError):
            pass
        finally:
            if waiter in self._stats_waiters:
                self._stats_waiters.remove(waiter)

    def serve(self, session: int) -> None:
        """The API server is about to serve this session."""
        self.session, self.restoring, self._ended = session, 0, 0
        self._given.append(session)
        self.state = State.BUSY
        self._events.session_granted(self, session)
        self._replenish(self.device)

    def expect(self, session: int) -> None:
        """The API server is about to take this session over, and does not have it yet."""
        self.session, self.restoring, self._ended = 0, session, 0
        self._given.append(session)
        self.state = State.BUSY
        self._events.session_granted(self, session)
        self._replenish(self.device)

    def inherit_stats(self, stats: node_pb2.Stats) -> None:
        """Go on from what its session counted elsewhere; what it said before it had the session is void."""
        if stats.session == self.restoring:
            rss = self.stats.rss
            self.stats = node_pb2.Stats()
            self.stats.CopyFrom(stats)
            self.stats.rss = rss

    def release_session(self) -> None:
        """Note that the session is elsewhere; the server is busy until what is left of it is cleared."""
        self.session = self.restoring = 0

    def dismiss(self, reason: str) -> None:
        """Ask the process to end; it serves nobody."""
        self.end_reason, self.dismissed = reason, True
        with contextlib.suppress(ChannelBroken):
            self.send(node_pb2.ToServer(shutdown=node_pb2.Shutdown()))
        self._must_clear(f"{reason}, and it did not end by itself")
        self.state = State.STOPPING

    def abandon(self, reason: str) -> None:
        """End the process now, for which there is no use any more: nothing is amiss with it."""
        self.dismissed = True
        self.kill(reason)

    def takes_too_much(self) -> bool:
        """Whether it has filled the disk with a file that its jail lets it write. Then that is gone."""
        stay = self._process.stay if self._process else None
        return stay is not None and stay.takes_too_much()

    def kill(self, reason: str = "") -> None:
        """End the process and whatever it started, now; one that is still being started, as soon as it is.

        `reason`: why it ended, for logs and for its session; if none is given, how its process exited.
        """
        self.end_reason = reason or self.end_reason
        self._killed = True
        if self._process and not self.gone:
            self._process.kill()


def _describe_exit(status: int | None) -> str:
    return "gone" if status is None else how_it_ended(status)
