"""Makes room on devices that are promised more than once: sends sessions' memory away and brings it back."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import structlog
from gpuferry.guest.units import MOST
from gpuferry.specs._generated import node_pb2

from ..pool.api_server import ApiServer, PoolListener
from . import host
from .books import RESIDENT, Books, Entry
from .copies import Copies, NoRoom
from .files import PAGE, CopyFile
from .invocations import Invocations, Where
from .line import Wish
from .orders import OVER, Orders
from .outlook import Outlook, idle_bytes
from .policy import Candidate, Turn, leavers
from .spare import Spare
from .transit import Transit
from .wishes import LOOK_SECONDS, Wishes

ASK_SECONDS = 0.2  # for figures of sessions
READ_SECONDS = 10.0  # how old figures may be that nothing is decided by
OPERATOR_ASK_SECONDS = 5.0  # the same, where a person waits for what comes of it
AHEAD_SECONDS = 1.0  # without work, until a session's memory is copied ahead
FILES_SECONDS = 1.0  # between looks how large the files of copies are

log = structlog.get_logger()


class Steward(PoolListener):
    """Where sessions' memory is, on the event loop's thread."""

    def __init__(
        self,
        oversubscribe: float,
        host_memory: int,
        disk: int,
        folder: Path,
        available: Callable[[], int] | None = None,
        expected: int = 0,
    ) -> None:
        """`host_memory`, `disk`: bytes that copies may have there; `folder`: on the disk; `available`: bytes
        of host memory that there are; None: as the machine says. `expected`: how many devices it has.
        """
        self.oversubscribe = oversubscribe
        self._expected = expected
        self.books = Books(host_memory, disk)
        self.invocations = Invocations()
        self._lost: set[int] = set()  # devices
        self._looked = -math.inf  # when it last had fresh figures of all
        self._servers: dict[int, ApiServer] = {}
        # Moves a session to another device, or says why not.
        self.on_stranded: Callable[[int, int], str | None] = lambda session, device: "nobody moves sessions"
        self._orders = Orders(self._servers, self._note)
        self._copies = Copies(
            self.books,
            folder,
            self._orders,
            self.is_busy,
            self._is_wanted,
            self._note_files,
            available or host.Recent(),
        )
        self.wishes = Wishes(self.books, self._servers, self._orders, self, self.elastic)
        self._spare = Spare(self.books, self._copies, self.wishes.used, self.wishes.stays)
        self.transit = Transit(
            self.books, self._servers, self._orders, self._copies, self._spare.needed, self._idle
        )

    @property
    def elastic(self) -> bool:
        """Whether more is promised than there is."""
        return self.oversubscribe > 1

    # -- what happens

    def grantable(self, device: int, memory: int) -> int:
        """How many bytes of a device with so much memory may be promised."""
        before = self.gpus()
        self.books.add_device(device, memory)
        self._lost.discard(device)
        if self.gpus() != before:
            self.invocations.gpus_changed()
        promised = min(int(memory * self.oversubscribe), MOST)  # which is what can be told of
        return promised // PAGE * PAGE if self.elastic else memory

    def gpus(self) -> dict[int, int]:
        """Bytes for sessions of each device that works."""
        return {device: memory for device, memory in self.books.memory().items() if device not in self._lost}

    @property
    def expects_more(self) -> bool:
        """Whether there are devices of which it is not known yet if they work."""
        return len(self.books.memory().keys() | self._lost) < self._expected

    def device_lost(self, device: int, reason: str) -> None:
        self._lost.add(device)
        self.invocations.gpus_changed()

    def begin(self, server: ApiServer, grant: node_pb2.Grant) -> None:
        """The API server is about to be told of a session: how much of it may be on the device goes into its
        Grant.
        """
        self._servers[server.key] = server
        self._copies.are_gone(self.books.get(server.key))
        # What is free may have been made so for one of those that wait, or are away.
        asks = any(
            self.wishes.line(device) or any(one.away for one in self.books.on(device))
            for device in server.devices
        )
        entry = self.books.begin(server.key, grant.session, server.devices, grant.memory_quota, asks)
        if len(entry.devices) > 1 and not self.wishes.fits(entry, entry.allowance):
            self.books.allow(
                entry, 0
            )  # it will not leave: it has what it uses, as far as that leaves a place
        self.books.name(entry, grant.program_id)
        grant.elastic, grant.allowance = self.elastic, entry.allowance
        self._tell_invoker(entry.program)

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        if server.is_keeper:
            return
        told = returned.resides
        told.session = returned.grant.session
        self._servers[server.key] = server
        quota, elastic = returned.grant.memory_quota, returned.grant.elastic
        entry = self.books.adopt(server.key, server.devices, quota, told, elastic)
        complete = self._copies.take_back(entry, server.handed_back, server.noted_files(entry.session))
        entry.hides_files = not complete and not server.trusted
        self.books.name(entry, returned.grant.program_id)
        self._tell_invoker(entry.program)

    def _note_files(self, entry: Entry, files: Sequence[CopyFile]) -> bool:
        server = self._servers.get(entry.server)
        taken = {file.name: file.size for file in files if file.taken}
        return not server or server.note_files(entry.session, taken)

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        if ended.clean:
            self._forget(server, lost=False)

    def server_lost(self, server: ApiServer) -> None:
        self._forget(server, lost=True)

    def _forget(self, server: ApiServer, lost: bool) -> None:
        self._servers.pop(server.key, None)
        if ended := self.books.end(server.key):
            self._copies.are_gone(ended)
            self._tell_invoker(ended.program, lost)
        self.wishes.drop(server.key)

    def _tell_invoker(self, program: bytes, lost: bool = False) -> None:
        """Tell who invokes the program where its memory is."""
        if not program:
            return
        if entries := self.books.of_program(program):
            away = any(one.away for one in entries)
            first, *others = entries[-1].devices
            self.invocations.is_at(program, Where(first, not away, tuple(others)))
        else:
            self.invocations.is_gone(program, lost)

    def resides(self, server: ApiServer, told: node_pb2.Resides) -> None:
        """An order was carried out, or was not; be it an earlier monitor's, under way when this one came."""
        entry = self.books.get(server.key)
        ours = self._orders.answered(server, told)
        if not ours and entry and entry.under_way and told.session == entry.session:
            self._note(entry, told, late=True)

    def room_wanted(self, server: ApiServer, wanted: node_pb2.RoomWanted) -> None:
        """A session waits for its memory, or for more of it."""
        if entry := self.books.get(server.key):
            self.wishes.add(entry, Wish(wanted.bytes, wanted.away, time.monotonic()))

    # -- copies ahead

    async def run(self) -> None:
        """Where more is promised than there is, make copies of what idle sessions have, so that they leave at
        once when somebody needs their room. Until cancelled.
        """
        while True:
            await asyncio.sleep(AHEAD_SECONDS)
            for device in self.books.crowded():
                await self._copy_ahead(device)

    async def watch_files(self) -> None:
        """End whoever makes a file of its copies larger than it may be, until cancelled. Not beside copies
        ahead, for each of which an API server may take minutes.
        """
        while True:
            await asyncio.sleep(FILES_SECONDS)
            self._end_liars()

    def _end_liars(self) -> None:
        for server in [self._servers[key] for key in self.books.liars() if key in self._servers]:
            log.error("an API server has more of the disk than it was given", server=server.pid)
            server.kill("it has more of the disk than it was given")

    async def _copy_ahead(self, device: int) -> None:
        await self.refresh(device)
        for one in self._candidates(device):
            key = self._server_of(one.session)
            entry = self.books.get(key) if key is not None else None
            if (
                entry is None
                or one.stays
                or one.idle < AHEAD_SECONDS
                or entry.copied_calls == self._calls_of(entry)
            ):
                continue
            if self.wishes.line(device):
                return  # what somebody waits for comes first
            with contextlib.suppress(NoRoom):
                calls = self._calls_of(entry)
                await self.transit.send_away(entry, copy_only=True, spare=0)
                entry.copied_calls = calls

    def _calls_of(self, entry: Entry) -> int:
        """How many calls its program has made."""
        stats = self._servers[entry.server].stats
        return stats.calls_async + stats.calls_sync

    # -- room

    async def make_room(self, device: int, key: int, wish: Wish, lack: int) -> bool:
        """See to it that somebody's memory leaves the device, for this wish that lacks so many bytes. Returns
        False if nobody may go now.
        """
        await self.refresh(device)
        if await self._trim(device, key):
            return True
        able = [
            one
            for one in self._candidates(device)
            if self._server_of(one.session) != key and one.session not in wish.spared
        ]
        chosen = leavers(able, lack, time.monotonic() - wish.since, wish.ahead)
        # Of one that comes back, the copies are needless then.
        spare = 0 if wish.away else self._spare.needed(self.books.get(key), wish.bytes)
        orders = (self._try_to_send(one.session, one.idle == 0, spare) for one in chosen)
        left = await asyncio.gather(*orders)
        return any(left)

    async def _try_to_send(self, session: int, insist: bool, spare: int) -> bool:
        key = self._server_of(session)
        entry = self.books.get(key) if key is not None else None
        if entry is None:
            return False
        try:
            await self.transit.send_away(entry, insist=insist, hurry=True, spare=spare)
        except NoRoom as error:
            log.debug("a session did not leave its device", session=session, reason=str(error))
            return False
        return True

    async def bring_back(self, entry: Entry, size: int) -> node_pb2.Resides | None:
        return await self.transit.bring_back(entry, size)

    def shuts_out(self, entry: Entry, size: int) -> bool:
        return self._spare.shuts_out(entry, size)

    async def _trim(self, device: int, key: int) -> bool:
        """What sessions may have and do not use is taken back. Whether there was any."""
        before, orders = self.books.free(device), []
        for entry in self.books.on(device):
            fixed = entry.server == key or entry.away or self._orders.is_late(entry.server)
            if not fixed and entry.allowance > self.wishes.used(entry):
                allow = node_pb2.Allow(session=entry.session, allowance=0)
                orders.append(self._orders.give(entry, hurry=True, allow=allow))
        await asyncio.gather(*orders)
        return self.books.free(device) > before

    async def refresh(self, device: int) -> None:
        """Ask all that have memory of the device for their figures."""
        servers = [self._servers[one.server] for one in self.books.on(device) if one.server in self._servers]
        await asyncio.gather(*(server.refresh_stats(ASK_SECONDS) for server in servers))

    async def look(self) -> None:
        """Have fresh figures of all sessions; where nobody's memory has to leave for others, and people alone
        read them, those of a few seconds ago will do.
        """
        now = time.monotonic()
        if self.elastic or now >= self._looked + READ_SECONDS:
            self._looked = now
            await asyncio.gather(*(self.refresh(device) for device in self.gpus()))

    def _candidates(self, device: int) -> list[Candidate]:
        now = time.monotonic()
        found = []
        for entry in self.books.on(device):
            server = self._servers.get(entry.server)
            if server is None or entry.away or self.is_busy(entry.server):
                continue
            stats = server.stats
            if stats.session != entry.session:
                continue
            found.append(
                Candidate(
                    entry.session,
                    min(stats.memory_mapped, entry.allowance),
                    self._idle(entry, stats.idle_seconds),
                    now - entry.came_at,
                    entry.round_trip,
                    bool(stats.stays),
                    Turn(stats.turn),
                    stats.turn_ago if stats.turn_ago >= 0 else math.inf,
                )
            )
        return found

    def _idle(self, entry: Entry, seconds: float) -> float:
        """Who is in an invocation works, whatever it does meanwhile."""
        runs = self.invocations.runs(entry.program)
        return 0.0 if runs else seconds

    def _server_of(self, session: int) -> int | None:
        """The key of the API server that has the session."""
        return next((key for key, server in self._servers.items() if server.session == session), None)

    # -- what is asked of it by those who carry it out

    def is_busy(self, key: int) -> bool:
        """Return whether the API server has an order that must be over before it gets another one."""
        return key in self.transit.leaving or self._copies.are_given_up(key) or self._orders.is_late(key)

    def _is_wanted(self, entry: Entry) -> bool:
        """Whether the session comes back, or waits to."""
        return entry.server in self.transit.returning or entry.server in self.wishes.line(entry.devices[0])

    def _note(self, entry: Entry, told: node_pb2.Resides, late: bool) -> None:
        entry.note(told)
        if entry.away:
            self.wishes.is_away(entry)
        self._tell_invoker(entry.program)
        if self.elastic:
            self.books.allow(entry, told.allowance)
        if late:
            self.transit.tell_arbiter(entry)

    # -- what others want

    def anticipate(self, session: int) -> None:
        """The session will soon work: bring it back."""
        key = self._server_of(session)
        entry = self.books.get(key) if key is not None else None
        if entry and entry.away and key not in self.wishes.line(entry.devices[0]):
            self.wishes.add(entry, Wish(entry.needs, True, time.monotonic()))

    def turn_comes(self, session: int, spared: Collection[int]) -> None:
        """It is, or is about to be, the session's turn; those of `spared` have theirs."""
        key = self._server_of(session)
        entry = self.books.get(key) if key is not None else None
        if key is None or entry is None or not entry.away:
            return
        known = self.wishes.line(entry.devices[0]).get(key)
        if known is None or known.ahead:
            self.wishes.add(entry, Wish(entry.needs, True, time.monotonic(), ahead=True, spared=spared))

    def expect(self, program: bytes) -> None:
        """An invocation of the program begins, or will: bring back what it has."""
        for entry in self.books.of_program(program):
            self.anticipate(entry.session)

    def move(self, program: bytes, gpu: int, begin: Callable[[int, int], str | None]) -> None:
        """An invocation of the program is expected on this GPU. `begin` moves a session there, or says why
        not; then who invokes it is told where its memory is.
        """
        for entry in self.books.of_program(program):
            if entry.devices != (gpu,) and (why := begin(entry.session, gpu)):
                log.debug("a session was not moved", session=entry.session, gpu=gpu, reason=why)
                self._tell_again(program)

    def rehouse(self, entry: Entry, devices: Sequence[int]) -> None:
        """The session's memory finds no place on its device beside what stays there; on these it would."""
        reason = "no other GPU has a place for it"
        for device in devices:
            if not (refusal := self.on_stranded(entry.session, device)):
                return
            reason = f"GPU {device}: {refusal}"
        log.warning(
            "a session finds no place beside what does not leave its GPU",
            session=entry.session,
            gpu=entry.devices[0],
            reason=reason,
        )

    async def dismiss(self, program: bytes) -> None:
        """No invocation of the program is expected: send away what it has, if that can be. Who invokes it is
        told where its memory is, be it where it was.
        """
        for entry in self.books.of_program(program):
            if entry.away or self.invocations.runs(program):
                continue
            try:
                await self._servers[entry.server].refresh_stats(ASK_SECONDS)
                if not self.invocations.runs(program):  # none has begun meanwhile
                    await self.transit.send_away(entry)
            except (NoRoom, KeyError) as error:
                log.debug("a session did not leave its device", session=entry.session, reason=str(error))
        self._tell_again(program)

    def _tell_again(self, program: bytes) -> None:
        self.invocations.is_gone(program)
        self._tell_invoker(program)

    async def evict(self, session: int) -> node_pb2.Resides:
        """Send a session away, as an operator wants, also if it moves meanwhile. Raises KeyError, or NoRoom:
        why not.
        """
        while True:
            entry = self._entry_of(session)
            try:
                return await self._evict(entry, session)
            except NoRoom as error:
                if str(error) != OVER and self._server_of(session) == entry.server:
                    raise
            while self._server_of(session) == entry.server:  # it has moved, or is over: that is heard next
                await asyncio.sleep(LOOK_SECONDS)

    async def _evict(self, entry: Entry, session: int) -> node_pb2.Resides:
        # Or its copies are being made ahead; or it is back, which its program knows before we do.
        while entry.server in self.transit.leaving | self.transit.returning or self._copies.are_given_up(
            entry.server
        ):
            await asyncio.sleep(LOOK_SECONDS)
        if entry.away:
            raise NoRoom("it is away already")
        if server := self._servers.get(entry.server):
            await server.refresh_stats(OPERATOR_ASK_SECONDS)
        if self.books.get(entry.server) is not entry:
            raise NoRoom(OVER)
        return await self.transit.send_away(entry, insist=True)

    async def recall(self, session: int, patience: float) -> Entry:
        """Bring a session back, as an operator wants. Raises KeyError, or NoRoom: why not."""
        entry = self._entry_of(session)
        await self._servers[entry.server].refresh_stats(OPERATOR_ASK_SECONDS)
        deadline = time.monotonic() + patience
        while entry.where != RESIDENT or entry.server in self.transit.leaving:
            self.anticipate(session)  # again: it may have been leaving, or somebody moved it, and did not
            if time.monotonic() > deadline:
                raise NoRoom(f"there was no room on its GPU for {patience:g} s")
            await asyncio.sleep(LOOK_SECONDS)
            try:
                entry = self._entry_of(session)  # it may have moved
            except KeyError:
                raise NoRoom("the session is over, or is suspended") from None
        return entry

    def _entry_of(self, session: int) -> Entry:
        key = self._server_of(session)
        entry = self.books.get(key) if key is not None else None
        if entry is None:
            raise KeyError(session)
        return entry

    def copies_left(self) -> tuple[int, int]:
        """Bytes that copies may still have of host memory and of the disk."""
        return self._copies.host_left, self.books.disk_free

    def outlook(self, device: int, copies_left: int) -> Outlook:
        """What there is of the device's memory. `copies_left`: bytes for copies of what leaves."""
        here = {one.session: one for one in self._candidates(device)}
        resident = [(entry, here[entry.session]) for entry in self.books.on(device) if entry.session in here]
        memory = self.gpus().get(device, 0)
        return Outlook(
            memory,
            memory - self.books.free(device),
            idle_bytes(resident, copies_left) if self.elastic else 0,
            sum(self.wishes.used(entry) for entry in self.books.on(device) if entry.away),
        )

    def entries(self) -> dict[int, Entry]:
        """Return, for each session that has memory here, where it is."""
        found = ((server.session, self.books.get(key)) for key, server in self._servers.items())
        return {session: entry for session, entry in found if entry}
