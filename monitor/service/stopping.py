"""The wish that a daemon ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from .waiting import within


def heed_signals(stop: Callable[[], object]) -> None:
    """Call this at each signal by which somebody wants the running loop's daemon to stop. Who has started it
    with nohup does not mean the end of a terminal.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)


class Stopping:
    """Asked once, the daemon ends gracefully; asked twice, now."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.asked_twice = asyncio.Event()

    def ask(self) -> None:
        """Ask the daemon to stop; a second time: now."""
        (self.asked_twice if self.asked.is_set() else self.asked).set()

    async def pause(self, seconds: float) -> bool:
        """Sleep so many seconds. Returns False if the daemon was asked to stop meanwhile."""
        with contextlib.suppress(asyncio.TimeoutError):
            await within(seconds, self.asked.wait())
        return not self.asked.is_set()
