"""Figures of functions, by a clock of the test's own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpuferry.monitor.functions import metrics as module
from gpuferry.monitor.functions.deployment import Deployment
from gpuferry.monitor.functions.fleet import Function
from gpuferry.monitor.functions.job import Job
from gpuferry.monitor.functions.memory import Where
from gpuferry.monitor.functions.metrics import NEWS_SECONDS, Metrics

from .fakes import CALL

PROGRAM, OTHER = b"p" * 32, b"o" * 32


class Clock:
    """Stands until the test moves it."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def job(function: Function, program: bytes) -> Job:
    place = cast(Any, SimpleNamespace(unit=SimpleNamespace(replica=SimpleNamespace(program=program))))
    future = asyncio.get_running_loop().create_future()
    return Job(1, function, CALL, future, place=place)


def test_an_invocation_that_is_over_before_its_gpu_is_known_counts(clock: Clock) -> None:
    """Its session had just begun when it ended: the news came a millisecond later, and it was not counted."""

    async def main() -> None:
        made, function = Metrics(), Function(Deployment("f", source="x"))
        for program, seconds in ((PROGRAM, 0.25), (OTHER, 4.0), (PROGRAM, 0.5)):
            made.ended(job(function, program), "ok", seconds)
        made.placed(PROGRAM, Where(0, True, (2,)))
        assert made.spent["f"].gpu == 2 * 0.75  # on each of its two GPUs
        made.placed(PROGRAM, Where(0, True))
        assert made.spent["f"].gpu == 1.5
        text = made.expose().decode()
        assert 'gpuferry_function_gpu_seconds_total{function="f",gpu="2"} 0.75' in text

    asyncio.run(main())


def test_what_ended_long_before_the_first_memory_does_not_count(clock: Clock) -> None:
    async def main() -> None:
        made, function = Metrics(), Function(Deployment("f", source="x"))
        made.ended(job(function, PROGRAM), "ok", 4.0)
        clock.now += NEWS_SECONDS + 0.5
        made.ended(job(function, PROGRAM), "ok", 0.5)
        made.placed(PROGRAM, Where(0, True))
        assert made.spent["f"].gpu == 0.5
        made.ended(job(function, PROGRAM), "ok", 0.5)
        function.removed = True
        made.placed(PROGRAM, Where(0, True))
        assert made.spent["f"].gpu == 0.5

    asyncio.run(main())
