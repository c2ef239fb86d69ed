"""Who gets room on a device, and when: of several devices, beside those that stay, and passed by others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from gpuferry.monitor.policy.queues import OVERTAKERS
from gpuferry.monitor.residency import steward
from gpuferry.monitor.residency import wishes as governed
from gpuferry.monitor.residency.books import AWAY, RESIDENT, Entry
from gpuferry.monitor.residency.line import Line, Wish
from gpuferry.monitor.residency.steward import Steward
from gpuferry.specs._generated import control_pb2, node_pb2

from tests.apiserver.test_limits import Clock
from tests.monitor.harness import DEADLINE
from tests.residency.said import GIB, Said, plenty

MIB = 1 << 20
WAITS = 0.03  # seconds in which nothing comes of it


class House:
    """Two devices of 2 GiB, which may be promised four times."""

    def __init__(self, folder: Path) -> None:
        self.steward = Steward(4.0, 64 * GIB, 0, folder, plenty)
        for device in (0, 1):
            self.steward.grantable(device, 2 * GIB)
        self.servers: list[Any] = []
        self.most = 0  # that was given to one last

    def begin(self, quota: int, *devices: int, mapped: int = 0, stays: str = "") -> Any:
        """An API server that has done nothing for a while."""
        said = cast(Any, Said(len(self.servers) + 1, 0))
        said.device, said.devices, said.several = devices[0], devices, len(devices) > 1
        said.stats.stays = stays
        said.stats.idle_seconds = 60.0
        self.servers.append(said)
        self.steward.begin(said, node_pb2.Grant(session=said.key, memory_quota=quota))
        self.maps(said, mapped)
        return said

    def lodgers(self, device: int) -> tuple[Any, Any]:
        """Two that have three quarters of the device. The other one has more, and leaves first."""
        one, other = (self.begin(size, device, mapped=size) for size in (GIB // 2, GIB))
        other.stats.idle_seconds = 90.0
        return one, other

    def maps(self, said: Any, size: int) -> None:
        said.stats.memory_mapped = size * len(said.devices)
        said.stats.mapped_on[:] = [size] * len(said.devices)

    def entry(self, said: Any) -> Entry:
        entry = self.steward.books.get(said.key)
        assert entry
        return entry

    def allowance(self, said: Any) -> int:
        return self.entry(said).allowance

    def wants(self, said: Any, size: int, away: bool = False) -> None:
        self.steward.room_wanted(said, node_pb2.RoomWanted(session=said.key, bytes=size, away=away))

    def answer(
        self, said: Any, number: int, where: node_pb2.Residence = RESIDENT, allowance: int = 0
    ) -> None:
        said.orders.clear()
        told = node_pb2.Resides(session=said.key, number=number, where=where, allowance=allowance)
        self.steward.resides(said, told)

    async def gets(self, said: Any, size: int) -> None:
        """It wished for so much, and has it."""
        order = await said.told("allow")
        assert not order.refused
        self.most = max(each.allow.allowance for each in said.orders)
        assert self.most >= size
        self.maps(said, size)
        for each in list(said.orders):  # what it does not use may be wanted back at once
            self.answer(said, each.allow.number, allowance=size)

    async def returns(self, said: Any, size: int) -> None:
        order = await said.told("come_back")
        self.answer(said, order.number, allowance=size)

    async def leaves(self, said: Any) -> None:
        order = await said.told("leave")
        self.answer(said, order.number, AWAY[0])

    async def goes(self, said: Any) -> None:
        """Send the session's memory away, as `session evict` does."""
        asked = asyncio.ensure_future(self.steward.evict(said.key))
        await self.leaves(said)
        await asked

    async def is_refused(self, said: Any) -> None:
        order = await said.told("allow")
        assert order.refused
        self.answer(said, order.number, allowance=self.allowance(said))

    def ends(self, said: Any) -> None:
        said.over.set()
        self.steward.server_lost(said)

    async def end(self) -> None:
        for said in self.servers:
            self.ends(said)
        while self.steward.wishes.tasks:
            await asyncio.sleep(0)


def run(main: Any, folder: Path) -> None:
    async def all_of_it() -> None:
        house = House(folder)
        await main(house)
        await house.end()

    asyncio.run(asyncio.wait_for(all_of_it(), DEADLINE))


def test_who_has_several_devices_has_room_on_all_of_them_or_on_none(tmp_path: Path) -> None:
    async def main(house: House) -> None:
        _, lodger = house.lodgers(1)
        both = house.begin(GIB, 0, 1)
        assert house.allowance(both) == 0, "on one of them there is nothing"
        house.wants(both, GIB)
        order = await lodger.told("leave")
        await asyncio.sleep(WAITS)
        assert not both.orders
        assert house.allowance(both) == 0
        other = house.begin(2 * GIB, 0)
        assert house.allowance(other) == 0, "what is free there is for who came first"
        house.answer(lodger, order.number, AWAY[0])
        await house.gets(both, GIB)
        assert [house.steward.books.free(device) for device in (0, 1)] == [GIB, GIB // 2]

    run(main, tmp_path)


def test_what_several_devices_have_and_do_not_use_is_given_to_others(tmp_path: Path) -> None:
    async def main(house: House) -> None:
        both = house.begin(2 * GIB, 0, 1, mapped=GIB)
        assert house.allowance(both) == 2 * GIB
        other = house.begin(GIB, 1)
        house.wants(other, GIB)
        order = await both.told("allow")
        assert (order.allowance, order.refused) == (0, False)
        house.answer(both, order.number, allowance=GIB)
        await house.gets(other, GIB)

    run(main, tmp_path)


@pytest.mark.parametrize("places", [((0, 1), (0, 1)), ((0, 1), (1, 0))])
def test_two_of_several_devices_do_not_wait_for_each_other(
    tmp_path: Path, places: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    """Each has its own on both devices, one after the other."""

    async def main(house: House) -> None:
        lodgers = [house.lodgers(device)[1] for device in (0, 1)]
        first, second = (house.begin(GIB, *devices) for devices in places)
        for each in (first, second):
            house.wants(each, GIB)
        for lodger in lodgers:
            await house.leaves(lodger)
        await house.gets(first, GIB)
        await asyncio.sleep(WAITS)
        assert not second.orders
        house.ends(first)
        await house.gets(second, GIB)

    run(main, tmp_path)


def test_others_go_on_until_all_devices_of_one_can_be_had(tmp_path: Path) -> None:
    """On one device somebody is before it, who makes room slowly; on the other it keeps nobody waiting."""

    async def main(house: House) -> None:
        slow = house.begin(GIB, 1, mapped=GIB)
        ahead = house.begin(GIB + GIB // 4, 1)
        house.wants(ahead, GIB + GIB // 4)
        leave = await slow.told("leave")
        both = house.begin(GIB // 2, 0, 1)
        house.wants(both, GIB // 2)
        other = house.begin(GIB, 0)
        house.wants(other, GIB)
        await house.gets(other, GIB)
        assert not both.orders
        house.answer(slow, leave.number, AWAY[0])
        await house.gets(ahead, GIB + GIB // 4)
        await house.gets(both, GIB // 2)

    run(main, tmp_path)


@pytest.mark.parametrize("several", [False, True])
def test_who_stays_gets_no_more_than_leaves_others_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    """Its call is out of memory, not the other one away for ever."""
    monkeypatch.setattr(governed, "CALL_SECONDS", WAITS)

    async def main(house: House) -> None:
        away = house.begin(2 * GIB, 0, mapped=GIB + GIB // 2)
        await house.goes(away)
        devices = (0, 1) if several else (0,)
        stays = house.begin(2 * GIB, *devices, mapped=GIB // 4, stays="it shares memory with others")
        assert not several or house.allowance(stays) == 0, "it would be too much beside the other one"
        house.wants(stays, GIB)
        if stays.orders and not stays.orders[-1].allow.refused:
            pytest.fail("it has more than it may")
        await house.is_refused(stays)
        house.wants(stays, GIB // 2)
        await house.gets(stays, GIB // 2)
        assert house.most == GIB // 2, "not a little more, as others get"
        house.wants(away, GIB + GIB // 2, away=True)
        await house.returns(away, GIB + GIB // 2)

    run(main, tmp_path)


def test_who_can_be_given_nothing_is_passed_by_so_many_and_no_more(tmp_path: Path) -> None:
    """By calls that want more. Who only wants back what it had goes on all the while."""

    async def main(house: House) -> None:
        away = house.begin(2 * GIB, 0, mapped=2 * GIB)
        await house.goes(away)
        old = house.begin(MIB, 0, mapped=MIB)
        await house.goes(old)
        stays = house.begin(GIB, 0)
        house.wants(stays, GIB)
        await house.gets(stays, GIB)
        stays.stats.stays = "it shares memory with others"
        house.wants(away, 2 * GIB, away=True)
        for _ in range(OVERTAKERS):
            young = house.begin(4 * MIB, 0)
            assert house.allowance(young) == 0
            house.wants(young, 2 * MIB)
            await house.gets(young, 2 * MIB)
            house.ends(young)
        last = house.begin(4 * MIB, 0)
        house.wants(last, 2 * MIB)
        house.wants(old, MIB, away=True)
        await house.returns(old, MIB)
        await asyncio.sleep(WAITS)
        assert not last.orders
        house.ends(stays)
        await house.leaves(old)
        await house.returns(away, 2 * GIB)
        away.stats.idle_seconds = 60.0
        await house.leaves(away)
        await house.gets(last, 2 * MIB)

    run(main, tmp_path)


def test_a_line_counts_who_is_passed() -> None:
    line = Line()
    line[1] = Wish(1, True, 0.0)
    line[2] = Wish(1, True, 0.0, ahead=True)
    for number in range(3, 3 + OVERTAKERS):
        line[number] = Wish(1, False, 0.0)
        assert line.held_back() == set()
        line.grant(number, 1.0)
    line[50], line[51] = Wish(1, False, 0.0), Wish(1, True, 0.0)
    assert line.held_back() == {50}
    assert line.first(lambda key, _: key != 1) == 51
    assert line.first(lambda key, _: key == 50) is None
    line.drop(1)
    assert line.first(lambda *_: True) == 50, "one that is brought ahead of its turn stands behind all others"
    assert line.moved_at == 1.0


def test_an_answer_is_noted_before_the_next_word_is_heard(tmp_path: Path) -> None:
    """Else what comes with it in one packet would be judged by what was."""

    async def main(house: House) -> None:
        crowd = house.begin(GIB, 0, mapped=GIB)
        asked = asyncio.ensure_future(house.steward.evict(crowd.key))
        order = await crowd.told("leave")
        house.answer(crowd, order.number, AWAY[0])
        assert (house.allowance(crowd), house.steward.entries()[crowd.session].away) == (0, True)
        await asked

    run(main, tmp_path)


def test_who_finds_no_place_beside_what_stays_goes_to_another_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait for as long as the other one lives, which has begun to share what it had."""
    monkeypatch.setattr(governed, "PLACE_SECONDS", WAITS)

    async def main(house: House) -> None:
        moved: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        refused = list[int]()

        def move(session: int, device: int) -> str | None:
            if not refused:
                refused.append(session)
                return "it may not move now"
            if not moved.done():
                moved.set_result((session, device))
            return None

        house.steward.on_stranded = move
        away, small = (house.begin(size, 0, mapped=size) for size in (GIB, GIB // 4))
        await house.goes(away)
        await house.goes(small)
        stays = house.begin(2 * GIB, 0)
        house.wants(stays, GIB + GIB // 2)
        await house.gets(stays, GIB + GIB // 2)
        stays.stats.stays = "it shares memory with others"
        house.begin(2 * GIB, 1, mapped=2 * GIB)  # it can leave
        house.wants(small, GIB // 4, away=True)
        house.wants(away, GIB, away=True)
        await house.returns(small, GIB // 4)
        assert (await moved, refused) == ((away.session, 1), [away.session])

    run(main, tmp_path)


def test_who_finds_no_place_beside_arrays_goes_to_another_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay where they are when their session leaves, or is about to."""
    monkeypatch.setattr(governed, "PLACE_SECONDS", WAITS)

    async def main(house: House) -> None:
        moved: list[tuple[int, int]] = []
        house.steward.on_stranded = lambda *where: moved.append(where)
        away = house.begin(GIB, 0, mapped=GIB)
        await house.goes(away)
        holds = house.begin(2 * GIB, 0)
        house.wants(holds, GIB + GIB // 2)
        await house.gets(holds, GIB + GIB // 2)
        house.maps(holds, 0)
        house.wants(away, GIB, away=True)
        while not moved:
            if holds.orders:
                house.answer(holds, holds.orders[-1].allow.number, allowance=GIB + GIB // 2)
            await asyncio.sleep(0.001)
        assert moved[0] == (away.session, 1)

    run(main, tmp_path)


def test_who_has_waited_behind_others_in_vain_is_refused_soon_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can leave, for copies have no room. That is tried for each, and waited for once."""
    clock = Clock()
    for module in (governed, steward):
        monkeypatch.setattr(module, "time", clock)

    async def main(house: House) -> None:
        house.steward = steward.Steward(4.0, 0, 0, tmp_path, plenty)
        house.steward.grantable(0, 2 * GIB)
        house.begin(2 * GIB, 0, mapped=2 * GIB)
        first, second = (house.begin(GIB, 0) for _ in range(2))
        for each in (first, second):
            house.wants(each, GIB)
        await asyncio.sleep(WAITS)
        clock.now += governed.CALL_SECONDS + 1
        await house.is_refused(first)
        clock.now += 1
        await asyncio.sleep(WAITS)
        assert not second.orders
        clock.now += governed.TRY_SECONDS + 1
        await house.is_refused(second)

    run(main, tmp_path)


def test_who_was_sent_away_in_a_call_is_brought_back_for_what_it_waits(tmp_path: Path) -> None:
    """Room alone is of no use to it, and nobody else would have that: it has not said yet that it is away."""

    async def main(house: House) -> None:
        stays = house.begin(3 * GIB // 2, 0, mapped=3 * GIB // 2, stays="it shares memory with others")
        one = house.begin(GIB, 0)
        house.wants(one, GIB // 4)
        await house.gets(one, GIB // 4)
        house.wants(one, GIB)  # beside the one that stays there is no room for it
        await house.goes(one)
        house.ends(stays)
        order = await one.told("come_back")
        assert order.allowance == GIB
        house.answer(one, order.number, allowance=GIB)

    run(main, tmp_path)


def test_what_is_promised_can_be_told(tmp_path: Path) -> None:
    """The simulated device may have a petabyte."""
    most = Steward(1e6, 0, 0, tmp_path, plenty).grantable(0, 1 << 50)
    assert 1 << 62 < control_pb2.Device(memory_grantable=most).memory_grantable < 1 << 63


def test_figures_are_asked_for_where_nobody_has_to_leave_too(tmp_path: Path) -> None:
    """Of what each program has on its device a registry was told nothing there; now each some seconds."""

    async def main() -> None:
        house = House(tmp_path)
        house.steward.oversubscribe = 1.0
        asked = 0

        async def refresh(_: float) -> None:
            nonlocal asked
            asked += 1

        house.begin(GIB, 0).refresh_stats = refresh
        for wanted in (1, 1):  # a heartbeat each second asks nobody each second
            await house.steward.look()
            assert asked == wanted
        house.steward._looked -= steward.READ_SECONDS
        await house.steward.look()
        assert asked == 2

    asyncio.run(main())


def test_a_defect_that_stays_keeps_no_core_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was tried again at once, as often as the event loop went round, and each time logged."""
    tries = 0

    def fails(*_: object) -> bool:
        nonlocal tries
        tries += 1
        raise RuntimeError("a defect")

    async def main(house: House) -> None:
        one = house.begin(GIB, 0)
        monkeypatch.setattr(house.steward.wishes, "fits", fails)
        house.wants(one, GIB)
        for _ in range(50):
            await asyncio.sleep(0)
        house.ends(one)
        house.steward.wishes.tasks[0].cancel()

    run(main, tmp_path)
    assert tries == 1
