"""Moves sessions from device to device, into files and out of them, and sends their memory away; whatever
else goes on.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from gpuferry.specs._generated import control_pb2

from tests.chaos.judge import Wrong
from tests.chaos.server import GpuServer
from tests.monitor import harness

RUNNING = control_pb2.SESSION_STATE_RUNNING
SUSPENDED = control_pb2.SESSION_STATE_SUSPENDED
DONE, FAILED = control_pb2.MIGRATION_STATE_DONE, control_pb2.MIGRATION_STATE_FAILED
SUSPENDS, EVICTS = 0.3, 0.3  # of all that it does
RECALLS = 0.5  # of those whose memory it sent away; others' calls bring it back
AWAY_SECONDS = 2.0  # in a file, or in host memory, at most
SETTLED_SECONDS = 80.0  # by then a session that was to be suspended runs, or is over
GONE_SECONDS = 5.0  # not known to a monitor for so long: it is over
LOOK_SECONDS = 0.1


class Porter:
    """One of several; which session goes where is drawn from the seed."""

    def __init__(
        self, server: GpuServer, spared: set[int], number: int, seed: int, over: threading.Event
    ) -> None:
        self._server = server
        self._spared = spared  # guests that stay where they are
        self._number = number
        self._chance = random.Random(f"porter {number} of {seed}")
        self._over = over
        self.ends: Counter[tuple[str, str]] = Counter()

    def work(self) -> None:
        """Until it is over; nobody is left in a file."""
        try:
            while not self._over.wait(self._chance.uniform(0.05, 0.5)):
                session = self._some_session()
                if session is None:
                    continue
                drawn = self._chance.random()
                if drawn < SUSPENDS:
                    self._suspend(session)
                elif drawn < SUSPENDS + EVICTS:
                    self._send_away(session)
                else:
                    self._note("move", self._server.migrate(session.id, device=1 - session.device))
        finally:
            self._over.set()

    def carry_around(self, guest: int) -> None:
        """When nothing else goes on, what is moved arrives, and what is sent away returns."""
        status = harness.wait_until(self._server.status, "a monitor")
        (session,) = [one for one in status.sessions if one.guest_pid == guest]
        file, there = self._server.files / f"of {guest}", 1 - session.device
        assert self._server.recall(session.id)  # others may have needed the room
        assert self._server.evict(session.id)
        for last in (
            self._server.migrate(session.id, device=there),
            self._server.migrate(session.id, file=str(file)),
            self._server.resume(file, device=session.device),
        ):
            assert last
            assert last.state == DONE, last.reason
        file.unlink()
        assert self._server.evict(session.id)
        assert self._server.recall(session.id)

    def _some_session(self) -> Any:
        status = self._server.status()
        found = [s for s in status.sessions if s.state == RUNNING] if status else []
        found = [session for session in found if session.guest_pid not in self._spared]
        return self._chance.choice(found) if found else None

    def _send_away(self, session: Any) -> None:
        self._count("evict", self._server.evict(session.id))
        self._over.wait(self._chance.uniform(0.0, AWAY_SECONDS))
        if self._chance.random() < RECALLS:
            self._count("recall", self._server.recall(session.id))

    def _suspend(self, session: Any) -> None:
        file = self._server.files / f"{session.id} by {self._number}"
        self._note("suspend", self._server.migrate(session.id, file=str(file)))
        self._over.wait(self._chance.uniform(0.0, AWAY_SECONDS))
        left, gone = SETTLED_SECONDS, None
        while (state := self._state(session.id)) != RUNNING:
            looked = time.monotonic()
            if state == SUSPENDED:
                target = self._chance.choice([{}, {"device": 0}, {"device": 1}])
                self._note("resume", self._server.resume(file, **target))
            # Only what a monitor says counts: that there is none takes as long to find out.
            gone = (gone or time.monotonic()) if state == 0 else None
            if gone and time.monotonic() > gone + GONE_SECONDS:
                break
            if left < 0:
                raise Wrong(f"session {session.id} is still in state {state}: {self._server.status()}")
            time.sleep(LOOK_SECONDS)
            left -= (
                time.monotonic() - looked if state else 0.0
            )  # monitors that are killed again say nothing of it
        file.unlink(missing_ok=True)

    def _state(self, number: int) -> int | None:
        """0: it is not known. None: there is no monitor."""
        status = self._server.status()
        if not status:
            return None
        return next((int(session.state) for session in status.sessions if session.id == number), 0)

    def _count(self, what: str, answer: Any) -> None:
        self.ends[what, "done" if answer else "unknown"] += 1

    def _note(self, what: str, last: Any) -> None:
        states = {DONE: "done", FAILED: "failed"}
        self.ends[what, states.get(last.state, "unknown") if last else "unknown"] += 1
