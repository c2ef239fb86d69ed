"""Sessions that are disturbed all the time: their memory leaves and returns, or they move to another server.

Two GPU servers share one GPU, as they would after a new one was started beside the old one.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import grpc
from gpuferry.specs._generated import control_pb2

from tests.helpers.monitor import Monitor, monitor
from tests.helpers.tokens import token_of
from tests.residency.lodgers import Operator

TOKEN = {"GPUFERRY_TOKEN": token_of("both monitors")}
OPTIONS = ("--log-level", "warning", "--oversubscribe", "1", "--away-memory", "24GiB")


class Way(Enum):
    """How a session is disturbed."""

    EVICT = "evict"  # it returns by itself with its next work, or is recalled, in turns
    MOVE = "move"  # to the other server, and back the next time


@dataclass
class Told:
    """What came of the disturbances."""

    done: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        return {"done": self.done, "refused": dict(self.refused.most_common(5))}


class Servers:
    """Two monitors that know the same token; a program begins with the first one."""

    def __init__(self, *both: Monitor) -> None:
        self.both = both
        self._operators = [Operator(server) for server in both]

    @property
    def first(self) -> Monitor:
        return self.both[0]

    def disturb(self, way: Way, told: Told, turn: int, pid: int | None = None) -> None:
        """Every session there is, or those of one program, once."""
        found = [
            (at, session.id)
            for at, operator in enumerate(self._operators)
            for session in operator.status().sessions
            if session.state == control_pb2.SESSION_STATE_RUNNING and pid in (None, session.guest_pid)
        ]
        for at, session in found:
            self._disturb(way, told, turn, at, session)

    def _disturb(self, way: Way, told: Told, turn: int, at: int, session: int) -> None:
        operator, other = self._operators[at], self.both[1 - at]
        try:
            if way is Way.EVICT:
                operator.evict(session)
                if turn % 2:
                    operator.recall(session)
            else:
                moved = operator.migrate(session, server=other.tcp)
                if moved.state != control_pb2.MIGRATION_STATE_DONE:
                    told.refused[moved.reason] += 1
                    return
            told.done += 1
        except grpc.RpcError as error:
            told.refused[str(error.details())] += 1

    def close(self) -> None:
        for operator in self._operators:
            operator.close()


@contextlib.contextmanager
def servers(pool: int = 2) -> Iterator[Servers]:
    options = ("--pool", str(pool), *OPTIONS)
    with monitor(*options, environment=TOKEN) as one, monitor(*options, environment=TOKEN) as other:
        found = Servers(one, other)
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def unrest(running: Servers, way: Way, pause: float) -> Iterator[Told]:
    """While a program runs. `pause` is in seconds, between one disturbance and the next."""
    told, over = Told(), threading.Event()

    def go() -> None:
        turn = 0
        while not over.wait(pause):
            running.disturb(way, told, turn)
            turn += 1

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()
