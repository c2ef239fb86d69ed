"""Between a thread that moves a session and the main one: what it says, and how it is stopped."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time

from gpuferry.migration.errors import Cancelled
from gpuferry.specs._generated import migration_pb2, node_pb2

TELL_SECONDS = 0.2  # between reports of how far a phase is


class Progress:
    """Of one migration."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._messages: queue.SimpleQueue[node_pb2.FromServer] = queue.SimpleQueue()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._told = (migration_pb2.PHASE_UNSPECIFIED, 0.0)
        self.stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.cancelled = ""
        self._lock = threading.Lock()  # two threads stop it: the main one, and that of a session that ends
        self._closed = False

    def fileno(self) -> int:
        return self._bell

    def phase(self, phase: migration_pb2.Phase, done: int = 0, total: int = 0) -> None:
        """On the thread: goes on, unless it was stopped meanwhile."""
        if self.cancelled:
            raise Cancelled(self.cancelled)
        before, when = self._told
        now = time.monotonic()
        if phase != before or now >= when + TELL_SECONDS:
            self._told = (phase, now)
            moving = migration_pb2.Moving(
                session=self._session, phase=phase, bytes_done=done, bytes_total=total
            )
            self.say(node_pb2.FromServer(moving=moving))

    def say(self, message: node_pb2.FromServer) -> None:
        self._messages.put(message)
        os.eventfd_write(self._bell, 1)

    def cancel(self, reason: str) -> None:
        """The first reason counts."""
        with self._lock:
            if not self.cancelled and not self._closed:
                self.cancelled = reason
                os.eventfd_write(self.stop, 1)

    def messages(self) -> list[node_pb2.FromServer]:
        """What was said since this was last asked."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._messages.get_nowait())
        return found

    def close(self) -> None:
        with self._lock:
            self._closed = True
            os.close(self._bell)
            os.close(self.stop)
