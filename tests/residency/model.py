"""A model of API servers and their programs, by a clock of its own, for whoever decides where memory is.

The monitor's side is the real one. An API server here says and does what the engine's does
(apiserver/residing.py, core/residency.pxi), with chance in place of a device: how long each thing takes, and
what comes in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from gpuferry.apiserver.residing import HOLD_SECONDS, INSIST_SECONDS
from gpuferry.monitor.pool.channel import ChannelBroken
from gpuferry.monitor.residency.books import AWAY, RESIDENT, UNDER_WAY
from gpuferry.monitor.residency.steward import Steward
from gpuferry.specs._generated import node_pb2

from tests.residency.loop import Loop
from tests.residency.shelf import File, Shelf

PAGE = 2 << 20
HOST, DISK = AWAY
LEAVING, RETURNING = UNDER_WAY
TICK = 1e-6  # seconds between two messages of one API server
STATS_LATE = 0.02  # of figures, how many are late
LATE_SECONDS = 0.5


class Interrupted(Exception):
    """The session's program works again, so its memory does not leave now."""


class Engine:
    """One API server with its session and the program that it serves."""

    def __init__(
        self, key: int, devices: tuple[int, ...], quota: int, model: Model, chance: random.Random
    ) -> None:
        self.key = self.session = key
        self.devices, self.device, self.several = devices, devices[0], len(devices) > 1
        self.quota = quota
        self.is_keeper, self.trusted, self.pid = False, False, key
        self.over = asyncio.Event()
        self.stats = node_pb2.Stats(session=0)
        self.handed_back: list[Any] = []
        self._noted: dict[str, int] = {}
        self._model, self.chance = model, chance
        self._waiters: list[asyncio.Future[None]] = []
        self._sent = self._told_at = 0.0
        # What the engine has.
        self.used = self.admitted = self.growth = 0
        self.allowance = 0
        self.elastic = False
        self.absent = self.unmapped = False
        self.wished = self.told = self.refused = self.in_call = False
        self.leaving = self.holding = self.held = False
        self.ending = False
        self.quiet_since: float | None = None
        self.works_until = -math.inf  # its device
        self.shares = False
        self.where = RESIDENT
        self.files: list[File] = []
        self.copied = 0  # bytes that have a place in the files
        self.stale = 0  # bytes whose copies are not true
        self.says = False  # the guest has said something that nobody has looked at
        self._pulse = asyncio.Event()
        self._jobs: asyncio.Queue[Callable[[], Awaitable[None]] | None] = asyncio.Queue()
        self.stop = False
        self.busy = 0  # orders that are not carried out yet
        self.lent = False  # the copies, to whoever moves the session
        self.worker = asyncio.ensure_future(self._work_off())

    # -- what the monitor does with it

    def note_files(self, session: int, files: Mapping[str, int]) -> bool:
        self._noted = dict(files)
        return True

    def noted_files(self, session: int) -> Mapping[str, int]:
        return self._noted

    def kill(self, reason: str) -> None:
        raise AssertionError(f"killed: {reason}")

    def send(self, message: node_pb2.ToServer, *files: File) -> None:
        if self.over.is_set():
            raise ChannelBroken("stopping")
        for file in files:
            file.theirs = True
        self._sent = max(self._sent + TICK, self._model.loop.time() + self._latency())
        self._model.loop.call_at(self._sent, self._obey, message, files)

    async def refresh_stats(self, limit: float) -> None:
        waiter = self._model.loop.create_future()
        asked = bool(self._waiters)
        self._waiters.append(waiter)
        try:
            if not asked:
                self.send(node_pb2.ToServer(stats=node_pb2.StatsRequest()))
            await asyncio.wait({waiter}, timeout=limit)
        except ChannelBroken:
            pass
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _latency(self) -> float:
        if self.chance.random() < self._model.lateness:
            return self.chance.random() * LATE_SECONDS
        return 0.0005 * self.chance.random()

    # -- what it tells

    def _tell(self, tell: Callable[[], None]) -> None:
        """The monitor, a little later, and in order."""

        def arrives() -> None:
            if not self.over.is_set():
                tell()

        self._told_at = max(self._told_at + TICK, self._model.loop.time() + self._latency())
        self._model.loop.call_at(self._told_at, arrives)

    def _describe(self, number: int, reason: str = "") -> node_pb2.Resides:
        return node_pb2.Resides(
            session=self.session,
            number=number,
            where=self.where,
            reason=reason,
            allowance=self.allowance,
            mapped=self.used,
            host_bytes=sum(file.size for file in self.files if not file.on_disk),
            disk_bytes=sum(file.size for file in self.files if file.on_disk),
            host_taken=min(self.copied, sum(file.size for file in self.files if not file.on_disk)),
        )

    def _say(self, told: node_pb2.Resides) -> None:
        self._tell(lambda: self._model.steward.resides(cast(Any, self), told))

    def _say_stats(self) -> None:
        now = self._model.loop.time()
        quiet = self.quiet_since is not None and now >= self.works_until
        since = max(self.quiet_since or 0.0, self.works_until)
        stats = node_pb2.Stats(
            session=self.session,
            memory_mapped=self.used * len(self.devices),
            mapped_on=[self.admitted - self.growth] * len(self.devices) if self.several else [],
            idle_seconds=now - since if quiet else 0.0,
            stays=self.stays,
            calls_sync=self._model.calls,
        )
        self.describe_turn(stats)

        def arrives() -> None:
            self.stats = stats
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

        self._tell(arrives)

    def describe_turn(self, stats: node_pb2.Stats) -> None:
        """What its figures say of its turns: nobody takes any."""

    def _ring(self) -> None:
        self._model.loop.call_later(TICK, self._tell_wish)

    def _tell_wish(self) -> None:
        if self.wished and not self.told and not self.lent:
            self.told = True
            wanted = node_pb2.RoomWanted(session=self.session, bytes=self.admitted, away=self.absent)
            self._tell(lambda: self._model.steward.room_wanted(cast(Any, self), wanted))

    # -- what it is told

    def _obey(self, message: node_pb2.ToServer, files: Sequence[File]) -> None:
        kind = str(message.WhichOneof("message"))
        if self.over.is_set():
            for file in files:
                file.given_back()
            return
        if kind == "stats":
            self._say_stats()
            return
        order = getattr(message, kind)
        if self.ending:
            for file in files:
                file.given_back()
            self._say(self._describe(order.number, "the session is over"))
        elif kind == "allow":
            if order.refused:
                self.refused = not self.absent
                self._changed()
            else:
                self.limit(order.allowance)
            self._say(self._describe(order.number))
        else:
            jobs: dict[str, Callable[[], Awaitable[None]]] = {
                "leave": lambda: self._leave(order, files),
                "come_back": lambda: self._come_back(order),
                "demote": lambda: self._demote(order, *files),
                "forget": lambda: self._forget(order.number),
            }
            self.busy += 1
            self._jobs.put_nowait(jobs[kind])

    async def _work_off(self) -> None:
        while job := await self._jobs.get():
            await job()
            self.busy -= 1
            self._changed()

    def limit(self, allowance: int) -> None:
        self.elastic = True
        self.allowance = self._limit_room(0 if self.absent else allowance)

    def _limit_room(self, allowance: int) -> int:
        least = self.admitted
        if self.absent:
            least -= self.used + self.growth
        elif self.admitted > self.allowance:
            least -= self.growth
        self.allowance = max(allowance, least)
        self._changed()
        return self.allowance

    def _changed(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    async def _until(self, so: Callable[[], bool], seconds: float = math.inf) -> bool:
        deadline = self._model.loop.time() + seconds
        while not so():
            left = deadline - self._model.loop.time()
            if left <= 0:
                return False
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._pulse.wait(), left if left < math.inf else None)
        return True

    # -- its memory leaves, and comes back

    @property
    def stays(self) -> str:
        if self.several:
            return "it has several devices"
        return "it shares memory with other processes" if self.shares else ""

    def _idle(self) -> bool:
        return self.quiet_since is not None and self._model.loop.time() >= self.works_until

    async def _hold(self, seconds: float) -> bool:
        self.holding = True
        self._changed()
        await self._until(lambda: self.held or self.ending, seconds)
        held = self.held and not self.ending
        if not held:
            self._proceed()
        return held

    def _proceed(self) -> None:
        self.holding = False
        self._changed()

    async def _leave(self, order: node_pb2.Leave, files: Sequence[File]) -> None:
        reason, missing, copied = "", 0, 0
        self.files += files
        if self.ending or self.stop:
            reason = "it ends, or is being moved"
        elif self.absent:
            reason = "it is away already"
        elif self.stays:
            reason = self.stays
        elif not order.insist and not self._idle():
            reason = "it works"
        else:
            self.where = LEAVING
            try:
                missing, copied = await self._take_away(order)
                reason = f"its copies lack {missing} bytes" if missing else ""
            except Interrupted:
                reason = "it works"
            except RuntimeError as error:
                reason = str(error)
            self.leaving = False
            self._proceed()
            if not self.absent:
                self.where = RESIDENT
        told = self._describe(order.number, reason)
        told.copied_bytes, told.missing = copied, missing
        self._say(told)

    async def _take_away(self, order: node_pb2.Leave) -> tuple[int, int]:
        self.leaving = True
        if not await self._hold((INSIST_SECONDS if order.insist else 0.0) or HOLD_SECONDS):
            raise Interrupted
        rest = self.works_until - self._model.loop.time()
        patience = INSIST_SECONDS if order.insist else 0.0
        if rest > 0:
            await asyncio.sleep(min(rest, patience))
            if rest > patience:
                raise Interrupted
        if self.stays:
            raise RuntimeError(self.stays)

        def stop() -> bool:
            return self.stop or self.ending or (not order.insist and self.says)

        room = sum(file.size for file in self.files)
        if self.used > room:
            return self.used - room, 0
        copied, self.copied = 0, max(self.copied, self.used)
        while self.stale:
            if stop():
                raise Interrupted
            some = min(self.stale, 8 * PAGE)
            await asyncio.sleep(some / self._model.speed)
            self.stale -= some
            copied += some
        if order.copy_only:
            return 0, copied
        if stop():
            raise Interrupted
        self.absent = self.unmapped = True
        self.where = DISK if any(file.on_disk for file in self.files) else HOST
        self.allowance = self._limit_room(0) if self.elastic else 0
        return 0, copied

    async def _come_back(self, order: node_pb2.ComeBack) -> None:
        reason = ""
        if self.lent:
            reason = "it is being moved"
        elif self.absent:
            needed = self.admitted
            if self.elastic and order.allowance < needed:
                reason = f"it needs {needed} bytes on the device"
            else:
                self.where = RETURNING
                self.unmapped = False
                self._model.check()
                await asyncio.sleep(self.used / self._model.speed)
                if self.elastic:
                    self.allowance = self._limit_room(order.allowance)
                self.where = RESIDENT
                self.absent = False
                self._changed()
        elif self.elastic:
            self.limit(order.allowance)
        self._say(self._describe(order.number, reason))

    async def _demote(self, order: node_pb2.Demote, file: File) -> None:
        reason = "it is not away"
        if self.absent and not self.lent:
            reason = ""
            held = [one for one in self.files if not one.on_disk]
            left = min(self.copied, sum(one.size for one in held))
            while left > 0:
                if self.wished or self.stop or not self._jobs.empty():
                    reason = "it is wanted back"
                    break
                await asyncio.sleep(8 * PAGE / self._model.speed)
                left -= 8 * PAGE
        if reason:
            file.given_back()
        else:
            for one in held:
                one.given_back()
            self.files = [one for one in self.files if one.on_disk] + [file]
            self.where = DISK
        self._say(self._describe(order.number, reason))

    async def _forget(self, number: int) -> None:
        reason = "they are all that there is of it" if self.absent else ""
        if not reason:
            self._give_up()
        self._say(self._describe(number, reason))

    def _give_up(self) -> None:
        for file in self.files:
            file.given_back()
        self.files, self.copied, self.stale = [], 0, self.used

    # -- the dispatcher

    async def _stand_still(self) -> None:
        self.held = True
        self._changed()
        await self._until(lambda: not self.holding or self.ending)
        self.held = False

    async def _wait_for_memory(self, growth: int) -> bool:
        """Whether it is there; False: somebody holds the session, or the call is refused."""
        in_call = growth > 0
        wanted = self.admitted
        self.growth, self.refused, self.told, self.wished = growth, False, False, True
        self._ring()
        fine = False
        while not self.ending:
            fine = not self.absent and wanted <= self.allowance
            if fine or self.refused or (self.holding and not in_call):
                break
            if self.holding and self.leaving:
                await self._stand_still()
                if self.absent:
                    self.told = False
                    self._ring()
                continue
            await self._pulse.wait()
        self.wished, self.growth = False, 0
        return fine

    async def begin_call(self) -> None:
        """The next call has come. Returns when it may be done."""
        self.says = True
        while not self.ending:
            if self.holding:
                await self._stand_still()
                continue
            self.quiet_since = None
            if await self.take_turn() and (not self.absent or await self._wait_for_memory(0)):
                self.says = False
                return

    async def take_turn(self) -> bool:
        """Whether it may work; False: somebody holds the session."""
        return True

    async def grow(self, size: int) -> None:
        await self.begin_call()
        await asyncio.sleep(self._model.call_seconds)
        self.admitted += size
        if self.admitted > self.allowance and self.elastic:
            assert await self._wait_for_memory(size), f"{self.key} was refused at {self._model.loop.time()}"
        self.used += size
        self.stale += size
        self._model.check()
        self.end_call()

    async def shrink(self, size: int) -> None:
        await self.begin_call()
        self.used -= size
        self.admitted -= size
        self.stale = min(self.stale, self.used)
        self.copied = min(self.copied, self.used)
        self.end_call()

    async def work(self, seconds: float) -> None:
        await self.begin_call()
        await asyncio.sleep(self._model.call_seconds)
        assert not self.absent
        self.works_until = self._model.loop.time() + seconds
        self.stale = self.used
        self.end_call()
        if seconds < 1.0:  # else the program does not wait for the device
            await asyncio.sleep(seconds)

    def end_call(self) -> None:
        self._model.calls += 1
        self.quiet_since = self._model.loop.time()

    async def pause(self, seconds: float) -> None:
        """The program does nothing, and who wants to hold the session finds it so."""
        until = self._model.loop.time() + seconds
        while (left := until - self._model.loop.time()) > 0 and not self.ending:
            if self.holding:
                await self._stand_still()
            else:
                await self._until(lambda: self.holding or self.ending, left)

    async def move(self, seconds: float) -> None:
        """Somebody moves it, and does not come to an end: out of its copies, or from its device."""
        self.stop = True
        await self._until(lambda: not self.busy or self.ending)
        self.lent = self.absent and not self.busy and not (self.wished and self.growth)
        wants_back = self.absent and not self.lent
        if wants_back:
            wanted = node_pb2.RoomWanted(session=self.session, bytes=self.admitted, away=True)
            self._tell(lambda: self._model.steward.room_wanted(cast(Any, self), wanted))
        if self.lent or await self._until(lambda: not self.absent or self.ending, 30.0):
            await asyncio.sleep(seconds)
        if self.lent:
            self.told = False
        self.stop = self.ending
        self.lent = False
        self._ring()

    async def die(self) -> None:
        """The process is gone, in the middle of whatever it did."""
        self.ending = self.stop = True
        self.worker.cancel()
        self._leave_nothing()
        self._model.steward.server_lost(cast(Any, self))

    def _leave_nothing(self) -> None:
        self.used = self.admitted = self.growth = self.allowance = 0
        for file in self.files:
            file.given_back()
        self.files = []
        self.over.set()

    async def end(self) -> None:
        self.ending = self.stop = True
        self._changed()
        self._jobs.put_nowait(None)
        await self.worker
        self._leave_nothing()
        ended = node_pb2.SessionEnded(session=self.session, clean=True)
        self._model.steward.session_ended(cast(Any, self), ended)


class Model:
    """Devices, API servers on them, and the monitor's steward."""

    engine: type[Engine] = Engine

    def __init__(self, loop: Loop, memory: Sequence[int], shelf: Shelf, chance: random.Random) -> None:
        self.loop, self.memory, self.shelf = loop, memory, shelf
        self.lateness = chance.choice([0.0, STATS_LATE, 0.2])
        self.speed = chance.choice([64 << 20, 1 << 30, 16 << 30])  # bytes a second that are copied
        self.call_seconds = chance.choice([0.0, 1e-4, 0.02])
        self.trouble = chance.choice([0.0, 0.0, 0.5])  # how many are disturbed
        self.calls = 0
        self.engines: dict[int, Engine] = {}
        self.ended = 0
        self.steward = Steward(8.0, shelf.host, shelf.disk, Path("/nowhere"), lambda: 1 << 50)
        for device, size in enumerate(memory):
            self.steward.grantable(device, size)
            loop.lines.append(self.steward.wishes.line(device))

    def check(self) -> None:
        """Raises AssertionError if sessions have, or may have, more bytes of a device than there are."""
        for device, memory in enumerate(self.memory):
            here = [one for one in self.engines.values() if device in one.devices]
            used = sum(one.used for one in here if not one.unmapped)
            assert used <= memory, f"{used >> 20} MiB of {memory >> 20} on device {device}"
            allowed = sum(one.allowance for one in here)
            assert allowed <= memory, f"{allowed >> 20} MiB allowed of {memory >> 20} on device {device}"

    def begin(self, devices: tuple[int, ...], quota: int, chance: random.Random) -> Engine:
        key = len(self.engines) + self.ended + 1
        engine = self.engine(key, devices, quota, self, chance)
        self.engines[key] = engine
        grant = node_pb2.Grant(session=key, memory_quota=quota)
        self.steward.begin(cast(Any, engine), grant)
        engine.elastic = grant.elastic
        engine.limit(grant.allowance)
        return engine

    async def lose(self, engine: Engine) -> None:
        """The API server dies, with its session and its copies."""
        await engine.die()
        del self.engines[engine.key]
        self.ended += 1

    async def finish(self, engine: Engine) -> None:
        await engine.end()
        del self.engines[engine.key]
        self.ended += 1
