"""API servers that were taken over, and say of memory what is to their session's advantage."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from gpuferry.monitor.pool.api_server import ApiServer
from gpuferry.monitor.pool.channel import Descriptor
from gpuferry.monitor.residency import copies
from gpuferry.monitor.residency import orders as tried
from gpuferry.monitor.residency import steward as stewards
from gpuferry.monitor.residency import wishes as governed
from gpuferry.monitor.residency.books import AWAY, RESIDENT, Books
from gpuferry.monitor.residency.copies import NoRoom
from gpuferry.monitor.residency.files import CopyFile, on_disk
from gpuferry.monitor.residency.steward import Steward
from gpuferry.specs._generated import node_pb2

GIB = 1 << 30
SMALL = 2 << 20
TOO_MUCH = 1 << 60


class Said:
    """An API server, as far as the steward knows it: what it was told stands in `orders`."""

    def __init__(self, key: int, memory: int) -> None:
        self.key = self.session = key
        self.device, self.devices, self.several, self.is_keeper = 0, (0,), 0, False
        self.over = asyncio.Event()
        self.orders: list[node_pb2.ToServer] = []
        self.beside: list[Any] = []
        self.stats = node_pb2.Stats(session=key, memory_mapped=memory)
        self.pid, self.killed = 0, 0
        self.noted: dict[str, int] = {}
        self.can_note = True
        self.handed_back: list[Any] = []
        self.trusted = False

    def send(self, message: node_pb2.ToServer, *beside: object) -> None:
        self.orders.append(message)
        self.beside += beside

    async def told(self, kind: str) -> Any:
        """The last order, once it is of this kind."""
        while not (self.orders and self.orders[-1].HasField(kind)):
            await asyncio.sleep(0.001)
        return getattr(self.orders[-1], kind)

    def note_files(self, session: int, files: Mapping[str, int]) -> bool:
        assert session == self.session
        if self.can_note:
            self.noted = dict(files)
        return self.can_note

    def noted_files(self, session: int) -> Mapping[str, int]:
        return self.noted

    def kill(self, reason: str) -> None:
        self.killed += 1
        self.why = reason

    async def refresh_stats(self, _: float) -> None:
        pass


def plenty() -> int:
    """Of host memory there is more than enough."""
    return TOO_MUCH


async def two(folder: Path, host: int = 4 * GIB, disk: int = 0) -> tuple[Steward, Any, Any]:
    """Two sessions of 1 GiB on a device of 2 GiB, of which more may be promised. Where copies may go to a
    disk each has little.
    """
    steward = Steward(2.0, host, disk, folder, plenty)
    steward.grantable(0, 2 * GIB)
    one, other = (cast(ApiServer, Said(key, SMALL if disk else GIB)) for key in (1, 2))
    for each in (one, other):
        steward.begin(each, node_pb2.Grant(session=each.key, memory_quota=GIB))
    return steward, one, other


def test_nobody_answers_for_another(tmp_path: Path) -> None:
    async def main() -> None:
        steward, honest, liar = await two(tmp_path)
        asked = asyncio.ensure_future(steward.evict(honest.key))
        while not honest.orders:
            await asyncio.sleep(0)
        number = honest.orders[0].leave.number
        steward.resides(liar, node_pb2.Resides(session=1, number=number, where=AWAY[0]))
        await asyncio.sleep(0.01)
        assert not asked.done()
        steward.resides(honest, node_pb2.Resides(session=1, number=number, reason="no"))
        with pytest.raises(Exception, match="no"):
            await asked
        entry = steward.books.get(honest.key)
        assert entry
        assert not entry.away

    asyncio.run(main())


@pytest.mark.parametrize("ends", [RESIDENT, AWAY[0]])
def test_an_order_of_an_earlier_monitor_is_heard_to_its_end(tmp_path: Path, ends: node_pb2.Residence) -> None:
    """It was under way when this one came. What is said beyond that nobody has asked for."""

    async def main() -> None:
        steward = Steward(2.0, 4 * GIB, 0, tmp_path)
        steward.grantable(0, 2 * GIB)
        server = cast(ApiServer, Said(1, GIB))
        grant = node_pb2.Grant(session=1, memory_quota=GIB)
        told = node_pb2.Resides(where=node_pb2.RESIDENCE_RETURNING, allowance=GIB)
        steward.server_returned(server, node_pb2.Returned(grant=grant, resides=told))
        entry = steward.books.get(1)
        assert entry
        allowance = GIB if ends == RESIDENT else 0
        steward.resides(server, node_pb2.Resides(session=1, number=5, where=ends, allowance=allowance))
        assert (entry.where, entry.allowance) == (ends, allowance)
        steward.resides(server, node_pb2.Resides(session=1, number=6, where=AWAY[1], allowance=SMALL))
        assert (entry.where, entry.allowance) == (ends, allowance)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_wish_beyond_all_bounds_drives_nobody_away(tmp_path: Path) -> None:
    async def main() -> None:
        steward, honest, liar = await two(tmp_path)
        steward.room_wanted(liar, node_pb2.RoomWanted(session=2, bytes=TOO_MUCH))
        while not liar.orders:
            await asyncio.sleep(0)
        allow = liar.orders[0].allow
        assert allow.allowance <= GIB
        assert not honest.orders
        told = node_pb2.Resides(session=2, number=allow.number, allowance=allow.allowance)
        steward.resides(liar, told)
        while steward.wishes.tasks:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_says_that_it_has_more_than_there_is_keeps_no_room_from_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So much could never have come back beside it: each call of it was out of memory."""
    monkeypatch.setattr(governed, "CALL_SECONDS", 0.05)

    async def main() -> None:
        steward, honest, liar = await two(tmp_path)
        honest.stats.stays = "it shares memory with other processes"
        liar.stats.memory_mapped = TOO_MUCH
        steward.room_wanted(honest, node_pb2.RoomWanted(session=1, bytes=GIB))
        allow = await honest.told("allow")
        assert not allow.refused
        steward.resides(honest, node_pb2.Resides(session=1, number=allow.number, allowance=GIB))
        while steward.wishes.tasks:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_copies_of_more_than_there_is_take_no_room_from_others(tmp_path: Path) -> None:
    async def main() -> None:
        steward, _, liar = await two(tmp_path)
        liar.stats.memory_mapped = 4 * GIB
        asked = asyncio.ensure_future(steward.evict(liar.key))
        while not liar.orders:
            await asyncio.sleep(0)
        assert sum(liar.orders[0].leave.bytes) == GIB
        asked.cancel()

    asyncio.run(main())


def test_what_is_said_of_an_allowance_and_of_copies_is_bounded_by_the_quota() -> None:
    books = Books(4 * GIB, 4 * GIB)
    books.add_device(0, 2 * GIB)
    entry = books.begin(1, 1, (0,), GIB)
    books.allow(entry, TOO_MUCH)
    assert books.free(0) == GIB
    told = node_pb2.Resides(session=2, where=AWAY[0], host_bytes=TOO_MUCH, disk_bytes=TOO_MUCH)
    books.adopt(2, (0,), GIB, told)
    assert (books.host_used, books.disk_used) == (GIB, GIB)


@pytest.mark.parametrize("away", [False, True])
def test_who_says_nothing_to_an_order_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """It wished for room, or for its memory, has it, and does not say so; others' wishes are next."""
    monkeypatch.setattr(tried, "IN_LINE_SECONDS", 0.01)

    async def main() -> None:
        steward, honest, liar = await two(tmp_path)
        steward.room_wanted(liar, node_pb2.RoomWanted(session=2, bytes=SMALL, away=away))
        steward.room_wanted(honest, node_pb2.RoomWanted(session=1, bytes=SMALL))
        while not honest.orders:
            await asyncio.sleep(0.001)
        number = honest.orders[0].allow.number
        steward.resides(honest, node_pb2.Resides(session=1, number=number, allowance=SMALL))
        while honest.key in steward.wishes.line(0):
            await asyncio.sleep(0.001)
        assert len(liar.orders) == 1
        assert not liar.killed
        kind = "come_back" if away else "allow"
        number = getattr(liar.orders[0], kind).number
        steward.resides(liar, node_pb2.Resides(session=2, number=number, allowance=SMALL))
        while steward._orders.is_late(liar.key):
            await asyncio.sleep(0.001)
        entry = steward.books.get(liar.key)
        assert entry
        assert entry.allowance == SMALL  # late, and noted all the same

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_never_answers_an_order_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried, "IN_LINE_SECONDS", 0.0)
    monkeypatch.setattr(tried, "ANSWER_SECONDS", 0.01)

    async def main() -> None:
        steward, _, liar = await two(tmp_path)
        steward.room_wanted(liar, node_pb2.RoomWanted(session=2, bytes=SMALL))
        while not liar.killed:
            await asyncio.sleep(0.001)
        assert liar.why == "it did not answer an order"

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_demotion_that_is_interrupted_is_heard_to_its_end(tmp_path: Path) -> None:
    """The file is the API server's: it counts, and is watched."""

    async def main() -> None:
        steward, one, _ = await two(tmp_path, disk=GIB)
        asked = asyncio.ensure_future(steward.evict(one.key))
        number = (await one.told("leave")).number
        steward.resides(one, node_pb2.Resides(session=1, number=number, where=AWAY[0], mapped=SMALL))
        await asked
        entry = steward.books.get(one.key)
        assert entry
        moving = asyncio.ensure_future(steward._copies._demote(entry))
        number = (await one.told("demote")).number
        moving.cancel()
        await asyncio.wait({moving})
        assert (entry.disk_bytes, len(entry.files), len(one.noted)) == (SMALL, 1, 0)
        steward.resides(one, node_pb2.Resides(session=1, number=number, where=AWAY[1]))
        assert len(one.noted) == 1
        steward.server_lost(one)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_file_that_is_not_wanted_is_emptied_on_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room of a session's files on the disk is given back while the monitor goes on with other things."""
    where: list[int] = []

    def noted(file: CopyFile) -> None:
        where.append(threading.get_ident())
        file.close()

    monkeypatch.setattr(CopyFile, "empty", noted)

    async def main() -> None:
        steward, one, _ = await two(tmp_path, disk=GIB)
        entry = steward.books.get(one.key)
        assert entry
        entry.host_bytes = SMALL
        moving = asyncio.ensure_future(steward._copies._demote(entry))
        number = (await one.told("demote")).number
        steward.resides(one, node_pb2.Resides(session=1, number=number, reason="it is not away"))
        await moving
        steward.server_lost(one)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert len(where) == 1
    assert threading.get_ident() not in where


def test_copies_that_are_wanted_back_while_their_file_is_made_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were given up meanwhile, and then taken off again: the disk had more to give than there is."""

    async def main() -> None:
        steward, one, _ = await two(tmp_path, disk=GIB)
        asked = asyncio.ensure_future(steward.evict(one.key))
        number = (await one.told("leave")).number
        steward.resides(one, node_pb2.Resides(session=1, number=number, where=AWAY[0], mapped=SMALL))
        await asked
        entry = steward.books.get(one.key)
        assert entry
        ready = asyncio.Event()

        async def slowly(folder: Path, size: int) -> Any:
            await ready.wait()
            return await on_disk(folder, size)

        monkeypatch.setattr(copies, "on_disk", slowly)
        moving = asyncio.ensure_future(steward._copies._demote(entry))
        await asyncio.sleep(0)
        entry.note(node_pb2.Resides(where=RESIDENT))  # it is back
        one.orders.clear()
        given_up = asyncio.ensure_future(steward._copies.give_up(entry))  # somebody else needs their room
        await asyncio.sleep(0)
        if one.orders:
            steward.resides(one, node_pb2.Resides(session=1, number=one.orders[-1].forget.number))
        await given_up
        ready.set()
        number = (await one.told("demote")).number
        steward.resides(one, node_pb2.Resides(session=1, number=number, reason="it is not away"))
        await moving
        assert (entry.host_bytes, entry.disk_bytes) == (SMALL, 0)
        steward.server_lost(one)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_takes_more_of_the_disk_than_it_was_given_is_ended(tmp_path: Path) -> None:
    """A file on a disk is of no settled size: it is looked at, and is empty once it was given back."""

    async def main() -> None:
        steward, honest, liar = await two(tmp_path, host=0, disk=4 * GIB)
        kept: dict[int, int] = {}
        for one in (honest, liar):
            asked = asyncio.ensure_future(steward.evict(one.key))
            while not one.orders:
                await asyncio.sleep(0.001)
            (kept[one.key],) = (os.dup(file.fileno()) for file in one.beside)
            number = one.orders[0].leave.number
            told = node_pb2.Resides(session=one.key, number=number, where=AWAY[1], mapped=SMALL)
            steward.resides(one, told)
            await asked
        steward._end_liars()
        assert (honest.killed, liar.killed) == (0, 0)
        os.ftruncate(kept[liar.key], 2 * SMALL)
        steward._end_liars()
        assert (honest.killed, liar.killed) == (0, 1)
        assert liar.why == "it has more of the disk than it was given"
        os.ftruncate(kept[liar.key], SMALL)
        os.posix_fallocate(kept[liar.key], 0, SMALL)
        steward._end_liars()
        assert liar.killed == 1
        for one in (honest, liar):
            steward.server_lost(one)
        while any(os.fstat(file).st_size for file in kept.values()):
            await asyncio.sleep(0.001)
        for file in kept.values():
            os.close(file)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_is_slow_to_make_copies_keeps_nobody_from_a_look_at_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that did not answer an order to make copies ahead kept files from being looked at for two minutes,
    in which another could fill the disk.
    """
    monkeypatch.setattr(stewards, "AHEAD_SECONDS", 0.0)
    monkeypatch.setattr(stewards, "FILES_SECONDS", 0.0)

    async def main() -> None:
        steward, slow, liar = await two(tmp_path, host=0, disk=4 * GIB)
        asked = asyncio.ensure_future(steward.evict(liar.key))
        number = (await liar.told("leave")).number
        (file,) = (os.dup(each.fileno()) for each in liar.beside)
        steward.resides(liar, node_pb2.Resides(session=2, number=number, where=AWAY[1], mapped=SMALL))
        await asked
        steward.begin(
            cast(Any, Said(3, SMALL)), node_pb2.Grant(session=3, memory_quota=GIB)
        )  # now it is crowded
        slow.stats.idle_seconds = 5.0
        jobs = [asyncio.ensure_future(job) for job in (steward.run(), steward.watch_files())]
        assert (await slow.told("leave")).copy_only
        os.ftruncate(file, 2 * SMALL)
        while not liar.killed:
            await asyncio.sleep(0)
        os.close(file)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        for one in (slow, liar):
            steward.server_lost(one)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("copies_are_there", [False, True])
def test_who_has_much_to_copy_has_the_time_that_a_slow_disk_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies_are_there: bool
) -> None:
    """128 GiB on a disk that takes 500 MB a second: it was ended after two minutes, and its session lost. Of
    one that had copies nothing was thought to be copied.
    """
    waited: list[float] = []

    async def main() -> None:
        steward, one, _ = await two(tmp_path)
        entry = steward.books.get(one.key)
        assert entry
        entry.host_bytes = GIB if copies_are_there else 0

        async def watch(server: ApiServer, number: int, answer: Any, limit: float) -> None:
            waited.append(limit)

        monkeypatch.setattr(steward._orders, "_watch", watch)
        with pytest.raises(NoRoom):
            await steward.transit.send_away(entry)
        steward.server_lost(one)

    asyncio.run(main())
    assert waited == [tried.ANSWER_SECONDS + GIB / tried.BYTES_PER_SECOND]


@pytest.mark.parametrize("lie", ["", "grows", "hides", "is over", "hands back another", "folder is gone"])
def test_the_next_monitor_looks_how_large_files_on_the_disk_are(tmp_path: Path, lie: str) -> None:
    """Wherever its own are to lie: where those of the one before do is no lie."""

    async def main() -> None:
        steward, one, _ = await two(tmp_path, host=0, disk=4 * GIB)
        asked = asyncio.ensure_future(steward.evict(one.key))
        leave = await one.told("leave")
        (file,) = (os.dup(file.fileno()) for file in one.beside)
        resides = node_pb2.Resides(session=1, number=leave.number, where=AWAY[1], disk_bytes=SMALL)
        steward.resides(one, resides)
        await asked
        assert list(one.noted.values()) == [SMALL]

        folder = tmp_path / "gone" if lie == "folder is gone" else tmp_path
        second = Steward(2.0, 0, 4 * GIB, folder)
        second.grantable(0, 2 * GIB)
        if lie == "grows":
            os.ftruncate(file, 2 * SMALL)
        other = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
        mine = {"hides": [], "is over": [], "hands back another": [other]}.get(lie, [file])
        one.handed_back = [Descriptor(os.dup(each)) for each in mine]
        grant = node_pb2.Grant(session=1, memory_quota=GIB)
        second.server_returned(one, node_pb2.Returned(grant=grant, resides=resides))
        for handed in one.handed_back:
            handed.close()  # as the channel does
        if lie == "is over":
            second.session_ended(one, node_pb2.SessionEnded(session=1, clean=True))
        second._end_liars()
        assert one.killed == (lie in ("grows", "hides", "hands back another"))
        for each in (steward, second):
            each.server_lost(one)
        while mine == [file] and os.fstat(file).st_size:
            await asyncio.sleep(0.001)
        os.close(file)
        os.close(other)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_files_that_are_given_up_are_not_asked_for(tmp_path: Path) -> None:
    """Whenever the monitor is killed: they are noted no more before they can be gone."""

    async def main() -> None:
        steward, one, _ = await two(tmp_path, host=0, disk=4 * GIB)
        for refused in (True, False):
            asked = asyncio.ensure_future(steward.evict(one.key))
            leave = await one.told("leave")
            steward.resides(one, node_pb2.Resides(session=1, number=leave.number, where=RESIDENT))
            await asked
            entry = steward.books.get(one.key)
            assert entry
            one.can_note = False  # on a full disk
            await steward._copies.give_up(entry)
            assert one.noted
            one.can_note = True
            given_up = asyncio.ensure_future(steward._copies.give_up(entry))
            forget = await one.told("forget")
            assert not one.noted
            reason = "they are all that there is of it" if refused else ""
            steward.resides(one, node_pb2.Resides(session=1, number=forget.number, reason=reason))
            await given_up
            assert bool(one.noted) is refused
        steward.server_lost(one)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_nobody_leaves_while_its_copies_are_given_up(tmp_path: Path) -> None:
    """Its new ones would be taken for those: nobody would know that they have host memory."""

    async def main() -> None:
        steward, one, _ = await two(tmp_path)
        entry = steward.books.get(one.key)
        assert entry
        entry.host_bytes = GIB
        given_up = asyncio.ensure_future(steward._copies.give_up(entry))
        number = (await one.told("forget")).number
        assert steward.is_busy(one.key)
        with pytest.raises(NoRoom, match="about to be given up"):
            await steward.transit.send_away(entry)
        steward.resides(one, node_pb2.Resides(session=1, number=number, allowance=GIB))
        await given_up
        assert (entry.copy_bytes, steward.is_busy(one.key)) == (0, False)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_is_interrupted_while_a_disk_makes_room_has_taken_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(folder: Path, size: int) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(copies, "on_disk", never)

    async def main() -> None:
        steward, one, _ = await two(tmp_path, host=SMALL, disk=GIB)
        entry = steward.books.get(one.key)
        assert entry
        making = asyncio.ensure_future(steward._copies.files(entry, 2 * SMALL, ahead=False))
        while not entry.disk_bytes:
            await asyncio.sleep(0)
        making.cancel()
        await asyncio.wait({making})
        assert entry.copy_bytes == 0

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("reason", ["", "its disk fails"])
def test_copies_that_are_late_on_their_way_to_the_disk_count_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Until they are given up, whatever is said of them at last. The next monitor is not told to expect a
    file that may have been given back.
    """
    monkeypatch.setattr(tried, "IN_LINE_SECONDS", 0.01)
    monkeypatch.setattr(tried, "BYTES_PER_SECOND", math.inf)

    async def main() -> None:
        steward, late, other = await two(tmp_path, host=SMALL, disk=2 * SMALL)
        asked = asyncio.ensure_future(steward.evict(late.key))
        number = (await late.told("leave")).number
        steward.resides(late, node_pb2.Resides(session=1, number=number, where=AWAY[0], mapped=SMALL))
        await asked
        asked = asyncio.ensure_future(steward.evict(other.key))
        demote = await late.told("demote")
        leave = await other.told("leave")  # nobody waits for the other one's answer any longer
        assert list(leave.on_disk) == [True]
        entry, books = steward.books.get(late.key), steward.books
        assert entry
        for answered in (False, True):
            assert (entry.host_bytes, entry.disk_bytes, len(entry.files)) == (SMALL, SMALL, 1)
            assert (books.host_free, books.disk_free) == (0, 0)
            assert len(late.noted) == (answered and not reason)
            assert steward._orders.is_late(late.key) is not answered
            if not answered:
                where = AWAY[0 if reason else 1]
                said = node_pb2.Resides(session=1, number=demote.number, where=where, reason=reason)
                steward.resides(late, said)
                while steward._orders.is_late(late.key):
                    await asyncio.sleep(0.001)
        monkeypatch.setattr(tried, "IN_LINE_SECONDS", 60.0)  # this answer is in time
        given_up = asyncio.ensure_future(steward._copies.give_up(entry))
        number = (await late.told("forget")).number
        steward.resides(late, node_pb2.Resides(session=1, number=number, where=RESIDENT))
        await given_up
        assert (entry.host_bytes, entry.disk_bytes, entry.files) == (0, 0, [])
        assert (books.host_free, books.disk_free) == (SMALL, SMALL)
        steward.resides(other, node_pb2.Resides(session=2, number=leave.number, where=AWAY[1]))
        await asked
        for one in (late, other):
            steward.server_lost(one)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_has_just_come_back_can_be_sent_away_again(tmp_path: Path) -> None:
    """Its program goes on before the steward hears that it is back."""

    async def main() -> None:
        steward, server, _ = await two(tmp_path)

        async def answered(kind: str, where: node_pb2.Residence, allowance: int) -> None:
            number = (await server.told(kind)).number
            said = node_pb2.Resides(session=1, number=number, where=where, allowance=allowance)
            steward.resides(server, said)

        first = asyncio.ensure_future(steward.evict(1))
        await answered("leave", AWAY[0], 0)
        await first
        steward.room_wanted(server, node_pb2.RoomWanted(session=1, bytes=GIB, away=True))
        await server.told("come_back")
        again = asyncio.ensure_future(steward.evict(1))
        await asyncio.sleep(0.02)
        assert not again.done()
        await answered("come_back", RESIDENT, GIB)
        await answered("leave", AWAY[0], 0)
        await again

    asyncio.run(main())


def test_who_is_called_back_while_it_moves_is_followed(tmp_path: Path) -> None:
    """Or asked for once more, if it stays after all."""

    async def main() -> None:
        steward, one, _ = await two(tmp_path)
        asked = asyncio.ensure_future(steward.evict(one.key))
        number = (await one.told("leave")).number
        away = node_pb2.Resides(session=1, number=number, where=AWAY[0], mapped=SMALL)
        steward.resides(one, away)
        await asked
        called = asyncio.ensure_future(steward.recall(1, 20.0))
        for _ in range(2):
            away.number, away.reason = (await one.told("come_back")).number, "it is being moved"
            one.orders.clear()
            steward.resides(one, away)
        there = cast(Any, Said(3, SMALL))
        there.session = 1
        steward.begin(there, node_pb2.Grant(session=1, memory_quota=GIB))
        one.session = 0
        steward.session_ended(one, node_pb2.SessionEnded(session=1, clean=True))
        assert (await called).server == there.key

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("by", ["an operator", "its turn"])
def test_who_is_called_back_has_arrays_too(tmp_path: Path, by: str) -> None:
    """They stayed on the device, and are part of what it may have there."""

    async def main() -> None:
        steward, one, _ = await two(tmp_path)
        asked = asyncio.ensure_future(steward.evict(one.key))
        number = (await one.told("leave")).number
        away = node_pb2.Resides(session=1, number=number, where=AWAY[0], mapped=SMALL, allowance=2 * SMALL)
        steward.resides(one, away)
        await asked
        if by == "an operator":
            steward.anticipate(1)
        else:
            steward.turn_comes(1, ())
        assert (await one.told("come_back")).allowance == 3 * SMALL
        steward.server_lost(one)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("arrives", [False, True])
def test_who_is_sent_away_while_it_moves_is_followed(tmp_path: Path, arrives: bool) -> None:
    """It was said to be over. If nobody has it any more, or it is in a file, it is not asked for again."""

    async def main() -> None:
        steward, one, _ = await two(tmp_path)
        asked = asyncio.ensure_future(steward.evict(one.key))
        number = (await one.told("leave")).number
        steward.resides(one, node_pb2.Resides(session=1, number=number, reason="the session is over"))
        there = cast(Any, Said(3, SMALL))
        there.session = 1
        await asyncio.sleep(0.02)
        one.session = 0
        if arrives:
            steward.begin(there, node_pb2.Grant(session=1, memory_quota=GIB))
        steward.session_ended(one, node_pb2.SessionEnded(session=1, clean=True))
        if not arrives:
            with pytest.raises(KeyError):
                await asked
            return
        number = (await there.told("leave")).number
        steward.resides(there, node_pb2.Resides(session=1, number=number, where=AWAY[0], mapped=SMALL))
        assert (await asked).mapped == SMALL

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_long_line_is_not_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited behind others for longer than a call may wait for nothing gets room in its turn."""
    monkeypatch.setattr(governed, "CALL_SECONDS", 0.05)

    async def main() -> None:
        steward, one, other = await two(tmp_path)
        late = [cast(ApiServer, Said(key, 0)) for key in (3, 4)]
        for each in (one, other):
            cast(Any, each).stats.idle_seconds = 5.0
        for each in late:
            steward.begin(each, node_pb2.Grant(session=each.key, memory_quota=GIB))
            steward.room_wanted(each, node_pb2.RoomWanted(session=each.key, bytes=GIB))
        for slow, waits in zip((one, other), cast(Any, late), strict=True):
            number = (await slow.told("leave")).number
            await asyncio.sleep(0.1)  # of a disk
            steward.resides(slow, node_pb2.Resides(session=slow.key, number=number, where=AWAY[0]))
            allow = await waits.told("allow")
            assert not allow.refused
            told = node_pb2.Resides(session=waits.key, number=allow.number, allowance=GIB)
            steward.resides(waits, told)
            waits.stats.memory_mapped = GIB
        while steward.wishes.tasks:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_cannot_get_room_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governed, "CALL_SECONDS", 0.05)

    async def main() -> None:
        steward, one, other = await two(tmp_path)
        for each in (one, other):
            cast(Any, each).stats.stays = "it shares memory with other processes"
        late = cast(Any, Said(3, 0))
        steward.begin(late, node_pb2.Grant(session=3, memory_quota=GIB))
        steward.room_wanted(late, node_pb2.RoomWanted(session=3, bytes=GIB))
        allow = await late.told("allow")
        assert allow.refused
        steward.resides(late, node_pb2.Resides(session=3, number=allow.number))
        while steward.wishes.tasks:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("ends", [False, True])
def test_who_finds_no_place_beside_what_stays_holds_up_nobody(tmp_path: Path, ends: bool) -> None:
    """Its own turn comes when what stayed has ended."""

    async def main() -> None:
        steward = Steward(4.0, 4 * GIB, 0, tmp_path, plenty)
        steward.grantable(0, GIB)
        stays, large, small = (cast(Any, Said(key, 0)) for key in (1, 2, 3))
        stays.stats = node_pb2.Stats(session=1, memory_mapped=GIB // 2, stays="it shares memory")
        for each, size in ((stays, GIB // 2), (large, GIB), (small, GIB)):
            steward.begin(each, node_pb2.Grant(session=each.key, memory_quota=size))
        steward.room_wanted(large, node_pb2.RoomWanted(session=2, bytes=GIB, away=True))
        await asyncio.sleep(0.05)
        assert not large.orders
        steward.room_wanted(small, node_pb2.RoomWanted(session=3, bytes=SMALL, away=True))
        number = (await small.told("come_back")).number
        steward.resides(small, node_pb2.Resides(session=3, number=number, where=RESIDENT, allowance=SMALL))
        small.stats.memory_mapped, small.stats.idle_seconds = SMALL, 100.0
        if ends:
            steward.server_lost(stays)
            number = (await small.told("leave")).number
            steward.resides(small, node_pb2.Resides(session=3, number=number, where=AWAY[0]))
            number = (await large.told("come_back")).number
            steward.resides(large, node_pb2.Resides(session=2, number=number, where=RESIDENT, allowance=GIB))
        for each in (stays, large, small):
            steward.server_lost(each)
        while steward.wishes.tasks:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("refused", [False, True])
def test_copies_that_are_given_up_late_are_free_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """And until it is known whether they are there, the next monitor is not told to expect them."""
    monkeypatch.setattr(tried, "IN_LINE_SECONDS", 0.01)
    monkeypatch.setattr(tried, "BYTES_PER_SECOND", math.inf)

    async def main() -> None:
        steward, one, _ = await two(tmp_path, host=0, disk=4 * GIB)
        asked = asyncio.ensure_future(steward.evict(one.key))
        leave = await one.told("leave")
        steward.resides(one, node_pb2.Resides(session=1, number=leave.number, where=RESIDENT))
        await asked
        entry = steward.books.get(one.key)
        assert entry
        await steward._copies.give_up(entry)
        forget = await one.told("forget")
        assert (entry.disk_bytes, one.noted) == (SMALL, {})
        reason = "they are all that there is of it" if refused else ""
        steward.resides(one, node_pb2.Resides(session=1, number=forget.number, reason=reason))
        while steward._orders.is_late(one.key):
            await asyncio.sleep(0.001)
        assert (entry.disk_bytes, len(entry.files), len(one.noted)) == (
            (SMALL, 1, 1) if refused else (0, 0, 0)
        )
        steward.server_lost(one)

    asyncio.run(asyncio.wait_for(main(), 60))
