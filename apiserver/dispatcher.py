"""The thread on which sessions are served."""

from __future__ import annotations

import queue
import socket
import threading

from .session import Session


class Dispatcher:
    """The thread that serves sessions, one after the other. It is started ahead, so that no guest waits
    for it.
    """

    def __init__(self) -> None:
        self._over, self._tell = socket.socketpair()
        self._sessions: queue.SimpleQueue[Session] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="dispatcher", daemon=True).start()

    def fileno(self) -> int:
        """A descriptor that is readable when a session is over and scrubbed."""
        return self._over.fileno()

    def serve(self, session: Session) -> None:
        """Queue a session; it begins when the one before is over and scrubbed."""
        self._sessions.put(session)

    def over(self) -> None:
        """Take note that a session is over."""
        self._over.recv(1)

    def _run(self) -> None:
        while True:
            self._sessions.get().serve()
            self._tell.send(b"\0")
