"""Carries programs through API servers without a monitor, and sends their memory away at chosen calls."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from gpuferry.monitor.residency.files import in_memory
from gpuferry.specs._generated import node_pb2

from tests.apiserver.server import Server
from tests.migration.carriage import Carriage, Over
from tests.migration.gate import Journey, Stop, attempts
from tests.migration.moving import next_message, order

ALLOWANCE = 8 << 30  # bytes
ROOM = 256 << 20  # for copies; registered with the driver, so all of it is taken
BUSY = "it works"
BUSY_SECONDS = 60.0  # a slow machine may need some until a session is idle
WAITING_SECONDS = 3.0  # then a program that waits for what the gate holds back is not going to be
SHARES = "it shares memory with other processes"


@dataclass
class Orders:
    """What a server said since it was last asked."""

    server: Server
    over: Over | None = None

    def give(self, number: int, files: list[object], **message: object) -> node_pb2.Resides | None:
        """An order, and what comes of it; None: the session ended meanwhile."""
        try:
            order(self.server, files, **message)  # type: ignore[arg-type]
            return self._answer(number)
        except (BrokenPipeError, ConnectionResetError, AssertionError):
            self.server.wait_for_exit()  # it was not clean when it ended
            self.over = Over(clean=False)
            return None

    def _answer(self, number: int) -> node_pb2.Resides:
        while True:
            said = next_message(self.server)
            if said.HasField("resides") and said.resides.number == number:
                return said.resides
            if said.HasField("ended"):
                self.over = Over(said.ended.clean)
            elif said.HasField("ready") and self.over:
                self.over = Over(self.over.clean, ready=True)


class Lodging(Carriage):
    """At each stop the session's memory leaves and comes back, whatever the program does meanwhile."""

    def __init__(self, folder: object, servers: int = 1) -> None:
        super().__init__(folder, servers)  # type: ignore[arg-type]
        self._given: set[int] = set()  # sessions whose copies have files
        self.busy_seconds = BUSY_SECONDS

    def _move(self, server: Server, session: int, stop: Stop, journey: Journey) -> tuple[Server, Over | None]:
        orders = Orders(server)
        told = None
        until = time.monotonic() + self.busy_seconds
        missing = 0 if session in self._given else ROOM  # bytes for copies
        self._given.add(session)
        for _ in attempts():
            files = [in_memory(missing)] if missing else []
            leave = node_pb2.Leave(
                session=session,
                number=1,
                insist=random.Random(stop.call).random() < 0.8,
                bytes=[file.size for file in files],
                on_disk=[False for _ in files],
            )
            told = orders.give(1, list(files), leave=leave)
            missing = told.missing if told else 0
            again = missing or (told and told.reason == BUSY)
            if not again or orders.over or time.monotonic() > until:
                break
        if told is None or orders.over or told.reason:
            journey.refused.append(told.reason if told and not orders.over else "the session is over")
            return server, orders.over
        back = orders.give(2, [], come_back=node_pb2.ComeBack(session=session, number=2, allowance=ALLOWANCE))
        if back is None or orders.over:
            return server, orders.over
        assert not back.reason, back
        journey.moved += 1
        return server, None
