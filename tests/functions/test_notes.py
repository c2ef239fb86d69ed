"""What the GPU server hears of invocations, and when: without a function server, and without a GPU server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import grpc
import pytest
from gpuferry.guest import endpoint
from gpuferry.monitor.door.handshake import program_digest
from gpuferry.monitor.functions import gpu_server as tried
from gpuferry.monitor.functions.deployment import Deployment
from gpuferry.monitor.functions.engine import Engine
from gpuferry.monitor.functions.fleet import Fleet, Function, Place, Unit
from gpuferry.monitor.functions.gpu_server import GpuServer, Way
from gpuferry.monitor.functions.invocation import Answer, Call
from gpuferry.monitor.functions.job import Job
from gpuferry.monitor.functions.notes import Note, Notes
from gpuferry.monitor.functions.replica import Replica
from gpuferry.monitor.functions.schedule import Schedule
from gpuferry.monitor.policy.holdings import EVERYTHING, Share
from gpuferry.monitor.policy.invocations import Limit
from gpuferry.monitor.residency.invocations import Where as Told
from gpuferry.monitor.residency.steward import Steward
from gpuferry.monitor.views import control
from gpuferry.monitor.views.invocations import Listening
from gpuferry.specs._generated import control_pb2, control_pb2_grpc

PROGRAM = bytes(range(32))
CALL = Call("POST", "", "", (), b"")


class FakeReplica:
    """A replica whose invocations are answered once `may` is set."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.alive, self.retiring, self.program = True, False, PROGRAM
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def invoke(self, *_: Any) -> Answer:
        self.begun.set()
        await self.may.wait()
        return Answer(200, (), b"done")


class FakeFleet:
    """A fleet of one fake replica, which has a place at once."""

    def __init__(self, function: Function) -> None:
        self.replica = FakeReplica(function.deployment)
        self.unit = Unit(function, cast(Replica, self.replica))
        self.places: dict[int, Place] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, *_: Any) -> None:
        pass

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.ensure_future(work))

    async def obtain(self, *_: Any) -> Place:
        self.places[1] = Place(1, self.unit, 0)
        return self.places[1]

    def usable(self, _: Place) -> bool:
        return True


@contextlib.asynccontextmanager
async def engine(gpu_server: GpuServer) -> AsyncIterator[tuple[Engine, Function, FakeReplica]]:
    schedule = Schedule("fcfs", 0)
    function = Function(Deployment("f", source="x"))
    schedule.deploy(function.deployment)
    fleet = FakeFleet(function)
    made = Engine(schedule, cast(Fleet, fleet), gpu_server, 10, [gpu_server])
    yield made, function, fleet.replica
    await made.drained()


class FakeMonitor(control_pb2_grpc.MonitorServicer):  # type: ignore[misc]
    """Hears notes, and hangs up when it is told to."""

    def __init__(self, token: str) -> None:
        """`token`: that it has published; empty: it is not there."""
        self.token = token
        self.heard: asyncio.Queue[tuple[int, int]] = asyncio.Queue()  # call and what
        self.hang_up = asyncio.Event()
        self._calls = 0

    async def Invocations(self, notes: Any, context: Any) -> AsyncIterator[control_pb2.InvocationReply]:
        self._calls += 1
        if dict(context.invocation_metadata())["authorization"] != f"Bearer {self.token}":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing token")
        hearing = asyncio.ensure_future(self._hear(self._calls, notes))
        yield control_pb2.InvocationReply(gpus=[control_pb2.InvocationGpu(ordinal=0, memory=1)])
        await self.hang_up.wait()
        self.hang_up.clear()
        hearing.cancel()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "it restarts")

    async def _hear(self, call: int, notes: Any) -> None:
        async for note in notes:
            assert note.program == PROGRAM
            await self.heard.put((call, note.what))


@contextlib.asynccontextmanager
async def heard_by(
    monkeypatch: pytest.MonkeyPatch, folder: Path, token: str = "token"
) -> AsyncIterator[tuple[FakeMonitor, GpuServer]]:
    monkeypatch.setattr(tried, "AGAIN_SECONDS", (0.01, 0.01))
    monitor, server = FakeMonitor(token), grpc.aio.server()
    control_pb2_grpc.add_MonitorServicer_to_server(monitor, server)
    address = f"unix:{folder}/control"
    server.add_insecure_port(address)
    await server.start()
    gpu_server = GpuServer(lambda: Way(address, monitor.token, None, True) if monitor.token else None)
    telling = asyncio.ensure_future(gpu_server.run())
    try:
        await gpu_server.settled()
        yield monitor, gpu_server
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        await server.stop(None)


def test_who_runs_is_told_again_after_the_call_broke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def tell() -> list[tuple[int, int]]:
        async with (
            heard_by(monkeypatch, tmp_path) as (monitor, gpu_server),
            engine(gpu_server) as (made, function, replica),
        ):
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            seen = [await monitor.heard.get()]
            monitor.hang_up.set()
            seen.append(await monitor.heard.get())
            replica.may.set()
            await asked
            seen.append(await monitor.heard.get())
        return seen

    assert asyncio.run(tell()) == [(1, Note.BEGINS), (2, Note.BEGINS), (2, Note.ENDS)]


def test_one_that_ends_while_nobody_hears_is_not_told_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def tell() -> list[tuple[int, int]]:
        async with (
            heard_by(monkeypatch, tmp_path) as (monitor, gpu_server),
            engine(gpu_server) as (made, function, replica),
        ):
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            seen = [await monitor.heard.get()]
            gpu_server._silent()  # the call has broken, and the next is not made yet
            replica.may.set()
            await asked
            monitor.hang_up.set()
            replica.may.clear()
            while gpu_server._notes is None:
                await asyncio.sleep(0)
            again = asyncio.ensure_future(made.invoke(function, CALL))
            seen.append(await monitor.heard.get())
            replica.may.set()
            await again
        return seen

    assert asyncio.run(tell()) == [(1, Note.BEGINS), (2, Note.BEGINS)]


def test_a_monitor_that_begins_anew_is_heard_with_its_new_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And so is one that was not there when the function server began."""

    async def tell() -> list[tuple[int, int]]:
        async with (
            heard_by(monkeypatch, tmp_path, token="") as (monitor, gpu_server),
            engine(gpu_server) as (made, function, replica),
        ):
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            seen = []
            for monitor.token in ("its first", "its second"):
                seen.append(await monitor.heard.get())
                monitor.hang_up.set()
            replica.may.set()
            await asked
        return seen

    assert asyncio.run(tell()) == [(1, Note.BEGINS), (2, Note.BEGINS)]


def test_a_monitor_that_begins_anew_is_looked_for_every_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is heard the policy goes by what the one before had, and may refuse what would fit."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            raise asyncio.CancelledError

    monkeypatch.setattr(tried, "asyncio", SimpleNamespace(sleep=sleep, Event=asyncio.Event))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(tried.GpuServer(lambda: None).run())
    assert max(pauses) == 2


def test_a_monitor_that_ends_while_it_is_looked_up_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its address was there, and is not when it is read: the function server ended of that."""

    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(endpoint, "_is_mine", lambda _: True)
    config: Any = SimpleNamespace(driver="guest", monitor=None, control=None)
    assert tried.way_of(config) is None


def test_gpus_that_a_monitor_does_not_know_yet_are_not_lost(tmp_path: Path) -> None:
    """One that begins anew knows them one after the other, and its sessions have never left them."""

    async def tell() -> list[control_pb2.InvocationReply]:
        steward = Steward(1.0, 0, 0, tmp_path, expected=2)
        listening = Listening(steward, None, lambda *_: None)
        replies = listening.replies()
        steward.grantable(1, 64)
        first = await anext(replies)
        steward.device_lost(0, "it does not start")
        second = await anext(replies)
        listening.close()
        return [first, second]

    gpu_server, seen = GpuServer(lambda: None), []
    before = [control_pb2.InvocationGpu(ordinal=gpu, memory=32) for gpu in (0, 1)]
    for reply in (control_pb2.InvocationReply(gpus=before), *asyncio.run(tell())):
        gpu_server._hear(reply)
        assert gpu_server.gpus
        seen.append(gpu_server.gpus.memory)
    assert seen == [{0: 32, 1: 32}, {0: 32, 1: 64}, {1: 64}]


def test_what_may_be_granted_and_where_all_of_a_program_is_are_told(tmp_path: Path) -> None:
    word = bytes(32)
    rooms = [SimpleNamespace(ordinal=1, grantable=192, default_quota=48)]

    async def tell() -> list[control_pb2.InvocationReply]:
        steward = Steward(3.0, 0, 0, tmp_path)
        listening = Listening(
            steward,
            None,
            lambda *_: None,
            rooms=lambda: cast(Any, rooms),
            share=lambda: Share(memory=96.0, sessions=3, gpus=0),
        )
        replies = listening.replies()
        steward.grantable(1, 64)
        gpus = await anext(replies)
        listening._hear(control_pb2.InvocationNote(program=word, what=Note.BEGINS))
        steward.invocations.is_at(program_digest(word, "", False), Told(1, True, (0,)))
        where = await anext(replies)
        listening.close()
        return [gpus, where]

    gpu_server, seen = GpuServer(lambda: None), []
    gpu_server.on_moved = lambda program, where: seen.append((program, where))
    for reply in asyncio.run(tell()):
        gpu_server._hear(reply)
    assert gpu_server.gpus == ({1: 64}, True, False, {1: 192}, 48, Limit(96, 3, 0))
    assert seen == [(word, (1, True, (0,)))]


def test_the_end_is_told_before_the_answer_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """So who asks next finds the GPU server informed as soon as the note can be there."""

    async def told() -> list[str]:
        gpu_server, seen = GpuServer(lambda: None), []
        ended = gpu_server.ended

        def hear(job: Job, result: str, seconds: float) -> None:
            ended(job, result, seconds)
            seen.append(f"told {result}")

        monkeypatch.setattr(gpu_server, "ended", hear)
        async with engine(gpu_server) as (made, function, replica):
            asked = asyncio.ensure_future(made.invoke(function, CALL))
            asked.add_done_callback(lambda _: seen.append("answered"))
            await replica.begun.wait()
            replica.may.set()
            await asked
        return seen

    assert asyncio.run(told()) == ["told ok", "answered"]


def test_who_hears_slowly_hears_what_is_left_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tenant's notes are heard at a bounded rate: what waits here must not be without a bound."""

    async def tell() -> tuple[int, list[int]]:
        gpu_server, told = GpuServer(lambda: None), []
        gpu_server._notes = Notes()
        written, go = asyncio.Event(), asyncio.Event()

        async def write(note: Any) -> None:
            told.append(note.what)
            written.set()
            await go.wait()

        speaking = asyncio.ensure_future(tried._speak(SimpleNamespace(write=write), gpu_server._notes))
        gpu_server._tell(Note.BEGINS, PROGRAM)
        await written.wait()
        for _ in range(1000):
            gpu_server._tell(Note.ENDS, PROGRAM)
            gpu_server._tell(Note.SEND, PROGRAM)
            gpu_server._tell(Note.BRING, PROGRAM)
            gpu_server._tell(Note.BEGINS, PROGRAM)
        waiting = len(gpu_server._notes)
        gpu_server._tell(Note.ENDS, PROGRAM)
        gpu_server._tell(Note.SEND, PROGRAM)
        gpu_server._tell(Note.BEGINS, PROGRAM[::-1])
        go.set()
        while len(told) < 4:
            await asyncio.sleep(0)
        speaking.cancel()
        return waiting, told

    assert asyncio.run(tell()) == (1, [Note.BEGINS, Note.ENDS, Note.SEND, Note.BEGINS])


def test_of_a_program_that_is_over_nothing_else_is_told() -> None:
    async def tell() -> list[int]:
        notes = Notes()
        for what in (Note.BEGINS, Note.BRING, Note.OVER):
            notes.put(what, PROGRAM)
        return [note.what for note in await notes.next()]

    assert asyncio.run(tell()) == [Note.OVER]


def test_what_is_said_later_takes_nothing_back() -> None:
    """A move was forgotten for what brings a program's memory, and so it came back to where it was; and that
    a program stands, so nobody heard what had become of it.
    """

    async def tell() -> list[tuple[int, int]]:
        notes = Notes()
        notes.put(Note.STANDS, PROGRAM)
        notes.put(Note.SEND, PROGRAM)
        for gpu in (1, 2):
            notes.put(Note.MOVE, PROGRAM, gpu)
        notes.put(Note.BRING, PROGRAM)
        return [(note.what, note.gpu) for note in await notes.next()]

    assert asyncio.run(tell()) == [(Note.STANDS, 0), (Note.MOVE, 2), (Note.BRING, 0)]


def test_each_time_that_nobody_hears_the_log_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After the second time of one kind its last word was that the GPU server hears."""
    log = MagicMock()
    monkeypatch.setattr(tried, "log", log)

    async def tell() -> None:
        async with heard_by(monkeypatch, tmp_path) as (monitor, _):
            for calls in (1, 2, 3):
                while log.info.call_count < calls:
                    await asyncio.sleep(0)
                assert log.warning.call_count == calls - 1
                monitor.hang_up.set()

    asyncio.run(tell())


class Refusing(Exception):
    """The call was ended, with a code and a text."""


@pytest.mark.parametrize("judged", ["revoked", "unknown"])
def test_a_call_ends_when_its_token_is_revoked(
    judged: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A store that does not answer revokes nothing."""
    monkeypatch.setattr(control, "JUDGED_SECONDS", 0.0)
    caller = SimpleNamespace(tenant="a")
    gone = control.Refused(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
    unknown = control.Refused(grpc.StatusCode.UNAVAILABLE, "tokens cannot be checked now")
    answers = [caller, gone] if judged == "revoked" else [unknown, caller, unknown, caller, gone]
    asked = []

    async def judge() -> Any:
        asked.append(answers.pop(0))
        return asked[-1]

    async def nothing() -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    async def abort(*refusal: Any) -> None:
        raise Refusing(*refusal)

    async def call() -> None:
        control._caller.set(cast(Any, caller))
        control._still.set(judge)
        steward = Steward(1.0, 0, 0, tmp_path)
        nobody = cast(Any, None)
        broker = cast(Any, SimpleNamespace(all_back=lambda: True, rooms=tuple, share=lambda _: EVERYTHING))
        service = control.MonitorService(nobody, nobody, broker, steward, nobody)
        async for _ in service.Invocations(nothing(), SimpleNamespace(abort=abort)):
            pass

    with pytest.raises(Refusing) as refused:
        asyncio.run(call())
    assert refused.value.args == gone
    assert answers == []
