"""The largest shares of a GPU, as the status has them, and when the arbiter is asked for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gpuferry.monitor.arbiter.gpu import Use
from gpuferry.monitor.arbiter.office import GpuTurns
from gpuferry.monitor.policy.sharing import Sharing
from gpuferry.monitor.views.status import FEW, StatusReporter
from gpuferry.monitor.views.turns import SHARES, turns_of_device


def test_the_largest_shares_are_told() -> None:
    sessions = {
        number: Use(key=number, used=100 * number, total=0, turns=1, holds=False, waits=0, overrun=False)
        for number in range(10)
    }
    gpu = GpuTurns(span=10_000, handed=9, overruns=0, waited=0, own=0, sessions=sessions)
    office: Any = SimpleNamespace(sharing=Sharing(), gpus={0: gpu}, pid=1)
    told = turns_of_device(office, 0).shares
    assert [(one.session, one.share) for one in told] == [
        (number, number / 100) for number in range(9, 9 - SHARES, -1)
    ]


def test_the_arbiter_is_asked_only_where_few_sessions_take_turns() -> None:
    asked = []

    async def report() -> None:
        asked.append(1)

    reporter = object.__new__(StatusReporter)
    reporter._office = SimpleNamespace(report=report)  # type: ignore[assignment]
    for sessions in (FEW, FEW + 1):
        reporter._broker = SimpleNamespace(sessions=range(sessions))  # type: ignore[assignment]
        asyncio.run(reporter.ask_arbiter())
    assert len(asked) == 1
