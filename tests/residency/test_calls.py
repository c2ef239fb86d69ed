"""Calls of operators that break off."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from gpuferry.monitor.residency.copies import NoRoom
from gpuferry.monitor.views.control import MonitorService
from gpuferry.specs._generated import control_pb2, node_pb2


def test_an_eviction_goes_on_when_its_caller_has_gone() -> None:
    """And if it is refused then, nobody is told of it as of a mistake of ours."""
    over: list[int] = []
    complaints: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        may_end = asyncio.Event()

        async def evict(session: int) -> node_pb2.Resides:
            await may_end.wait()
            over.append(session)
            raise NoRoom("it works")

        service: Any = SimpleNamespace(_steward=SimpleNamespace(evict=evict))
        request = control_pb2.EvictSessionRequest(session=7)
        call = asyncio.ensure_future(MonitorService.EvictSession(service, request, None))
        await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        may_end.set()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
        gc.collect()

    asyncio.run(main())
    assert (over, complaints) == ([7], [])


@pytest.mark.parametrize("call", ["Evict", "Recall"])
def test_who_is_somewhere_else_is_not_said_to_be_nowhere(call: str) -> None:
    said: list[tuple[grpc.StatusCode, str]] = []

    async def nowhere(session: int, patience: float = 0.0) -> None:
        raise KeyError(session)

    async def abort(code: grpc.StatusCode, text: str) -> None:
        said.append((code, text))
        raise grpc.RpcError

    sessions = {
        1: SimpleNamespace(file="/a", moved_to=""),
        2: SimpleNamespace(file="", moved_to="b:7700"),
        3: SimpleNamespace(file="", moved_to=""),
    }
    steward = SimpleNamespace(evict=nowhere, recall=nowhere)
    service: Any = MonitorService(None, None, SimpleNamespace(sessions=sessions), steward, list)  # type: ignore[arg-type]
    for session in range(1, 5):
        request = getattr(control_pb2, f"{call}SessionRequest")(session=session)
        with pytest.raises(grpc.RpcError):
            asyncio.run(getattr(service, f"{call}Session")(request, SimpleNamespace(abort=abort)))
    away = grpc.StatusCode.FAILED_PRECONDITION
    assert said == [
        (away, "session 1 is suspended, in /a: it has no memory here"),
        (away, "session 2 has moved to b:7700: it has no memory here"),
        (away, "session 3 waits for a GPU: it has no memory here"),
        (grpc.StatusCode.NOT_FOUND, "there is no session 4"),
    ]
