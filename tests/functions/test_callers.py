"""The engine over a fleet of fakes: callers who wait, leave and are refused between two of its steps."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from gpuferry.monitor.functions.catalogue import Catalogue
from gpuferry.monitor.functions.deployment import Deployment
from gpuferry.monitor.functions.engine import Engine
from gpuferry.monitor.functions.fleet import Function
from gpuferry.monitor.functions.invocation import Code, Failed, Ran
from gpuferry.monitor.functions.replica import StartFailed
from gpuferry.monitor.functions.shelf import Shelf

from .fakes import (
    CALL,
    FakeReplica,
    Results,
    engine,
    started,
)


def test_who_has_gone_while_a_replica_started_is_cancelled_whoever_learns_of_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go() -> list[str]:
        results = Results()
        monkeypatch.setattr(Engine, "_abandon", lambda *_: None)  # its task has not run yet
        async with engine(results) as (made, fleet, schedule, _):
            function = Function(Deployment("f", source="x"))
            schedule.deploy(function.deployment)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            replica = await started(fleet, 0)
            asked.cancel()
            replica.may_start.set()
            with pytest.raises(asyncio.CancelledError):
                await asked
        return results.seen

    assert asyncio.run(asyncio.wait_for(go(), 60)) == ["cancelled"]


def test_who_has_gone_before_the_handler_began_is_cancelled_and_no_crash() -> None:
    """Its replica may have been killed for it."""

    async def go() -> list[str]:
        results = Results()
        async with engine(results) as (made, fleet, schedule, _):
            function = Function(Deployment("f", source="x"))
            schedule.deploy(function.deployment)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            replica = await started(fleet, 0)
            replica.may_answer.clear()
            replica.may_start.set()
            await replica.invoked.wait()
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        return results.seen

    assert asyncio.run(asyncio.wait_for(go(), 60)) == ["cancelled"]


def test_who_has_gone_is_forgotten_when_its_invocation_has_ended() -> None:
    """Its body was in memory, and counted by nobody, until the process would have been killed."""

    async def go() -> None:
        async with engine() as (made, fleet, schedule, _):
            function = Function(Deployment("f", source="x", cancel="kill", grace=3600.0))
            schedule.deploy(function.deployment)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            replica = await started(fleet, 0)
            replica.may_answer.clear()
            replica.may_start.set()
            await replica.invoked.wait()
            (job,) = made._jobs.values()
            asked.cancel()
            await made.drained()
            assert job.timer
            assert job.timer.cancelled()
            assert job.timer.when() > asyncio.get_running_loop().time() + 3000

    asyncio.run(asyncio.wait_for(go(), 60))


def test_who_is_refused_when_it_has_just_left_harms_nobody() -> None:
    """Whoever looked at the policy's decisions next had an internal error, or the server ended."""

    async def go() -> None:
        async with engine() as (made, fleet, schedule, _):
            function = Function(Deployment("f", source="x", most=1))
            schedule.deploy(function.deployment)
            asked = [asyncio.ensure_future(made.invoke(function, CALL)) for _ in range(2)]
            replica = await started(fleet, 0)
            replica.may_answer.clear()
            replica.may_start.set()
            await replica.invoked.wait()
            schedule.deploy(dataclasses.replace(function.deployment, gpu_memory=1 << 40))
            asked[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked[1]
            replica.may_answer.set()
            assert (await asked[0]).status == 200

    asyncio.run(asyncio.wait_for(go(), 60))


def test_who_is_to_run_again_has_one_timer() -> None:
    """The one that it had before would tell its caller that nothing was free, while it runs."""

    async def again() -> None:
        async with engine() as (made, fleet, schedule, _):
            function = Function(Deployment("f", source="x"))
            schedule.deploy(function.deployment)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            first = await started(fleet, 0)
            (job,) = made._jobs.values()
            timer = job.timer
            fleet.retire(function.units[0])  # as a roll-out does
            first.may_start.set()
            (await started(fleet, 1)).may_start.set()
            assert (await asked).status == 200
            assert timer
            assert timer.cancelled()

    asyncio.run(asyncio.wait_for(again(), 60))


@pytest.mark.parametrize("program", ["", "07" * 32])
def test_who_waits_for_a_gpu_in_vain_is_told_where_to_look(program: str) -> None:
    """Of an API server that it waits for nobody here knows: the monitor does."""

    async def start() -> None:
        replica = FakeReplica(Deployment("f", source="x", start=0.001))
        with pytest.raises(StartFailed) as failed:
            await replica.start({"GPUFERRY_PROGRAM": program})
        assert str(failed.value).startswith("it was not ready within 0.001 s")
        assert ("`gpuferry session list --waiting`" in str(failed.value)) is bool(program)

    asyncio.run(asyncio.wait_for(start(), 60))


def test_a_caller_who_does_not_read_a_stream_keeps_no_server_from_its_end() -> None:
    async def stop() -> None:
        async with engine() as (made, fleet, schedule, _):
            function = Function(Deployment("f", source="x"))
            schedule.deploy(function.deployment)
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            replica = await started(fleet, 0)
            replica.streams = True
            replica.may_start.set()
            stream = (await asked).stream
            assert stream
            made.close()
            made.abort()
            await fleet.close()
            with pytest.raises(Failed) as caught:
                await stream.whole(10)
            assert caught.value.code is Code.SHUTTING_DOWN

    asyncio.run(asyncio.wait_for(stop(), 60))


def test_who_comes_next_waits_for_the_one_who_has_waited(tmp_path: Path) -> None:
    """A tick between two who change a function made the third one change it beside the second."""

    async def wait() -> None:
        async with engine() as (made, fleet, schedule, _):
            catalogue = Catalogue(Shelf(tmp_path), schedule, fleet, made)
            lock = catalogue._lock("f")
            await lock.acquire()
            removing = asyncio.ensure_future(catalogue.remove("f"))
            await asyncio.sleep(0)
            ticking = asyncio.ensure_future(catalogue.tick())
            lock.release()
            await asyncio.sleep(0)
            assert catalogue._lock("f") is lock
            assert not await removing
            ticking.cancel()
            await asyncio.wait({ticking})
            del lock
            assert not len(catalogue._locks)

    asyncio.run(asyncio.wait_for(wait(), 60))


def test_who_is_refused_because_of_others_is_told_how_many_wait() -> None:
    async def crowd() -> None:
        async with engine() as (made, fleet, schedule, _):
            busy, idle = (Function(Deployment(name, source="x", most=1)) for name in ("busy", "idle"))
            for function in (busy, idle):
                schedule.deploy(function.deployment)
            asked = [asyncio.ensure_future(made.invoke(busy, CALL)) for _ in range(11)]
            first = await started(fleet, 0)
            with pytest.raises(Failed) as caught:
                await made.invoke(idle, CALL)
            assert (caught.value.code, caught.value.ran) == (Code.QUEUE_FULL, Ran.NO)
            assert caught.value.why == "10 invocations of all functions wait already"
            first.may_start.set()
            await asyncio.gather(*asked)

    asyncio.run(asyncio.wait_for(crowd(), 60))
