"""Makes room on devices that are promised more than once: sends sessions' memory away and brings it back."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from gpuferry.specs._generated import node_pb2

from ..policy.place import Place, Residence
from ..pool.api_server import ApiServer, PoolListener
from .books import RESIDENT, Books, Entry
from .copies import Copies, NoRoom
from .files import PAGE, CopyFile
from .invocations import Invocations, Where
from .orders import Orders
from .policy import Candidate, Turn, leavers

ASK_SECONDS = 0.2  # for figures of sessions
AHEAD_SECONDS = 1.0  # without work, until a session's memory is copied ahead
LEAVE_ATTEMPTS = 4  # with more room for copies each time: its program may map more meanwhile
LOOK_SECONDS = 0.01  # until who works is looked at again
SLACK = 64 << 20  # bytes
FILES_MOST = 32  # on the disk, of one session: then its copies are made anew, in one
CALL_SECONDS = 25.0  # at the head of the line, and nobody makes room: then a call is out of memory

log = structlog.get_logger()


@dataclass
class Wish:
    """What a session waits for: so many bytes on its device."""

    bytes: int
    away: bool
    since: float
    ahead: bool = False  # it has no turn yet: others come first, and nobody who has one leaves for it
    spared: Collection[int] = ()  # sessions that do not leave for it


class Steward(PoolListener):
    """Where sessions' memory is, on the event loop's thread. Wishes of a device are granted in the order in
    which they came: so nobody starves, and no two take the room that was made for one of them.
    """

    def __init__(self, oversubscribe: float, host_memory: int, disk: int, folder: Path) -> None:
        self.oversubscribe = oversubscribe
        self.books = Books(host_memory, disk)
        self.invocations = Invocations()
        self._lost: set[int] = set()  # devices
        self._servers: dict[int, ApiServer] = {}
        self._wishes: dict[int, dict[int, Wish]] = {}  # by device and key of the API server
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by device
        self._returning: set[int] = set()  # keys of API servers that were ordered to bring theirs back
        self.on_place: Callable[[int, Residence], None] | None = None  # hears where an API server's memory is
        self._leaving: set[int] = set()  # keys of API servers that were ordered to send theirs away
        self._orders = Orders(self._servers, self._note)
        self._copies = Copies(
            self.books, folder, self._orders, self._is_busy, self._is_wanted, self._note_files
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
        return int(memory * self.oversubscribe) // PAGE * PAGE if self.elastic else memory

    def gpus(self) -> dict[int, int]:
        """Bytes for sessions of each device that works."""
        return {device: memory for device, memory in self.books.memory().items() if device not in self._lost}

    def device_lost(self, device: int, reason: str) -> None:
        self._lost.add(device)
        self.invocations.gpus_changed()

    def begin(self, server: ApiServer, grant: node_pb2.Grant) -> None:
        """The API server is about to be told of a session: how much of it may be on the device goes into its
        Grant.
        """
        self._servers[server.key] = server
        self._copies.are_gone(self.books.get(server.key))
        entry = self.books.begin(server.key, grant.session, server.devices, grant.memory_quota)
        self.books.name(entry, grant.program_id)
        grant.elastic, grant.allowance = self.elastic, entry.allowance
        self._tell_invoker(entry.program)

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        if server.is_keeper:
            return
        told = returned.resides
        told.session = returned.grant.session
        self._servers[server.key] = server
        entry = self.books.adopt(server.key, server.devices, returned.grant.memory_quota, told)
        complete = self._copies.take_back(entry, server.handed_back, server.noted_files(entry.session))
        entry.hides_files = not complete and not server.trusted
        self.books.name(entry, returned.grant.program_id)
        self._tell_invoker(entry.program)

    def _note_files(self, entry: Entry, files: Sequence[CopyFile]) -> bool:
        server = self._servers.get(entry.server)
        return not server or server.note_files(entry.session, {file.name: file.size for file in files})

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
        for wishes in self._wishes.values():
            wishes.pop(server.key, None)

    def _tell_invoker(self, program: bytes, lost: bool = False) -> None:
        """Tell who invokes the program where its memory is."""
        if not program:
            return
        if entries := self.books.of_program(program):
            away = any(one.away for one in entries)
            self.invocations.is_at(program, Where(entries[-1].devices[0], not away))
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
        self._wish(server, Wish(wanted.bytes, wanted.away, time.monotonic()))

    def _wish(self, server: ApiServer, wish: Wish) -> None:
        entry = self.books.get(server.key)
        if entry is None or server.several:
            return
        device = server.device
        known = self._wishes.setdefault(device, {}).get(server.key)
        # No session needs more than it was granted, whatever its API server says: others would leave for it.
        wish = replace(wish, bytes=min(wish.bytes, entry.quota))
        self._wishes[device][server.key] = replace(wish, since=known.since) if known else wish
        if device not in self._tasks:
            self._tasks[device] = asyncio.ensure_future(self._grant_wishes(device))

    # -- copies ahead

    async def run(self) -> None:
        """Where more is promised than there is, make copies of what idle sessions have, so that they leave at
        once when somebody needs their room. Until cancelled.
        """
        while True:
            await asyncio.sleep(AHEAD_SECONDS)
            self._end_liars()
            for device in self.books.crowded():
                await self._copy_ahead(device)

    def _end_liars(self) -> None:
        for server in [self._servers[key] for key in self.books.liars() if key in self._servers]:
            log.error("an API server has more of the disk than it was given", server=server.pid)
            server.kill("it has more of the disk than it was given")

    async def _copy_ahead(self, device: int) -> None:
        await self._refresh(device)
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
            if self._wishes.get(device):
                return  # what somebody waits for comes first
            with contextlib.suppress(NoRoom):
                calls = self._calls_of(entry)
                await self._send_away(entry, copy_only=True)
                entry.copied_calls = calls

    def _calls_of(self, entry: Entry) -> int:
        """How many calls its program has made."""
        stats = self._servers[entry.server].stats
        return stats.calls_async + stats.calls_sync

    # -- wishes

    async def _grant_wishes(self, device: int) -> None:
        wishes = self._wishes[device]
        try:
            while wishes:
                await self._grant(device, self._first(device))
        except Exception:
            log.exception("room could not be made", gpu=device)
        finally:
            del self._tasks[device]
            if wishes:
                self._tasks[device] = asyncio.ensure_future(self._grant_wishes(device))

    async def _grant(self, device: int, key: int) -> None:
        """The oldest wish: it is granted, refused, or void, or another one comes before it."""
        wishes = self._wishes[device]
        moment = time.monotonic()  # when there was last more room than before
        while (wish := wishes.get(key)) and (entry := self.books.get(key)):
            if self._first(device) != key:
                return
            if self._is_busy(key):  # an operator sends it away, say: it will say again what it wants
                await asyncio.sleep(LOOK_SECONDS)
                continue
            lack = wish.bytes - entry.allowance - self.books.free(device) if self.elastic else 0
            if lack <= 0:
                if await self._give(entry, wish):
                    if wishes.get(key) is wish:
                        del wishes[key]
                    return
                lack = PAGE  # the device itself has less than is in the books
            if not wish.away and time.monotonic() > moment + CALL_SECONDS:
                refusal = node_pb2.Allow(session=entry.session, allowance=entry.allowance, refused=True)
                wishes.pop(key)
                await self._orders.give(entry, hurry=True, allow=refusal)
                return
            if await self._make_room(device, key, wish, lack):
                moment = time.monotonic()
            else:
                await asyncio.sleep(LOOK_SECONDS)
        wishes.pop(key, None)

    def _first(self, device: int) -> int:
        """Whose wish is granted next: the oldest one of those that are not for a turn to come. Who carries
        another order out has its turn when that is over, and whose memory finds no place beside what stays
        on the device holds up nobody until that has ended.
        """
        wishes = self._wishes[device]
        able = {key: wish for key, wish in wishes.items() if not self._is_busy(key)} or wishes
        able = {key: wish for key, wish in able.items() if self._can_be_granted(device, key, wish)} or able
        return next((key for key, wish in able.items() if not wish.ahead), next(iter(able)))

    def _can_be_granted(self, device: int, key: int, wish: Wish) -> bool:
        """Whether there is room once everybody has left who can. A call that wants more has its own limit,
        and is refused at the head of the line.
        """
        if not wish.away:
            return True
        stays = sum(self._that_stays(one) for one in self.books.on(device) if one.server != key)
        return wish.bytes <= self.books.memory()[device] - stays

    def _that_stays(self, entry: Entry) -> int:
        """Bytes that the entry's session has on each of its devices and that cannot leave."""
        if len(entry.devices) > 1:
            return entry.allowance
        stats = self._servers[entry.server].stats if entry.server in self._servers else None
        if not stats or stats.session != entry.session or not stats.stays:
            return 0
        return min(stats.memory_mapped, entry.allowance)

    async def _give(self, entry: Entry, wish: Wish) -> bool:
        """There is room for it."""
        before = entry.allowance
        self.books.allow(entry, wish.bytes)
        if not wish.away:
            # A little more, where nobody else has it: who grows need not ask each time.
            more = max(0, min(SLACK, entry.quota - wish.bytes, self.books.free(entry.devices[0])))
            self.books.allow(entry, wish.bytes + more)
            allow = node_pb2.Allow(session=entry.session, allowance=entry.allowance)
            told = await self._orders.give(entry, hurry=True, allow=allow)
            return told is not None or self._orders.is_late(entry.server)
        told = await self._bring_back(entry, wish.bytes)
        if told is None and self._orders.is_late(entry.server):
            return True  # what it was allowed stays its own until it answers
        if told is None or told.reason:
            self.books.allow(entry, before)
            return told is not None and told.reason == "the session is over"
        return True

    async def _make_room(self, device: int, key: int, wish: Wish, lack: int) -> bool:
        """Somebody's memory leaves the device. False: nobody may go now."""
        await self._refresh(device)
        if await self._trim(device, key):
            return True
        able = [
            one
            for one in self._candidates(device)
            if self._server_of(one.session) != key and one.session not in wish.spared
        ]
        chosen = leavers(able, lack, time.monotonic() - wish.since, wish.ahead)
        left = await asyncio.gather(*(self._try_to_send(one.session, one.idle == 0) for one in chosen))
        return any(left)

    async def _try_to_send(self, session: int, insist: bool) -> bool:
        key = self._server_of(session)
        entry = self.books.get(key) if key is not None else None
        if entry is None:
            return False
        try:
            await self._send_away(entry, insist=insist, hurry=True)
        except NoRoom as error:
            log.debug("a session did not leave its device", session=session, reason=str(error))
            return False
        return True

    async def _trim(self, device: int, key: int) -> bool:
        """What sessions may have and do not use is taken back. Whether there was any."""
        before, orders = self.books.free(device), []
        for entry in self.books.on(device):
            server = self._servers.get(entry.server)
            used = server.stats.memory_mapped if server and server.stats.session == entry.session else 0
            late = self._orders.is_late(entry.server)
            fixed = entry.server == key or entry.away or len(entry.devices) > 1 or late
            if not fixed and entry.allowance > used:
                allow = node_pb2.Allow(session=entry.session, allowance=0)
                orders.append(self._orders.give(entry, hurry=True, allow=allow))
        await asyncio.gather(*orders)
        return self.books.free(device) > before

    async def _refresh(self, device: int) -> None:
        servers = [self._servers[one.server] for one in self.books.on(device) if one.server in self._servers]
        await asyncio.gather(*(server.refresh_stats(ASK_SECONDS) for server in servers))

    def _candidates(self, device: int) -> list[Candidate]:
        now = time.monotonic()
        found = []
        for entry in self.books.on(device):
            server = self._servers.get(entry.server)
            if server is None or entry.away or self._is_busy(entry.server):
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

    # -- leaving and coming back

    def _is_busy(self, key: int) -> bool:
        """Whether the API server has an order that must be over before it gets another one."""
        return key in self._leaving or self._orders.is_late(key)

    def _is_wanted(self, entry: Entry) -> bool:
        """Whether the session comes back, or waits to."""
        return entry.server in self._wishes.get(entry.devices[0], {}).keys() | self._returning

    def _note(self, entry: Entry, told: node_pb2.Resides, late: bool) -> None:
        entry.where = told.where
        self._tell_invoker(entry.program)
        if len(entry.devices) == 1 and self.elastic:
            self.books.allow(entry, told.allowance)
        if late:
            self._tell_arbiter(entry)

    async def _send_away(
        self, entry: Entry, *, insist: bool = False, copy_only: bool = False, hurry: bool = False
    ) -> node_pb2.Resides:
        """Raises NoRoom."""
        if entry.server in self._leaving:
            raise NoRoom("it is leaving already")
        self._leaving.add(entry.server)
        if not copy_only:
            self._tell_arbiter(entry)
        try:
            began = time.monotonic()
            server = self._servers.get(entry.server)
            if len(entry.files) >= FILES_MOST:
                await self._copies.give_up(entry)
                if self._orders.is_late(entry.server):
                    raise NoRoom("its copies are about to be given up")
            wanted = server.stats.memory_mapped - entry.copy_bytes if server else 0
            entry.used_at = began - (self._idle(entry, server.stats.idle_seconds) if server else 0.0)
            for _ in range(LEAVE_ATTEMPTS):
                told = await self._leave(entry, wanted, insist, copy_only, hurry)
                if not told.missing:
                    break
                wanted = told.missing
            if told.reason:
                raise NoRoom(told.reason)
            if copy_only:
                return told
            entry.leave_seconds = time.monotonic() - began
            log.info(
                "session left its device",
                session=entry.session,
                copied=told.copied_bytes,
                seconds=told.seconds,
            )
            return told
        finally:
            self._leaving.discard(entry.server)
            if not copy_only:
                self._tell_arbiter(entry)

    async def _leave(
        self, entry: Entry, wanted: int, insist: bool, copy_only: bool, hurry: bool
    ) -> node_pb2.Resides:
        most = entry.quota * len(entry.devices) - entry.copy_bytes
        files = await self._copies.files(entry, min(wanted, most), ahead=copy_only)
        try:
            order = node_pb2.Leave(
                session=entry.session,
                insist=insist,
                copy_only=copy_only,
                bytes=[file.size for file in files],
                on_disk=[file.on_disk for file in files],
            )
            told = await self._orders.give(entry, files, wanted, hurry, leave=order)
        finally:
            self._copies.keep(entry, files)
        if told is None:
            raise NoRoom("its API server is gone, or does not answer")
        return told

    async def _bring_back(self, entry: Entry, size: int) -> node_pb2.Resides | None:
        began = time.monotonic()
        self._returning.add(entry.server)
        self._tell_arbiter(entry)
        try:
            order = node_pb2.ComeBack(session=entry.session, allowance=size)
            told = await self._orders.give(entry, size=size, hurry=True, come_back=order)
        finally:
            self._returning.discard(entry.server)
        if told is not None and not told.reason:
            entry.came_at = time.monotonic()
            entry.return_seconds = entry.came_at - began
            log.info(
                "session came back to its device",
                session=entry.session,
                copied=told.copied_bytes,
                seconds=told.seconds,
            )
        self._tell_arbiter(entry)
        return told

    # -- what is told to those who hand out turns

    def residence(self, key: int) -> Residence:
        """Where the memory is of the session that this API server has."""
        entry = self.books.get(key)
        if entry is None:
            return Residence(Place.HERE)
        if key in self._returning:
            place = Place.COMING
        elif key in self._leaving and not entry.away:
            place = Place.LEAVING
        else:
            place = Place.AWAY if entry.away else Place.HERE
        return Residence(place, entry.round_trip)

    def _tell_arbiter(self, entry: Entry) -> None:
        if self.on_place and self.books.get(entry.server) is entry:
            self.on_place(entry.server, self.residence(entry.server))

    # -- what others want

    def anticipate(self, session: int) -> None:
        """The session will soon work: bring it back."""
        key = self._server_of(session)
        entry = self.books.get(key) if key is not None else None
        if key is not None and entry and entry.away and key not in self._wishes.get(entry.devices[0], {}):
            server = self._servers[key]
            self._wish(server, Wish(server.stats.memory_mapped, True, time.monotonic()))

    def turn_comes(self, session: int, spared: Collection[int]) -> None:
        """It is, or is about to be, the session's turn; those of `spared` have theirs."""
        key = self._server_of(session)
        entry = self.books.get(key) if key is not None else None
        if key is None or entry is None or not entry.away:
            return
        known = self._wishes.get(entry.devices[0], {}).get(key)
        if known is None or known.ahead:
            server = self._servers[key]
            size = server.stats.memory_mapped
            self._wish(server, Wish(size, True, time.monotonic(), ahead=True, spared=spared))

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
                    await self._send_away(entry)
            except (NoRoom, KeyError) as error:
                log.debug("a session did not leave its device", session=entry.session, reason=str(error))
        self._tell_again(program)

    def _tell_again(self, program: bytes) -> None:
        self.invocations.is_gone(program)
        self._tell_invoker(program)

    async def evict(self, session: int) -> node_pb2.Resides:
        """Send a session away, as an operator wants. Raises KeyError, or NoRoom: why not."""
        entry = self._entry_of(session)
        # Or its copies are being made ahead; or it is back, which its program knows before we do.
        while entry.server in self._leaving | self._returning:
            await asyncio.sleep(LOOK_SECONDS)
        if entry.away:
            raise NoRoom("it is away already")
        if self.books.get(entry.server) is not entry:
            raise KeyError(session)
        await self._servers[entry.server].refresh_stats(ASK_SECONDS)
        return await self._send_away(entry, insist=True)

    async def recall(self, session: int, patience: float) -> Entry:
        """Bring a session back, as an operator wants. Raises KeyError, or NoRoom: why not."""
        entry = self._entry_of(session)
        await self._servers[entry.server].refresh_stats(ASK_SECONDS)
        self.anticipate(session)
        deadline = time.monotonic() + patience
        while entry.where != RESIDENT:
            if self.books.get(entry.server) is not entry:
                raise NoRoom("the session is over")
            if time.monotonic() > deadline:
                raise NoRoom(f"there was no room on its GPU for {patience:g} s")
            await asyncio.sleep(LOOK_SECONDS)
        return entry

    def _entry_of(self, session: int) -> Entry:
        key = self._server_of(session)
        entry = self.books.get(key) if key is not None else None
        if entry is None:
            raise KeyError(session)
        return entry

    def entries(self) -> dict[int, Entry]:
        """Return, for each session that has memory here, where it is."""
        found = ((server.session, self.books.get(key)) for key, server in self._servers.items())
        return {session: entry for session, entry in found if entry}
