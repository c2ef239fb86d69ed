"""Wishes for room on devices: whose turn it is, what it gets, and who is told that there is none."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import structlog
from gpuferry.specs._generated import node_pb2

from ..pool.api_server import ApiServer
from .books import Books, Entry
from .files import PAGE
from .line import Line, Wish
from .orders import Orders

LOOK_SECONDS = 0.01  # until who works is looked at again
STUCK_SECONDS = 0.1  # likewise, where nobody's memory finds a place
FAILED_SECONDS = 1.0  # until it is tried again where that was a defect, which may be there for good
SLACK = 64 << 20  # bytes
CALL_SECONDS = 25.0  # that nothing comes of a call's wish, whatever was tried: then it is out of memory
TRY_SECONDS = 3.0  # for one that has waited so long in vain behind others
PLACE_SECONDS = 25.0  # that one that is away finds no place beside what stays: then it is wanted elsewhere

log = structlog.get_logger()


class Room(Protocol):
    """What is needed of whoever sends sessions away and brings them back."""

    def is_busy(self, key: int) -> bool:
        """Whether the API server has an order that must be over before it gets another one."""

    async def refresh(self, device: int) -> None:
        """Figures of all that have memory of the device are as they are now."""

    async def make_room(self, device: int, key: int, wish: Wish, lack: int) -> bool:
        """Somebody's memory leaves the device. False: nobody may go now."""

    async def bring_back(self, entry: Entry, size: int) -> node_pb2.Resides | None:
        """The session's memory returns to its device, where it may have so many bytes."""

    def shuts_out(self, entry: Entry, size: int) -> bool:
        """Whether those that are away could not come back if the session had so many bytes."""

    def rehouse(self, entry: Entry, devices: Sequence[int]) -> None:
        """The session's memory finds no place on its device; on these it would."""


class Wishes:
    """A line for each device, on the event loop's thread. A wish of a session of several devices stands in
    the line of each, and has its room on all of them or on none: its turn comes when nobody who came earlier
    is before it in any line, so two of them do not wait for each other.
    """

    def __init__(
        self, books: Books, servers: Mapping[int, ApiServer], orders: Orders, room: Room, elastic: bool
    ) -> None:
        """`elastic`: more is promised than there is; else whoever wishes for room has it."""
        self._books = books
        self._servers = servers  # by key
        self._orders = orders
        self._room = room
        self._elastic = elastic
        self._lines: dict[int, Line] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}  # by device

    def line(self, device: int) -> Line:
        """Those that wait for room on the device."""
        return self._lines.setdefault(device, Line())

    def add(self, entry: Entry, wish: Wish) -> None:
        """The session waits for room. If it does already, it keeps its place."""
        # No session needs more than it was granted, whatever its API server says: others would leave for it.
        wish = replace(wish, bytes=min(wish.bytes, entry.quota))
        for device in entry.devices:
            line = self.line(device)
            known = line.get(entry.server)
            line[entry.server] = replace(wish, since=known.since) if known else wish
            if device not in self.tasks:
                self.tasks[device] = asyncio.ensure_future(self._serve(device))

    def is_away(self, entry: Entry) -> None:
        """The session was sent away, maybe in the middle of a call: more room alone is of no use to it."""
        for device in entry.devices:
            if known := self.line(device).get(entry.server):
                known.away = True

    def drop(self, key: int) -> None:
        """The API server's session waits for nothing any more."""
        for line in self._lines.values():
            line.drop(key)

    async def _serve(self, device: int) -> None:
        line, looked = self._lines[device], -math.inf
        try:
            while line:
                key = self._first(device)
                if time.monotonic() >= looked + STUCK_SECONDS:
                    looked = time.monotonic()
                    await self._refuse_stuck(device, key)
                if key is None:
                    await asyncio.sleep(STUCK_SECONDS)
                    await self._room.refresh(device)
                elif key in line and not await self._try(device, key, line[key]):
                    await asyncio.sleep(LOOK_SECONDS)
        except Exception:
            log.exception("room could not be made", gpu=device)
            await asyncio.sleep(FAILED_SECONDS)
        finally:
            del self.tasks[device]
            if line:
                self.tasks[device] = asyncio.ensure_future(self._serve(device))

    # -- whose turn it is

    def _first(self, device: int) -> int | None:
        return self._lines[device].first(lambda key, wish: self._has_its_turn(device, key, wish))

    def _has_its_turn(self, device: int, key: int, wish: Wish) -> bool:
        """Who carries another order out has its turn when that is over, and whose memory finds no place
        beside what stays on its devices holds up nobody until that has ended.
        """
        entry = self._books.get(key)
        if entry is None:
            return True  # it is dropped at once
        if self._room.is_busy(key) or not self._may_have(entry, wish):
            return False
        return not any(self._is_preceded(other, key) for other in entry.devices if other != device)

    def _is_preceded(self, device: int, key: int) -> bool:
        line = self._lines[device]
        earlier = ((other, line[other], self._books.get(other)) for other in line.before(key))
        return key in line.held_back() or any(
            entry and self._may_have(entry, wish) and not self._room.is_busy(other)
            for other, wish, entry in earlier
        )

    def _may_have(self, entry: Entry, wish: Wish) -> bool:
        shuts_out = not wish.away and self._elastic and self._room.shuts_out(entry, wish.bytes)
        return not shuts_out and self.fits(entry, wish.bytes)

    def fits(self, entry: Entry, size: int) -> bool:
        """Return whether there is room for so many bytes of it once everybody has left who can; and, if they
        will not leave, whether each of those that leave could come back beside them.
        """
        return all(self._fits_on(device, entry, size) for device in entry.devices)

    def _fits_on(self, device: int, entry: Entry, size: int) -> bool:
        left = self._books.memory().get(device, 0) - size
        largest = 0
        for other in self._books.on(device):
            if other is entry:
                continue
            if self.stays(other):
                left -= min(self.used(other), other.allowance)
            else:
                largest = max(largest, self.used(other))
        return left >= (largest if self.stays(entry) else 0)

    def stays(self, entry: Entry) -> bool:
        """Whether its memory does not leave its devices."""
        server = self._servers.get(entry.server)
        told = server is not None and server.stats.session == entry.session and server.stats.stays
        return len(entry.devices) > 1 or bool(told)

    def used(self, entry: Entry) -> int:
        """Return how many bytes the session has on each of its devices, or would have there; of several, as
        on the one where it has most. Never more than it was granted, whatever its API server says: others
        would be left no room.
        """
        server = self._servers.get(entry.server)
        if server is None or server.stats.session != entry.session:
            return 0
        if len(entry.devices) > 1:
            return min(max(server.stats.mapped_on, default=0), entry.quota)
        return min(server.stats.memory_mapped, entry.quota)

    # -- what it gets

    async def _try(self, device: int, key: int, wish: Wish) -> bool:
        """It has its turn. Whether anything came of it."""
        line, entry = self._lines[device], self._books.get(key)
        if entry is None:
            self.drop(key)
            return True
        lack = self._lack(device, entry, wish)
        if all(self._lack(each, entry, wish) <= 0 for each in entry.devices):
            if await self._give(entry, wish):
                return True
            lack = PAGE  # the device itself has less than is in the books
        if lack <= 0 or not await self._room.make_room(device, key, wish, lack):
            return False
        line.moved_at = time.monotonic()
        return True

    def _lack(self, device: int, entry: Entry, wish: Wish) -> int:
        return wish.bytes - entry.allowance - self._books.free(device) if self._elastic else 0

    async def _give(self, entry: Entry, wish: Wish) -> bool:
        """Allow the session what it wishes for, and tell it. Returns False if nothing came of it."""
        before = entry.allowance
        self._books.allow(entry, wish.bytes)
        if not wish.away:
            # A little more, where nobody else has it: who grows need not ask each time.
            free = min(self._books.free(device) for device in entry.devices)
            more = max(0, min(SLACK, entry.quota - wish.bytes, free))
            if self._may_have(entry, replace(wish, bytes=wish.bytes + more)):
                self._books.allow(entry, wish.bytes + more)
            self._granted(entry)
            allow = node_pb2.Allow(session=entry.session, allowance=entry.allowance)
            await self._orders.give(entry, hurry=True, allow=allow)
            return True
        told = await self._room.bring_back(entry, wish.bytes)
        # What was allowed to one that is late stays its own until it answers.
        if told is None and not self._orders.is_late(entry.server):
            self._books.allow(entry, before)
            return False
        if told is not None and told.reason:
            self._books.allow(entry, before)
            if told.reason not in ("the session is over", "it is being moved"):
                return False
        if self._lines[entry.devices[0]].get(entry.server) is wish:
            self._granted(entry)
        return True

    def _granted(self, entry: Entry) -> None:
        for device in entry.devices:
            self._lines[device].grant(entry.server, time.monotonic())

    # -- who is told that there is none

    async def _refuse_stuck(self, device: int, first: int | None) -> None:
        """Calls of which nothing has come for too long are out of memory."""
        line, now = self._lines[device], time.monotonic()
        held_back = line.held_back()
        for key, wish in list(line.items()):
            entry = self._books.get(key)
            if entry is None:
                continue
            if wish.away:
                lacks = key == first and self._lack(device, entry, wish) > 0
                self._rehouse_stranded(line, entry, wish, now, lacks)
                continue
            began = line.stuck.setdefault(key, now)
            if not self.fits(entry, wish.bytes):
                why = "there is no room for it beside what does not leave the GPU"
            elif self._elastic and self._room.shuts_out(entry, wish.bytes):
                why = "it could not make room again for those that are away: no room is left for its copy"
            elif key in held_back:
                why = "others that came earlier find no room beside what does not leave the GPU"
            elif key == first and self._lack(device, entry, wish) > 0:
                tried = began + TRY_SECONDS - CALL_SECONDS
                began, why = max(wish.since, line.moved_at, tried), "nobody leaves the GPU"
            else:
                del line.stuck[key]
                continue
            if now > began + CALL_SECONDS:
                await self._refuse(entry, wish, why)

    def _rehouse_stranded(self, line: Line, entry: Entry, wish: Wish, now: float, lacks: bool) -> None:
        """Whoever stays on its device may do so for ever: another device may have a place for it. So may
        arrays of those that leave, of which nobody here knows but that no more room is made. `lacks`: it has
        its turn, and not enough.
        """
        fits = self.fits(entry, wish.bytes)
        if fits and not lacks:
            line.stuck.pop(entry.server, None)
            return
        since = line.stuck.setdefault(entry.server, now)
        if now > (max(since, line.moved_at) if fits else since) + PLACE_SECONDS:
            line.stuck[entry.server] = now
            others = [device for device in self._books.memory() if device not in entry.devices]
            self._room.rehouse(entry, [each for each in others if self._fits_on(each, entry, wish.bytes)])

    async def _refuse(self, entry: Entry, wish: Wish, why: str) -> None:
        log.warning(
            "a call is out of memory",
            session=entry.session,
            bytes=wish.bytes,
            reason=f"{why}, for {CALL_SECONDS:g} s",
        )
        self.drop(entry.server)
        refusal = node_pb2.Allow(session=entry.session, allowance=entry.allowance, refused=True)
        await self._orders.give(entry, hurry=True, allow=refusal)
