"""How a thread that moves a session tells the main thread how far it is, and how the main thread stops it."""

from __future__ import annotations

import os
import threading
import time

from gpuferry.migration.errors import Cancelled
from gpuferry.specs._generated import migration_pb2, node_pb2

from .outbox import Outbox

TELL_SECONDS = 0.2  # between reports of how far a phase is


class Progress:
    """How far one migration is. `stop` becomes readable when it shall stop, and `cancelled` says why."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._outbox = Outbox()
        self._told = (migration_pb2.PHASE_UNSPECIFIED, 0.0)
        self.stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.cancelled = ""
        self._lock = threading.Lock()  # two threads stop it: the main one, and that of a session that ends
        self._closed = False

    def fileno(self) -> int:
        """A descriptor that is readable when there are messages."""
        return self._outbox.fileno()

    def phase(self, phase: migration_pb2.Phase, done: int = 0, total: int = 0) -> None:
        """Note a phase and the bytes done of those in total; told to the monitor every 0.2 s. Raises
        Cancelled if the migration was stopped. For the moving thread.
        """
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
        """Put a message for the monitor into the queue. For the moving thread."""
        self._outbox.put(message)

    def cancel(self, reason: str) -> None:
        """Stop the migration. The first reason given counts."""
        with self._lock:
            if not self.cancelled and not self._closed:
                self.cancelled = reason
                os.eventfd_write(self.stop, 1)

    def messages(self) -> list[node_pb2.FromServer]:
        """The messages that were put into the queue since this was last asked."""
        return self._outbox.take()

    def close(self) -> None:
        """Close the descriptors; a later `cancel` does nothing."""
        with self._lock:
            self._closed = True
            self._outbox.close()
            os.close(self.stop)
