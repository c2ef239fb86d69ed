"""The engine over a fleet of fakes: replicas, revisions and GPUs that go between two of its steps."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
import structlog.testing
from gpuferry.monitor.functions import fleet as fleet_module
from gpuferry.monitor.functions import shelf as shelf_module
from gpuferry.monitor.functions.catalogue import Catalogue
from gpuferry.monitor.functions.daemon import Daemon
from gpuferry.monitor.functions.deployment import Deployment, WrongDeployment
from gpuferry.monitor.functions.engine import Engine
from gpuferry.monitor.functions.fleet import Function
from gpuferry.monitor.functions.invocation import Code, Failed, Ran
from gpuferry.monitor.functions.memory import Gpus, Memory, Where
from gpuferry.monitor.functions.schedule import Schedule
from gpuferry.monitor.functions.shelf import InUse, Shelf
from gpuferry.monitor.policy.invocations import Limit
from gpuferry.monitor.settings.errors import ConfigError

from .fakes import (
    CALL,
    FakeFleet,
    FakeMemory,
    SlowStore,
    engine,
    known,
    started,
)


def test_a_replica_that_started_for_a_gpu_that_is_lost_ends() -> None:
    """The policy has forgotten it with its GPU, and would start others beside it for ever."""

    async def lose() -> None:
        async with engine() as (made, fleet, schedule, memory):
            function = Function(Deployment("f", source="x", gpu_memory=1 << 20, most=2))
            schedule.deploy(function.deployment)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            first = await started(fleet, 0)
            gpu = function.units[0].gpu
            memory.gpus = Gpus({1 - gpu: 1 << 30}, True)
            made.take_gpus()
            first.may_start.set()
            second = await started(fleet, 1)
            second.may_start.set()
            assert (await asked).body == str(second.number).encode()
            assert not first.alive
            assert {place.unit.gpu for place in fleet.places.values()} == {1 - gpu}
            assert known(schedule) == fleet.places.keys()

    asyncio.run(asyncio.wait_for(lose(), 60))


def test_a_revision_whose_gpu_is_lost_while_it_starts_gets_another(tmp_path: Path) -> None:
    async def lose() -> None:
        async with engine() as (made, fleet, schedule, memory):
            catalogue = Catalogue(Shelf(tmp_path), schedule, fleet, made)
            deployment = Deployment("f", source="x", gpu_memory=1 << 20, most=2)
            deployed = asyncio.ensure_future(catalogue.deploy(deployment))
            first = await started(fleet, 0)
            (unit,) = fleet.units()
            memory.gpus = Gpus({1 - unit.gpu: 1 << 30}, True)
            made.take_gpus()
            first.may_start.set()
            function = await deployed
            assert not fleet.places
            assert not known(schedule)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            (await started(fleet, 1)).may_start.set()
            assert (await asked).status == 200
            assert {place.unit.gpu for place in fleet.places.values()} == {1 - unit.gpu}

    asyncio.run(asyncio.wait_for(lose(), 60))


def test_a_replica_that_ends_while_its_deployment_is_stored_gets_no_invocation(tmp_path: Path) -> None:
    async def end() -> None:
        async with engine() as (made, fleet, schedule, _):
            store = SlowStore()
            catalogue = Catalogue(Shelf(tmp_path), schedule, fleet, made, store)
            deployed = asyncio.ensure_future(catalogue.deploy(Deployment("f", source="x", most=1)))
            first = await started(fleet, 0)
            first.may_start.set()
            await store.asked.wait()
            first.kill()
            while fleet.places:
                await asyncio.sleep(0)
            store.may_keep.set()
            function = await deployed
            assert not known(schedule)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            (await started(fleet, 1)).may_start.set()
            assert (await asked).status == 200

    asyncio.run(asyncio.wait_for(end(), 60))


def test_a_replica_that_starts_while_the_next_revision_is_stored_ends_with_its_own(tmp_path: Path) -> None:
    async def replace() -> None:
        async with engine() as (made, fleet, schedule, _):
            store = SlowStore()
            catalogue = Catalogue(Shelf(tmp_path), schedule, fleet, made, store)
            deployed = asyncio.ensure_future(catalogue.deploy(Deployment("f", source="x", most=2)))
            first = await started(fleet, 0)
            first.may_start.set()
            store.may_keep.set()
            function = await deployed
            store.asked.clear()
            store.may_keep.clear()
            deployed = asyncio.ensure_future(catalogue.deploy(Deployment("f", source="y", most=2)))
            new = await started(fleet, 1)
            new.may_start.set()
            await store.asked.wait()
            first.kill()
            while any(place.unit.replica is first for place in fleet.places.values()):
                await asyncio.sleep(0)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            (await started(fleet, 2)).may_start.set()
            assert (await asked).status == 200
            store.may_keep.set()
            await deployed
            assert [place.unit.replica for place in fleet.places.values()] == [new]
            assert known(schedule) == fleet.places.keys()

    asyncio.run(asyncio.wait_for(replace(), 60))


def test_what_was_removed_and_deployed_anew_elsewhere_is_another_function(tmp_path: Path) -> None:
    """Both have revision 1, and with it the same file. Where the new one did not start, neither did."""

    async def anew() -> None:
        async with engine() as (made, fleet, schedule, _):
            store, shelf = SlowStore(), Shelf(tmp_path)
            store.may_keep.set()
            catalogue = Catalogue(shelf, schedule, fleet, made, store)
            deployed = asyncio.ensure_future(catalogue.deploy(Deployment("f", source="old")))
            (await started(fleet, 0)).may_start.set()
            before = await deployed
            store.has = Deployment("f", source="new", revision=1)
            following = asyncio.ensure_future(catalogue.follow("f"))
            (await asyncio.wait({following}, timeout=1.0))
            assert following.done()
            function = catalogue.get("f")
            assert function
            assert before.removed
            assert shelf.file(function.deployment).read_text() == "new"
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            (await started(fleet, 1)).may_start.set()
            assert (await asked).status == 200

    asyncio.run(asyncio.wait_for(anew(), 60))


def test_a_full_disk_is_said_to_be_that_at_a_start(tmp_path: Path) -> None:
    """Files of what is in a store are written at each start."""
    there: Any = SimpleNamespace(
        restore=AsyncMock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    )
    config: Any = SimpleNamespace(folder=tmp_path)
    with pytest.raises(ConfigError, match=f"cannot keep functions in {tmp_path}: No space left"):
        asyncio.run(Daemon(config)._restore(there))


@pytest.mark.parametrize("when", ["before it came", "while a replica started"])
def test_nothing_of_a_function_that_was_removed_runs_where_another_one_has_its_name(
    tmp_path: Path, when: str
) -> None:
    async def remove() -> None:
        async with engine() as (made, fleet, schedule, _):
            catalogue = Catalogue(Shelf(tmp_path), schedule, fleet, made)
            old = Function(Deployment("f", source="x"))
            catalogue._enter(old)
            if when != "before it came":
                asked = asyncio.ensure_future(made.invoke(old, CALL))
                await started(fleet, 0)
            assert await catalogue.remove("f")
            catalogue._enter(Function(Deployment("f", source="y")))
            if when == "before it came":
                asked = asyncio.ensure_future(made.invoke(old, CALL))
            for replica in fleet.started:
                replica.may_start.set()
            with pytest.raises(Failed) as caught:
                await asked
            assert (caught.value.code, caught.value.ran) == (Code.REMOVED, Ran.NO)
            assert len(fleet.started) == (when != "before it came")

    asyncio.run(asyncio.wait_for(remove(), 60))


def test_a_gpu_that_has_more_memory_than_it_had_is_used() -> None:
    """As a monitor has it that was started anew with other settings, or on another machine."""

    async def grow() -> None:
        async with engine() as (made, fleet, schedule, memory):
            function = Function(Deployment("f", source="x", gpu_memory=2 << 30))
            schedule.deploy(function.deployment)
            with pytest.raises(Failed) as caught:
                await made.invoke(function, CALL)
            assert caught.value.code is Code.REFUSED
            memory.gpus = Gpus({0: 4 << 30, 1: 1 << 30}, True)
            made.take_gpus()
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            (await started(fleet, 0)).may_start.set()
            assert (await asked).status == 200

    asyncio.run(asyncio.wait_for(grow(), 60))


def test_what_no_gpu_could_ever_have_is_not_deployed(tmp_path: Path) -> None:
    async def deploy() -> None:
        async with engine() as (made, fleet, schedule, memory):
            shelf = Shelf(tmp_path)
            catalogue = Catalogue(shelf, schedule, fleet, made)
            with pytest.raises(WrongDeployment, match="2GiB fit on no GPU: the largest has 1GiB"):
                await catalogue.deploy(Deployment("f", source="x", gpu_memory=2 << 30))
            with pytest.raises(WrongDeployment, match="gpus: 3 are asked for, and the GPU server has 2"):
                await catalogue.deploy(Deployment("f", source="x", gpus=3))
            assert not fleet.started
            memory.gpus = memory.gpus._replace(more=True)  # they are not all known yet
            deploying = asyncio.ensure_future(catalogue.deploy(Deployment("f", source="x", gpus=3)))
            (await started(fleet, 0)).may_start.set()
            await deploying
            memory.gpus = Gpus({0: 4 << 30, 1: 4 << 30}, True, limit=Limit(memory=3 << 30))
            with pytest.raises(WrongDeployment, match=r"4GiB are asked for, and .* grants this tenant 3GiB"):
                await catalogue.deploy(Deployment("f", source="x", gpus=2, gpu_memory=2 << 30))
            memory.gpus = Gpus({0: 4 << 30, 1: 4 << 30}, True, limit=Limit(gpus=1))
            with pytest.raises(WrongDeployment, match="2 are asked for, and this tenant may have 1 at once"):
                await catalogue.deploy(Deployment("f", source="x", gpus=2))
            shelf.close()

    asyncio.run(asyncio.wait_for(deploy(), 60))


def test_idle_replicas_make_room_for_what_is_deployed(tmp_path: Path) -> None:
    """It may load its model when it starts, and would wait for them: its own last revision, too."""

    async def deploy() -> None:
        async with engine() as (made, fleet, schedule, memory):
            memory.gpus = Gpus({0: 1 << 30}, True, promised={0: 1 << 30})
            made.take_gpus()
            shelf = Shelf(tmp_path)
            catalogue = Catalogue(shelf, schedule, fleet, made)
            for number, name in enumerate("aab"):
                one = Deployment(name, source=f"x{number}", gpu_memory=1 << 30)
                deploying = asyncio.ensure_future(catalogue.deploy(one))
                replica = await started(fleet, number)
                assert not any(other.alive for other in fleet.started[:number])
                replica.may_start.set()
                await deploying
            shelf.close()

    asyncio.run(asyncio.wait_for(deploy(), 60))


def test_replicas_that_nobody_has_invoked_yet_are_on_all_gpus(tmp_path: Path) -> None:
    """On the first GPU alone, they waited there for API servers beside idle ones."""

    async def deploy() -> None:
        async with engine() as (made, fleet, schedule, _):
            catalogue = Catalogue(Shelf(tmp_path), schedule, fleet, made)
            for number, name in enumerate("fgh"):
                deployed = asyncio.ensure_future(catalogue.deploy(Deployment(name, source="x")))
                (await started(fleet, number)).may_start.set()
                await deployed
            assert sorted(unit.gpu for unit in fleet.units()) == [0, 0, 1]

    asyncio.run(asyncio.wait_for(deploy(), 60))


def test_those_that_ought_to_be_there_are_no_more_than_there_may_be_of_all(tmp_path: Path) -> None:
    """Nor are they started and ended again and again."""

    async def have() -> None:
        async with engine(pool="2") as (made, fleet, schedule, _):
            catalogue = Catalogue(Shelf(tmp_path), schedule, fleet, made)
            functions = [Function(Deployment(name, source="x", least=2, most=2)) for name in "fg"]
            for function in functions:
                catalogue._enter(function)
                catalogue._have_least(function)
                (await started(fleet, len(fleet.places))).may_start.set()
                while len(known(schedule)) < len(fleet.started):
                    await asyncio.sleep(0)
            for function in functions:
                catalogue._have_least(function)
            await asyncio.sleep(0)
            assert len(fleet.started) == 2
            deployed = asyncio.ensure_future(catalogue.deploy(Deployment("h", source="x")))
            (await started(fleet, 2)).may_start.set()
            await deployed
            assert {place.unit.function.name for place in fleet.places.values()} == {"g", "h"}

    asyncio.run(asyncio.wait_for(have(), 60))


def test_a_function_may_be_called_lock(tmp_path: Path) -> None:
    """The file that keeps other servers away had that name, and has it where an older server runs."""
    before = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(before, fcntl.LOCK_EX)
    with pytest.raises(InUse):
        Shelf(tmp_path)
    os.close(before)
    shelf = Shelf(tmp_path)
    with pytest.raises(InUse):
        Shelf(tmp_path)
    shelf.stage(Deployment("lock", source="x"))
    shelf.put(Deployment("lock", source="x"))
    for name in ("lock", "other"):  # which do not start
        shelf.stage(Deployment(name, source="y", revision=1))
        shelf.drop(Deployment(name, source="y", revision=1))
    assert not (tmp_path / "other").exists()
    shelf.close()
    again = Shelf(tmp_path)
    assert [one.name for one in again.all()] == ["lock"]
    again.close()


def test_a_program_does_not_move_from_under_its_other_invocations() -> None:
    """A policy has each of its places on a GPU, but they are one process: it went to and fro."""

    async def two() -> None:
        async with engine(policy="lb") as (made, fleet, schedule, memory):
            function = Function(Deployment("f", command=("x",), concurrency=2, most=1, gpu_memory=1 << 20))
            schedule.deploy(function.deployment)
            for _ in range(3):
                asked = [asyncio.ensure_future(made.invoke(function, CALL)) for _ in range(2)]
                replica = await started(fleet, 0)
                replica.may_start.set()
                await asyncio.gather(*asked)
                made.moved(b"", Where(function.units[0].gpu, True))
                (flow,) = schedule._policy.flows()
                assert [one.card and one.card.index for one in flow.replicas] == 2 * [function.units[0].gpu]
            assert memory.moves == []
            at = function.units[0].gpu
            for _ in range(2):  # alone it goes where the policy wants it: LB gives to whoever had least
                await made.invoke(function, CALL)
                made.moved(b"", Where(function.units[0].gpu, True))
            assert memory.moves in ([1 - at], [1 - at, at])
            assert known(schedule) == fleet.places.keys()

    asyncio.run(asyncio.wait_for(two(), 60))


@pytest.mark.parametrize("full", [False, True])
def test_a_file_that_is_lost_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """The record has it. Its function started no more, until somebody deployed it again. Where files come out
    of a store, no server started on a full disk, though all were there.
    """
    there, lost = Deployment("f", source="x"), Deployment("g", source="y")
    store = SlowStore()
    monkeypatch.setattr(store, "deployments", AsyncMock(return_value={"f": there}))

    async def restore() -> None:
        async with engine() as (made, fleet, schedule, _):
            shelf = Shelf(tmp_path)
            for deployment in (there, lost):
                shelf.stage(deployment)
                shelf.put(deployment)
            shelf.file(lost).unlink()
            if full:
                failing = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
                monkeypatch.setattr(shelf_module, "write_atomically", failing)
            catalogue = Catalogue(shelf, schedule, fleet, made)
            with structlog.testing.capture_logs() as logs:
                await catalogue.restore()
            assert catalogue.names() == ["f", "g"]
            assert [line["function"] for line in logs] == ["g"] * full
            assert full or shelf.file(lost).read_text() == "y"
            await Catalogue(shelf, schedule, fleet, made, store).restore()

    asyncio.run(asyncio.wait_for(restore(), 60))


def test_those_that_ought_to_be_there_are_processes_and_not_places_of_one(tmp_path: Path) -> None:
    """One came for each place that the first one had, five a second, before there was a second one."""

    async def have() -> None:
        async with engine() as (made, fleet, schedule, memory):
            memory.gpus = Gpus({0: 1 << 30}, True)
            made.take_gpus()
            catalogue = Catalogue(Shelf(tmp_path), schedule, fleet, made)
            function = Function(Deployment("f", command=("x",), concurrency=100, least=2, most=2))
            catalogue._enter(function)
            for number in range(2):
                catalogue._have_least(function)
                (await started(fleet, number)).may_start.set()
            while len(fleet.places) < 2:
                await asyncio.sleep(0)
            assert [len(unit.places) for unit in function.units] == [1, 1]

    asyncio.run(asyncio.wait_for(have(), 60))


def test_a_replica_that_does_not_start_because_it_was_replaced_is_no_error(tmp_path: Path) -> None:
    """Its revision's file goes when the next one takes over; its caller was told that nothing starts."""

    async def replace() -> None:
        async with engine() as (made, fleet, schedule, _):
            shelf = Shelf(tmp_path)
            catalogue = Catalogue(shelf, schedule, fleet, made)
            deployed = asyncio.ensure_future(catalogue.deploy(Deployment("f", source="x", most=1)))
            first = await started(fleet, 0)
            first.may_start.set()
            function = await deployed
            old = function.deployment
            first.kill()
            while fleet.places:
                await asyncio.sleep(0)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            late = await started(fleet, 1)
            deployed = asyncio.ensure_future(catalogue.deploy(Deployment("f", source="y", most=1)))
            new = await started(fleet, 2)
            new.may_start.set()
            await deployed
            assert not shelf.file(old).exists()
            late.fails = True
            late.may_start.set()
            assert (await asked).body == str(new.number).encode()

    asyncio.run(asyncio.wait_for(replace(), 60))


def test_functions_that_hang_when_they_start_keep_no_other_one_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang() -> None:
        async with engine() as (made, fleet, schedule, _):
            fleet._turns = asyncio.Semaphore(1)
            functions = [Function(Deployment(name, source="x")) for name in ("hangs", "waits", "works")]
            for each in functions:
                schedule.deploy(each.deployment)
            hangs, waits, works = (asyncio.ensure_future(made.invoke(each, CALL)) for each in functions)
            first = await started(fleet, 0)
            monkeypatch.setattr(fleet_module, "TURN_SECONDS", 3600.0)
            second = await started(fleet, 1)
            second.may_start.set()
            assert (await waits).body == str(second.number).encode()
            third = await started(fleet, 2)
            third.may_start.set()
            assert (await works).body == str(third.number).encode()
            first.may_start.set()
            assert (await hangs).body == str(first.number).encode()
            assert fleet._turns._value == 1

    monkeypatch.setattr(fleet_module, "TURN_SECONDS", 0.0)
    asyncio.run(asyncio.wait_for(hang(), 60))


def test_gpus_that_are_named_late_are_the_policys_whoever_runs() -> None:
    """Under steady load, or with replicas that are always there, they never were."""

    async def name() -> None:
        schedule, memory = Schedule("lalb", 0), FakeMemory()
        fleet = FakeFleet(schedule)
        made = Engine(schedule, fleet, cast(Memory, memory), 10, ())
        function = Function(Deployment("f", source="x", most=2))
        schedule.deploy(function.deployment)
        runs = asyncio.ensure_future(made.invoke(function, CALL))
        first = await started(fleet, 0)
        first.may_answer.clear()
        first.may_start.set()
        await first.invoked.wait()
        others = [asyncio.ensure_future(made.invoke(function, CALL)) for _ in range(2)]
        second = await started(fleet, 1)  # and one waits
        made.take_gpus()
        made.pump()
        assert schedule.known
        second.may_start.set()
        while not all(one.done() for one in others):
            for replica in fleet.started[2:]:
                replica.may_start.set()
            await asyncio.sleep(0)
        first.may_answer.set()
        before = {str(replica.number).encode() for replica in (first, second)}
        assert (await runs).body in before
        assert before.isdisjoint({one.result().body for one in others})
        assert known(schedule) == fleet.places.keys()
        while first.alive or second.alive:
            await asyncio.sleep(0)
        await fleet.close()

    asyncio.run(asyncio.wait_for(name(), 60))
