"""Calls of operators that break off."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from types import SimpleNamespace
from typing import Any

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
