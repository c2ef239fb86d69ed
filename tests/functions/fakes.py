"""The engine over a fleet whose replicas are fakes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from gpuferry.monitor.functions.deployment import Deployment
from gpuferry.monitor.functions.engine import Engine
from gpuferry.monitor.functions.fleet import Fleet, Function
from gpuferry.monitor.functions.invocation import Answer, Call, NotBegun
from gpuferry.monitor.functions.job import Job, Observer
from gpuferry.monitor.functions.memory import Gpus, Memory, Where
from gpuferry.monitor.functions.process import Process
from gpuferry.monitor.functions.replica import Begins, Replica, StartFailed
from gpuferry.monitor.functions.schedule import Schedule

CALL = Call("POST", "", "", (), b"")


class FakeProcess:
    """Ends when it is told to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.status, self.weighed, self.members = "it runs", 0, 0

    def kill(self) -> None:
        self.gone.set()

    async def stop(self, _: float) -> None:
        self.gone.set()


class FakeReplica(Replica):
    """Is ready once `may_start` is set, unless it fails then, and answers with its number, or in parts."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment, lambda *_: None)
        self.starting, self.may_start = asyncio.Event(), asyncio.Event()
        self.invoked, self.may_answer, self.begins = asyncio.Event(), asyncio.Event(), True
        self.may_answer.set()
        self.fails = self.streams = False

    async def _begin(self, environment: Mapping[str, str]) -> None:
        self.process = cast(Process, FakeProcess())
        self.starting.set()
        await self.may_start.wait()
        if self.fails:
            raise StartFailed("its file is gone")

    async def invoke(self, number: int, call: Call, begins: Begins) -> Answer | None:
        self.invoked.set()
        await self.may_answer.wait()
        if not self.begins:
            raise NotBegun
        if self.streams:
            await begins(Answer(200, (), b"")).put(b"part")
            return None
        return Answer(200, (), str(self.number).encode())

    def cancel(self, number: int) -> None:
        self.begins = False
        self.may_answer.set()


class FakeMemory:
    """A GPU server with two GPUs."""

    def __init__(self) -> None:
        self.gpus = Gpus({0: 1 << 30, 1: 1 << 30}, True)
        self.moves: list[int] = []
        self.tells = True

    def where(self, _: Replica) -> Where | None:
        return None

    def when_back(self, _: Replica, __: int, call: Callable[[], None]) -> None:
        call()

    def bring(self, _: Replica) -> None:
        pass

    def move(self, _: Replica, gpu: int) -> None:
        self.moves.append(gpu)

    send = bring


class FakeFleet(Fleet):
    """Of fake replicas, in the order in which they were started."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(lambda *_: {}, lambda: schedule.gpus, lambda _: Path())
        self.started: list[FakeReplica] = []

    def _replica(self, function: Function, deployment: Deployment) -> Replica:
        self.started.append(FakeReplica(deployment))
        return self.started[-1]


class SlowStore:
    """Takes its time over each deployment, until `may_keep` is set."""

    def __init__(self) -> None:
        self.asked, self.may_keep = asyncio.Event(), asyncio.Event()
        self.has: Deployment | None = None

    async def deployments(self) -> dict[str, Deployment]:
        return {}

    async def deployed(self, name: str) -> Deployment | None:
        return self.has

    async def keep(self, deployment: Deployment) -> None:
        self.asked.set()
        await self.may_keep.wait()

    async def forget(self, name: str) -> None:
        pass


class Results:
    """How invocations ended."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begun(self, job: Job) -> None:
        pass

    def ended(self, job: Job, result: str, seconds: float) -> None:
        self.seen.append(result)


@contextlib.asynccontextmanager
async def engine(
    *observers: Observer, policy: str = "lalb", **options: str
) -> AsyncIterator[tuple[Engine, FakeFleet, Schedule, FakeMemory]]:
    schedule, memory = Schedule(policy, 0, options), FakeMemory()
    fleet = FakeFleet(schedule)
    made = Engine(schedule, fleet, cast(Memory, memory), 10, observers)
    made.take_gpus()
    yield made, fleet, schedule, memory
    await made.drained()
    await fleet.close()


async def started(fleet: FakeFleet, number: int) -> FakeReplica:
    """The replica with this number, once it is starting."""
    while len(fleet.started) <= number:
        await asyncio.sleep(0)
    await fleet.started[number].starting.wait()
    return fleet.started[number]


def known(schedule: Schedule) -> set[Any]:
    """The places that the policy knows."""
    return {replica.id for flow in schedule._policy.flows() for replica in flow.replicas}
