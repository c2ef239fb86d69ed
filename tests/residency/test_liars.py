"""API servers that were taken over, and say of memory what is to their session's advantage."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest
from gpuferry.monitor.pool.api_server import ApiServer
from gpuferry.monitor.pool.channel import Descriptor
from gpuferry.monitor.residency import orders as tried
from gpuferry.monitor.residency import wishes as governed
from gpuferry.monitor.residency.books import AWAY, RESIDENT, Books
from gpuferry.monitor.residency.steward import Steward
from gpuferry.specs._generated import node_pb2

from tests.residency.said import GIB, SMALL, TOO_MUCH, Said, two


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
