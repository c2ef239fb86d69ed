"""Copies on their way to a disk and back: their files are counted, looked at, emptied and given up."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from gpuferry.monitor.pool.api_server import ApiServer
from gpuferry.monitor.residency import copies
from gpuferry.monitor.residency import orders as tried
from gpuferry.monitor.residency import steward as stewards
from gpuferry.monitor.residency.books import AWAY, RESIDENT
from gpuferry.monitor.residency.copies import NoRoom
from gpuferry.monitor.residency.files import CopyFile, on_disk
from gpuferry.specs._generated import node_pb2

from tests.residency.said import GIB, SMALL, Said, two


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
