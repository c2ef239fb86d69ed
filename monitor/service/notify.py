"""What systemd is told of a service: ready, alive, stopping. Does nothing where no systemd asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref

STOP_MARGIN = 15.0  # seconds beyond the grace of sessions, for API servers to end


class Notifier:
    """What systemd is told, after sd_notify(3). API servers do not inherit its variables."""

    def __init__(self) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._sender: socket.socket | None = None
        if address:  # made now: later there may be no descriptor, and systemd ends what it does not hear of
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            weakref.finalize(self, self._sender.close)
        microseconds = os.environ.pop("WATCHDOG_USEC", "")
        mine = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._interval = int(microseconds) / 2e6 if microseconds.isdecimal() and mine else 0.0

    def tell(self, *lines: str) -> None:
        """Send lines such as `READY=1`. A service manager that does not listen is no reason to end."""
        if self._sender:
            with contextlib.suppress(OSError):
                self._sender.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)

    def ready(self, status: str) -> None:
        """The service has started: who waits for it may go on. `status` is shown by systemctl."""
        self.tell("READY=1", f"STATUS={status}")

    def stopping(self, seconds: float) -> None:
        """The service ends within so many seconds: the unit's TimeoutStopSec need not know of it."""
        self.tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int((seconds + STOP_MARGIN) * 1e6)}")

    async def watch(self) -> None:
        """Feed the watchdog from the event loop, until cancelled: a loop that hangs starves it."""
        while self._interval and self._sender:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self._interval)
