"""A control port on TCP: crowds there keep neither each other nor the operator out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
import uvloop
from gpuferry.monitor.door.tokens import proof
from gpuferry.monitor.service import front, places
from gpuferry.monitor.service.dial import dial_async, why_unreachable
from gpuferry.monitor.service.tls import Identity
from gpuferry.monitor.store.interface import StoreError
from gpuferry.monitor.tenants.tenancy import Tenancy
from gpuferry.monitor.views.callers import Callers
from gpuferry.monitor.views.control import ControlServer, MonitorService, Refused, RequireToken
from gpuferry.specs._generated import control_pb2, control_pb2_grpc, tenants_pb2

from tests.helpers.certificates import Certificates
from tests.monitor.harness import DEADLINE

OPERATOR = "the operator's own"
REQUEST = control_pb2.StatusRequest()
PLACES = 32  # 8 for tenants, 4 for one
APART = (("grpc.use_local_subchannel_pool", 1),)  # a connection of its own
LARGE = "x" * (1 << 20)


def as_caller(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def status(_: str | None) -> control_pb2.StatusReply:
    return control_pb2.StatusReply(monitor=control_pb2.MonitorInfo(version=LARGE))


def reports(_: str) -> list[tenants_pb2.Report]:
    return []


async def for_ever(_: float) -> bool:
    await asyncio.Event().wait()
    return True


async def anybody(_: str, __: proof.Verifier) -> bool:
    return True


@contextlib.asynccontextmanager
async def running(folder: Path, identity: Identity | None = None) -> AsyncIterator[tuple[ControlServer, str]]:
    nothing: Any = None
    service = MonitorService(status, for_ever, nothing, nothing, reports)
    callers = Callers(OPERATOR.encode(), anybody, Tenancy({}))
    server = ControlServer(service, callers, PLACES, identity)
    name = await server.start("127.0.0.1:0", folder)
    try:
        yield server, name
    finally:
        await server.stop()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(), DEADLINE)

    uvloop.run(main())


async def ask(address: str, token: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        reply = await control_pb2_grpc.MonitorStub(channel).Status(REQUEST, metadata=as_caller(token))
        return len(reply.monitor.version)


async def silent(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def test_strangers_and_tenants_keep_nobody_out(tmp_path: Path) -> None:
    """40 that say nothing, and a tenant with as many connections as it gets, each with a call that lasts."""

    async def test() -> None:
        async with running(tmp_path) as (server, name), contextlib.AsyncExitStack() as stack:
            strangers = [await silent(name) for _ in range(40)]
            told: list[grpc.StatusCode | None] = []
            for _ in range(6):
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(name, APART))
                watching = control_pb2_grpc.MonitorStub(channel).WatchStatus(
                    control_pb2.WatchStatusRequest(), metadata=as_caller(proof.make("crowd"))
                )
                try:
                    await watching.read()
                    told.append(None)
                except grpc.aio.AioRpcError as error:
                    told.append(error.code())
            assert told == [None] * 4 + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
            assert await ask(name, proof.make("bystander")) == len(LARGE)
            assert await ask(name, OPERATOR) == len(LARGE)
            assert await ask(server.here, OPERATOR) == len(LARGE)
            await strangers[0][0].read()  # to its end: the oldest made room
            for _, writer in strangers:
                writer.close()

    run(test)


def test_who_says_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "UNPROVEN_SECONDS", 0.05)
    monkeypatch.setattr(front, "SWEEP_SECONDS", 0.01)

    async def test() -> None:
        async with running(tmp_path) as (server, name):
            reader, writer = await silent(name)
            await reader.read()  # what the server says to everybody, and then nothing
            writer.close()
            assert server._front
            while server._front._visitors or len(server._front._places):
                await asyncio.sleep(0)

    run(test)


@pytest.mark.parametrize("secure", [False, True])
def test_who_has_proven_itself_stays(certificates: Certificates, tmp_path: Path, secure: bool) -> None:
    """The server knows by the name of its way inside which connection a call came by, with TLS too."""

    async def test() -> None:
        identity = certificates.identity() if secure else None
        async with (
            running(tmp_path, identity) as (server, name),
            dial_async(name, certificates.identity("client") if secure else None) as channel,
        ):
            stub = control_pb2_grpc.MonitorStub(channel)
            assert await stub.Status(REQUEST, metadata=as_caller(OPERATOR))
            assert server._front
            assert [visitor.proven for visitor in server._front._visitors.values()] == [True]
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Status(REQUEST, metadata=as_caller("nobody's"))

    run(test)


def test_the_way_inside_is_nobody_elses(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (server, _):
            assert (tmp_path / "control.sock").stat().st_mode & 0o777 == 0o600
            assert server.here == f"unix:{tmp_path}/control.sock"

    run(test)


def test_without_descriptors_a_caller_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept its place, and the log had a traceback."""

    async def test() -> None:
        async with running(tmp_path) as (server, name):
            reader, writer = await silent(name)  # whose socket is there by now
            complaints: list[str] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, said: complaints.append(said["message"]))
            none = Mock(side_effect=OSError(errno.EMFILE, "none left"))
            monkeypatch.setattr("gpuferry.monitor.service.front.socket.socket", none)
            theirs = Mock()
            assert server._front
            before = len(server._front._places)
            server._front._admit(theirs, "10.0.0.1")
            theirs.close.assert_called_once_with()
            assert (len(server._front._places), complaints) == (before, [])
            monkeypatch.undo()
            writer.close()
            await reader.read()

    run(test)


def test_a_caller_that_hangs_up_leaves_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as (server, name):
            with socket.socket() as gone:
                host, _, port = name.rpartition(":")
                gone.connect((host, int(port)))
            assert await ask(name, OPERATOR)
            assert server._front
            while server._front._visitors:
                await asyncio.sleep(0)

    run(test)


def test_a_monitor_that_cannot_look_tokens_up_is_not_said_to_be_away() -> None:
    """Commands said that nothing listens there."""

    async def fails(*_: object) -> bool:
        raise StoreError("disk I/O error")

    guard = RequireToken(Callers(OPERATOR.encode(), fails, Tenancy({})), Mock())
    refused = asyncio.run(guard._judge(proof.make("acme")))
    assert isinstance(refused, Refused)
    assert why_unreachable(refused.code, refused.text).startswith("it cannot look tokens up now")
