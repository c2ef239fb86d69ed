"""Who waits for room: how long, and when it is told that there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from gpuferry.monitor.pool.api_server import ApiServer
from gpuferry.monitor.residency import wishes as governed
from gpuferry.monitor.residency.books import AWAY, RESIDENT
from gpuferry.monitor.residency.steward import Steward
from gpuferry.specs._generated import node_pb2

from tests.residency.said import GIB, SMALL, Said, plenty, two


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
