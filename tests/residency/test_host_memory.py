"""Copies in host memory: no more than this machine has, whatever they were promised."""

from __future__ import annotations

import asyncio
import errno
import itertools
from pathlib import Path
from typing import Any, cast

import pytest
from gpuferry.monitor.jail import cgroups
from gpuferry.monitor.residency.books import AWAY, RESIDENT
from gpuferry.monitor.residency.copies import NoRoom
from gpuferry.monitor.residency.host import RECENT_SECONDS, RESERVE, Recent, available
from gpuferry.monitor.residency.steward import Steward
from gpuferry.specs._generated import node_pb2

from tests.residency.said import GIB, Said

MIB = 1 << 20


class Machine:
    """One API server with a session of 64 MiB, on a machine that has as much host memory as a test says."""

    def __init__(self, folder: Path, left: int, disk: int = 0) -> None:
        self.left = left
        self.steward = Steward(2.0, 4 * GIB, disk, folder, lambda: self.left)
        self.steward.grantable(0, 2 * GIB)
        self.server = self.begin(1)

    def begin(self, number: int) -> Any:
        server = cast(Any, Said(number, 64 * MIB))
        self.steward.begin(server, node_pb2.Grant(session=number, memory_quota=GIB))
        return server

    async def leaves(self, server: Any, taken: int, where: node_pb2.Residence = AWAY[0]) -> node_pb2.Leave:
        """As an operator wants; so much of its files is written then."""
        asked = asyncio.ensure_future(self.steward.evict(server.key))
        while not server.orders and not asked.done():
            await asyncio.sleep(0)
        if asked.done():
            await asked
        order = server.orders.pop().leave
        told = node_pb2.Resides(session=server.key, number=order.number, where=where, host_taken=taken)
        self.steward.resides(server, told)
        await asked
        return cast(node_pb2.Leave, order)


def test_what_the_machine_has_not_left_goes_to_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, left=16 * MIB, disk=GIB)
        order = await machine.leaves(machine.server, 16 * MIB, AWAY[1])
        assert list(zip(order.bytes, order.on_disk, strict=True)) == [(16 * MIB, False), (48 * MIB, True)]
        machine.steward.server_lost(machine.server)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_or_the_session_stays_and_the_log_says_why_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, left=16 * MIB)
        for _ in range(3):
            with pytest.raises(NoRoom, match=r"16777216 of host memory .* which this machine has not left"):
                await machine.leaves(machine.server, 0)
        entry = machine.steward.books.get(1)
        assert entry
        assert (entry.where, entry.host_bytes) == (RESIDENT, 0)
        machine.left = 64 * MIB
        await machine.leaves(machine.server, 64 * MIB)
        machine.steward.server_lost(machine.server)

    asyncio.run(asyncio.wait_for(main(), 30))
    assert capsys.readouterr().out.count("a session cannot leave its device") == 1


def test_what_was_promised_and_not_written_yet_is_not_promised_again(tmp_path: Path) -> None:
    async def main() -> None:
        machine = Machine(tmp_path, left=96 * MIB)
        other = machine.begin(2)
        await machine.leaves(machine.server, taken=MIB)  # most of it is zero
        with pytest.raises(NoRoom, match="this machine has not left"):
            await machine.leaves(other, 0)
        machine.left += 32 * MIB
        await machine.leaves(other, 64 * MIB)
        for each in (machine.server, other):
            machine.steward.server_lost(each)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_others_may_have_taken_what_was_promised(tmp_path: Path) -> None:
    """A session that has its files stays, too, when they cannot be filled."""

    async def main() -> None:
        machine = Machine(tmp_path, left=64 * MIB)
        await machine.leaves(machine.server, taken=0, where=RESIDENT)
        machine.left = 8 * MIB
        with pytest.raises(NoRoom, match="67108864 bytes left that its copies may need"):
            await machine.leaves(machine.server, 0)
        machine.steward.server_lost(machine.server)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_files_that_its_api_server_could_not_use_are_given_up(tmp_path: Path) -> None:
    """Else they count, nobody gives it others for what it has already, and it never leaves again."""

    async def main() -> None:
        machine = Machine(tmp_path, left=GIB)
        server, entry = machine.server, machine.steward.books.get(1)
        assert entry
        asked = asyncio.ensure_future(machine.steward.evict(1))
        leave = await server.told("leave")
        told = node_pb2.Resides(session=1, number=leave.number, reason="Cannot allocate memory")
        machine.steward.resides(server, told)
        forget = await server.told("forget")
        machine.steward.resides(server, node_pb2.Resides(session=1, number=forget.number))
        with pytest.raises(NoRoom, match="Cannot allocate"):
            await asked
        assert entry.copy_bytes == 0
        server.orders.clear()
        assert list((await machine.leaves(server, 64 * MIB)).bytes) == [64 * MIB]
        machine.steward.server_lost(server)

    asyncio.run(asyncio.wait_for(main(), 30))


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


@pytest.mark.parametrize("version", ["none", "1", "2"])
def test_the_least_of_machine_and_groups_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Of a group without what it only remembers from files; it may be one above our own. Beyond memory.high a
    group is slowed down as a whole.
    """
    monkeypatch.setattr(
        cgroups, "_own", lambda controller: "slice/unit" if controller or version == "2" else ""
    )
    machine = tmp_path / "meminfo"
    machine.write_text(f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {32 << 20} kB\n")
    root = tmp_path / "cgroup"
    limited = {"memory_stat": f"inactive_file {GIB}\ntotal_inactive_file {2 * GIB}\nactive_file 7\n"}
    if version == "2":
        write(root / "slice", memory_max=f"{16 * GIB}\n", memory_current=f"{12 * GIB}\n", **limited)
        write(
            root / "slice/unit",
            memory_max="max\n",
            memory_high=f"{14 * GIB}\n",
            memory_current=f"{11 * GIB}\n",
            **limited,
        )
    if version == "1":
        limits = {"memory_limit_in_bytes": f"{16 * GIB}\n", "memory_usage_in_bytes": f"{12 * GIB}\n"}
        write(root / "memory/slice/unit", **limits, **limited)
        write(root / "memory", memory_limit_in_bytes=f"{1 << 63}\n", memory_usage_in_bytes="7\n", **limited)
    left = {"none": 32 * GIB, "1": 6 * GIB, "2": 4 * GIB}[version]
    assert available(root, machine) == left - RESERVE


def test_where_there_is_little_less_is_reserved(tmp_path: Path) -> None:
    machine = tmp_path / "meminfo"
    machine.write_text(f"MemTotal: {1 << 20} kB\nMemAvailable: {512 << 10} kB\n")
    assert available(tmp_path, machine) == 512 * MIB - GIB // 8
    machine.write_text(f"MemTotal: {1 << 20} kB\nMemAvailable: 7 kB\n")
    assert available(tmp_path, machine) == 0


def test_the_machine_is_not_looked_at_all_the_time() -> None:
    """Each look at each of those that wait for room cost half a millisecond of the event loop."""
    now, looks = 100.0, 0

    def look() -> int:
        nonlocal looks
        looks += 1
        return looks

    recent = Recent(look, lambda: now)
    assert [recent() for _ in range(50)] == [1] * 50
    now += RECENT_SECONDS
    assert [recent() for _ in range(50)] == [2] * 50


def test_what_was_found_last_holds_where_nobody_can_look(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no descriptor was free the monitor ended, at its next heartbeat or copy."""
    found = iter((7 * MIB,))

    def look() -> int:
        if (left := next(found, None)) is None:
            raise OSError(errno.EMFILE, "Too many open files")
        return left

    recent = Recent(look, itertools.count(step=RECENT_SECONDS).__next__)
    assert [recent() for _ in range(3)] == [7 * MIB] * 3
    assert "Too many open files" in capsys.readouterr().out


def test_of_this_machine() -> None:
    assert 0 <= available() < 1 << 50
