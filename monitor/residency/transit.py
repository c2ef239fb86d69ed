"""Sessions' memory on its way: sent away, brought back, and where it is meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog
from gpuferry.specs._generated import node_pb2

from ..policy.place import Place, Residence
from ..pool.api_server import ApiServer
from .books import RESIDENT, Books, Entry
from .copies import Copies, NoRoom
from .files import CopyFile
from .orders import Orders

LEAVE_ATTEMPTS = 4  # with more room for copies each time: its program may map more meanwhile
FILES_MOST = 32  # on the disk, of one session: then its copies are made anew, in one

log = structlog.get_logger()


class Transit:
    """Orders to leave and to come back, on the event loop's thread."""

    def __init__(
        self,
        books: Books,
        servers: Mapping[int, ApiServer],
        orders: Orders,
        copies: Copies,
        spare: Callable[[], int],
        idle: Callable[[Entry, float], float],
    ) -> None:
        """`spare`: bytes that the copies of who leaves must leave for others'; `idle`: for how many seconds a
        session has been idle whose API server has been so for as many.
        """
        self._books = books
        self._servers = servers  # by key
        self._orders = orders
        self._copies = copies
        self._spare = spare
        self._idle = idle
        self.on_place: Callable[[int, Residence], None] | None = None  # hears where an API server's memory is
        self.leaving: set[int] = set()  # keys of API servers that were ordered to send theirs away
        self.returning: set[int] = set()  # keys of API servers that were ordered to bring theirs back

    async def send_away(
        self,
        entry: Entry,
        *,
        insist: bool = False,
        copy_only: bool = False,
        hurry: bool = False,
        spare: int | None = None,
    ) -> node_pb2.Resides:
        """`spare`: bytes that must be left for others' copies; None: what those of its device need. Raises
        NoRoom.
        """
        if entry.server in self.leaving:
            raise NoRoom("it is leaving already")
        if self._copies.are_given_up(entry.server):
            raise NoRoom("its copies are about to be given up")
        self.leaving.add(entry.server)
        if not copy_only:
            self.tell_arbiter(entry)
        try:
            began = time.monotonic()
            server = self._servers.get(entry.server)
            if len(entry.files) >= FILES_MOST:
                await self._copies.give_up(entry)
                if self._orders.is_late(entry.server):
                    raise NoRoom("its copies are about to be given up")
            wanted = server.stats.memory_mapped - entry.copy_bytes if server else 0
            entry.used_at = began - (self._idle(entry, server.stats.idle_seconds) if server else 0.0)
            if spare is None:
                spare = self._spare()
            for _ in range(LEAVE_ATTEMPTS):
                told = await self._leave(entry, wanted, insist, copy_only, hurry, spare)
                if not told.missing:
                    break
                wanted = told.missing
            if told.reason:
                # Files that it could not use count, and it would get no others for what it has already.
                if told.where == RESIDENT and told.host_bytes + told.disk_bytes < entry.copy_bytes:
                    await self._copies.give_up(entry)
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
            self.leaving.discard(entry.server)
            if not copy_only:
                self.tell_arbiter(entry)

    async def _leave(
        self, entry: Entry, wanted: int, insist: bool, copy_only: bool, hurry: bool, spare: int
    ) -> node_pb2.Resides:
        most = entry.quota * len(entry.devices)
        files = await self._copies.files(entry, min(wanted, most - entry.copy_bytes), copy_only, spare)
        # Copies that there are may all be untrue by now, whatever it says of itself.
        server = self._servers.get(entry.server)
        copied = min(server.stats.memory_mapped, most) if server else 0
        told = None
        try:
            order = node_pb2.Leave(
                session=entry.session,
                insist=insist,
                copy_only=copy_only,
                bytes=[file.size for file in files],
                on_disk=[file.on_disk for file in files],
            )
            late = partial(self._left_late, entry, files)
            told = await self._orders.give(entry, files, copied, hurry, late=late, leave=order)
        finally:
            self._copies.keep(entry, files, told is not None)
        if told is None:
            raise NoRoom("its API server is gone, or does not answer")
        return told

    def _left_late(self, entry: Entry, files: Sequence[CopyFile], told: node_pb2.Resides) -> None:
        """It has the files, whether its session has left or not."""
        self._copies.are_taken(entry, [file for file in files if file in entry.files])

    async def bring_back(self, entry: Entry, size: int) -> node_pb2.Resides | None:
        """Have the session's memory brought back to its device, where it may have so many bytes. Returns what
        its API server says; None: it is gone, or late.
        """
        began = time.monotonic()
        self.returning.add(entry.server)
        self.tell_arbiter(entry)
        try:
            order = node_pb2.ComeBack(session=entry.session, allowance=size)
            told = await self._orders.give(entry, size=size, hurry=True, come_back=order)
        finally:
            self.returning.discard(entry.server)
        if told is not None and not told.reason:
            entry.came_at = time.monotonic()
            entry.return_seconds = entry.came_at - began
            log.info(
                "session came back to its device",
                session=entry.session,
                copied=told.copied_bytes,
                seconds=told.seconds,
            )
        self.tell_arbiter(entry)
        return told

    def residence(self, key: int) -> Residence:
        """Where the memory is of the session that this API server has."""
        entry = self._books.get(key)
        if entry is None:
            return Residence(Place.HERE)
        if key in self.returning:
            place = Place.COMING
        elif key in self.leaving and not entry.away:
            place = Place.LEAVING
        else:
            place = Place.AWAY if entry.away else Place.HERE
        return Residence(place, entry.round_trip)

    def tell_arbiter(self, entry: Entry) -> None:
        if self.on_place and self._books.get(entry.server) is entry:
            self.on_place(entry.server, self.residence(entry.server))
