"""Sessions that do not fit together change places, also where there is little room for copies: nobody is away
for good because nobody else's copy has room.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gpuferry.monitor.residency import wishes as governed
from gpuferry.monitor.residency.copies import NoRoom
from gpuferry.monitor.residency.outlook import exchange_bytes
from gpuferry.monitor.residency.policy import Candidate, leavers
from gpuferry.monitor.residency.steward import Steward
from hypothesis import given
from hypothesis import strategies as st

from tests.residency.lodgers import lodgers
from tests.residency.said import GIB, plenty
from tests.residency.test_monitor import crowded
from tests.residency.test_policy import CANDIDATES
from tests.residency.test_wishes import MIB, WAITS, House, run


@given(CANDIDATES, st.integers(1, 16 * GIB), st.integers(0, 64 * GIB))
def test_those_that_leave_for_one_have_no_more_than_is_kept_for_their_copies(
    others: list[Candidate], size: int, memory: int
) -> None:
    sizes = [size, *(one.size for one in others)]
    chosen = leavers(others, min(size, sum(sizes) - memory), 100.0)
    there_at_once = min(sum(one.size for one in chosen), memory)
    assert there_at_once <= exchange_bytes(sizes, memory)


def small(house: House, folder: Path, host: int) -> None:
    """So much host memory for copies."""
    house.steward = Steward(4.0, host, 0, folder, plenty)
    for device in (0, 1):
        house.steward.grantable(device, 2 * GIB)


def test_nobody_leaves_who_could_not_come_back(tmp_path: Path) -> None:
    """As long as it is away its copy has room that the other one's would need."""

    async def main(house: House) -> None:
        small(house, tmp_path, 3 * GIB // 2)
        lodgers = [house.begin(GIB, 0, mapped=GIB) for _ in range(2)]
        third = house.begin(GIB, 0)
        house.wants(third, GIB)
        await asyncio.sleep(WAITS)
        assert not [said.orders for said in house.servers if said.orders]
        house.ends(third)
        house.begin(GIB, 0, mapped=GIB)  # it has more than it may
        with pytest.raises(NoRoom, match=f"and {GIB} for copies of those that leave when it comes back"):
            await house.steward.evict(lodgers[0].session)

    run(main, tmp_path)


def test_those_that_leave_spare_what_another_device_needs(tmp_path: Path) -> None:
    """All copies are in the same host memory: those of one device could keep out who is away on another."""

    async def main(house: House) -> None:
        small(house, tmp_path, 4 * GIB + GIB // 4)
        await house.goes(house.begin(2 * GIB, 0, mapped=2 * GIB))
        house.begin(2 * GIB, 0, mapped=2 * GIB)
        one, other = (house.begin(GIB // 4, 1, mapped=GIB // 4) for _ in range(2))
        await house.goes(one)
        with pytest.raises(NoRoom, match=f"and {2 * GIB} for copies of those that leave when it comes back"):
            await house.steward.evict(other.session)

    run(main, tmp_path)


def test_nobody_spares_anything_where_all_copies_have_room(tmp_path: Path) -> None:
    """Whoever comes back, and in place of whom: each finds room for its copy."""

    async def main(house: House) -> None:
        small(house, tmp_path, 3 * GIB + GIB // 2)
        await house.goes(house.begin(GIB, 0, mapped=GIB))
        large = house.begin(2 * GIB, 0, mapped=2 * GIB)
        house.steward.books.allow(house.entry(large), 2 * GIB)
        third = house.begin(GIB, 0)
        house.wants(third, GIB // 2)
        await house.leaves(large)
        await house.gets(third, GIB // 2)

    run(main, tmp_path)


def test_nobody_grows_so_that_another_one_could_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even into memory that is free: its call is out of memory. As large as the other one it may be."""
    monkeypatch.setattr(governed, "CALL_SECONDS", WAITS)

    async def main(house: House) -> None:
        small(house, tmp_path, 2 * GIB)
        away = house.begin(GIB, 0, mapped=GIB)
        house.begin(2 * GIB, 0)  # more is promised than there is
        await house.goes(away)
        grows = house.begin(2 * GIB, 0)
        assert house.allowance(grows) == 0, "it asks"
        house.wants(grows, GIB + 64 * MIB)
        await house.is_refused(grows)
        house.wants(grows, GIB)
        await house.gets(grows, GIB)

    run(main, tmp_path)


@pytest.mark.system
def test_three_take_turns_with_room_for_two_copies() -> None:
    """One of them is away at any time, and comes back for each of its calls."""
    with (
        crowded("--away-memory", "128MiB") as (server, operator),
        lodgers(server, [64 * MIB] * 3) as programs,
    ):
        for one in programs:
            one.ready()
        for _ in range(2):
            for one in programs:
                one.work()
        for one in programs:
            one.finish()
        operator.until_none_is_left()
