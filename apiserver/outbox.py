"""Messages that another thread has for the monitor, which the main thread sends."""

from __future__ import annotations

import contextlib
import os
import queue

from gpuferry.specs._generated import node_pb2


class Outbox:
    """A queue with a descriptor, so that the main thread's poll notices what a thread has put into it."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[node_pb2.FromServer] = queue.SimpleQueue()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """A descriptor that is readable when there are messages."""
        return self._bell

    def put(self, message: node_pb2.FromServer) -> None:
        """Add a message for the monitor. For any thread."""
        self._messages.put(message)
        os.eventfd_write(self._bell, 1)

    def take(self) -> list[node_pb2.FromServer]:
        """The messages that were put since this was last asked, in their order."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._messages.get_nowait())
        return found

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._bell)
