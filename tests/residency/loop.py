"""An event loop whose clock goes on when nobody has anything to do."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gpuferry.monitor.residency.line import Line


class Quiet(Exception):
    """Nothing will ever happen again, and somebody waits; or so much happens that nothing comes of it."""


STEPS_MOST = 300_000  # of the loop


class _Selector:
    """Of a loop that waits for nothing: time goes on instead."""

    def __init__(self, loop: Loop, selector: Any) -> None:
        self._loop, self._selector, self._steps = loop, selector, 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self._steps += 1
        if timeout is None or self._steps > self._loop.steps_most:
            raise Quiet
        self._loop.now += max(timeout, 0.0)
        return cast(list[Any], self._selector.select(0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time goes by when nobody has anything to do."""

    def __init__(self, steps_most: int = STEPS_MOST) -> None:
        super().__init__()
        self.now = 1000.0
        self.steps_most = steps_most
        self.lines: list[Line] = []  # that stewards have
        self._selector: Any = _Selector(self, vars(self)["_selector"])

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        """What modules that decide have in place of time.monotonic."""
        return self.now

    def forsake(self) -> None:
        """Close it, with all that is under way."""
        while tasks := asyncio.all_tasks(self):
            for line in self.lines:
                line.clear()
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks))
        self.close()

    def run_in_executor(self, executor: Any, work: Any, *args: Any) -> Any:  # type: ignore[override]
        """Do the work on this thread, before this returns: the model has no others."""
        done = self.create_future()
        try:
            done.set_result(work(*args))
        except OSError as error:
            done.set_exception(error)
        return done
