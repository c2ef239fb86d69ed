"""Sessions that are sent away, called back or moved while they are on their way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from gpuferry.monitor.residency.books import AWAY, RESIDENT
from gpuferry.specs._generated import node_pb2

from tests.residency.said import GIB, SMALL, Said, two


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
