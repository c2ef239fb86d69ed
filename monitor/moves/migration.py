"""One session on its way: what is known of it, and for whom."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from gpuferry.migration.place import ExistingFile
from gpuferry.specs._generated import migration_pb2, node_pb2

from ..pool.api_server import ApiServer
from ..sessions.session import Session

Phase = migration_pb2.Phase
Strategy = migration_pb2.Strategy


class CannotMove(Exception):
    """Why a session stays where it is. `room`: because of memory, so that it may be able to later."""

    def __init__(self, reason: str, *, room: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.room = room  # there is no room: later there may be


class State(enum.Enum):
    """How far a migration has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class ToDevice:
    """A device of this GPU server; None: the one that the policy chooses."""

    device: int | None

    def __str__(self) -> str:
        return "any GPU" if self.device is None else f"gpu:{self.device}"


@dataclass(frozen=True)
class ToServer:
    """Another GPU server, by name or address."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ToFile:
    """A file on this machine: the session is suspended there."""

    path: str
    head: bytes = field(default=b"", repr=False)  # with which the file begins

    def __str__(self) -> str:
        return self.path


Target = ToDevice | ToServer | ToFile


class Migration:
    """What is known of one session's way, for those who arrange it and those who watch."""

    def __init__(
        self, number: int, session: Session, source: ApiServer | None, target: Target, came_from: str
    ) -> None:
        self.id = number
        self.session = session
        self.source = source  # none: it did not come back to this monitor yet
        self.destination: ApiServer | None = None  # an API server or a keeper
        self.target = target
        self.came_from = came_from
        self.remote: migration_pb2.RemoteTarget | None = None  # if it goes to another GPU server
        self.play: node_pb2.Play | None = None  # if it comes out of a file
        self.file: ExistingFile | None = None  # which is this one, until whoever plays has it
        self.strategy: migration_pb2.Strategy = Strategy.STRATEGY_AUTO
        self.began = time.monotonic()
        self.ended = 0.0
        self.state = State.RUNNING
        self.reason = ""
        self.phase: migration_pb2.Phase = Phase.PHASE_PREPARE
        self.bytes_done = self.bytes_total = 0
        self.report: migration_pb2.Report | None = None
        self.decision_pending = False  # the policy's next decision carries it out
        self.orders_given = False  # source and destination were told
        self.taken_over = False  # the destination has it
        self.source_let_go = False  # the source does not have it any more, and knows of nobody who has
        self.session_over = False  # the session is
        self.settled = False
        self.source_holds = self.destination_holds = False  # memory of a device, in the policy's books
        self.released: set[ApiServer] = set()  # what these held is free
        self.told_to_go: set[ApiServer] = set()
        self.wished_device: int | None = None  # where the pool starts an API server for it
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self._watchers: set[asyncio.Event] = set()

    @property
    def elapsed(self) -> float:
        """Seconds since the migration began; fixed once it ended."""
        return (self.ended or time.monotonic()) - self.began

    @property
    def copied_bytes(self) -> int:
        """Bytes of device memory copied so far, pre-copy rounds included."""
        return self.report.copied_bytes if self.report else self.bytes_done

    def release_file(self) -> None:
        """The file is somebody else's now, or not needed."""
        if self.file:
            self.file.close()
            self.file = None

    def changed(self) -> None:
        """Wake everybody who follows this migration."""
        for watcher in self._watchers:
            watcher.set()

    async def follow(self) -> AsyncIterator[None]:
        """Yield at once, at every change, and for the last time when the session could move again."""
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        try:
            while True:
                over = self.settled
                yield
                if over:
                    return
                await watcher.wait()
                watcher.clear()
        finally:
            self._watchers.discard(watcher)
