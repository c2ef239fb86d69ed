"""One program on its way, session by session: what is known of it, and for whom."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from gpuferry.migration.place import ExistingFile
from gpuferry.specs._generated import migration_pb2, node_pb2

from ..pool.api_server import ApiServer
from ..sessions.book import Book, opened
from ..sessions.lease import Lease
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
class ToDevices:
    """Devices of this GPU server, for a session that has as many."""

    devices: tuple[int, ...]

    def __str__(self) -> str:
        return f"gpu:{','.join(map(str, self.devices))}"


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


Target = ToDevice | ToDevices | ToServer | ToFile


def devices_of(target: Target) -> tuple[int, ...]:
    """The devices of this GPU server where a session goes that has this target, as far as they are chosen."""
    if isinstance(target, ToDevices):
        return target.devices
    return (target.device,) if isinstance(target, ToDevice) and target.device is not None else ()


class Gang:
    """The migrations of all processes of a program: they happen together, or none does. The policy knows all
    of them as one lease.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.members: list[Migration] = []
        self.settled = False
        self._book: Book | None = None  # of the destinations

    def make_book(self) -> None:
        """Make the book in which the destinations claim, if the lease has one. Raises OSError."""
        if self.lease.book:
            self._book = self.lease.book.next()
            self._book.make()

    def know_book(self, edition: int) -> None:
        """An earlier monitor has made this edition for the destinations."""
        if self.lease.book and edition > self.lease.book.edition:
            self._book = self.lease.book.next()

    @contextmanager
    def book(self) -> Iterator[list[IO[bytes]]]:
        """The destinations' book, to be given away; nothing where there is none. Raises OSError."""
        with opened(self._book) as found:
            yield found

    @property
    def edition(self) -> int:
        """The edition of the destinations' book: it tells one attempt from another."""
        return self._book.edition if self._book else 0

    def named(self) -> list[migration_pb2.Member]:
        """The processes, for whoever moves one of several; empty if there is one."""
        if len(self.members) == 1:
            return []
        return [migration_pb2.Member(session=each.session.id, seat=each.seat) for each in self.members]

    def settle(self, moved: bool) -> None:
        """Note who has the sessions; nobody else holds anything of them any more."""
        self.settled = True
        if not self._book:
            return
        for each in self.members:
            if each.session_over:
                self._book.empty(each.seat)
        given_up = self._book
        if moved and self.lease.members:
            given_up, self.lease.book = self.lease.book or given_up, self._book
        given_up.remove()


class Migration:
    """What is known of one session's way, for those who arrange it and those who watch."""

    def __init__(
        self,
        number: int,
        session: Session,
        source: ApiServer | None,
        target: Target,
        came_from: str,
        gang: Gang,
    ) -> None:
        self.id = number
        self.gang = gang  # with the other processes of the program
        gang.members.append(self)
        self.session = session
        self.seat = session.lease.seats[session.id]
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
        self.called_off = False  # was told to give up because another session of its program did
        self.others_stay = False  # it failed because of that
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
        self.wished_device: int | None = None  # where the pool starts API servers for its program,
        self.wished = 0  # and how many
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self._watchers: set[asyncio.Event] = set()

    @property
    def due(self) -> set[ApiServer]:
        """Return the API servers that hold memory of a device for the session and have to give it back."""
        holders = {
            server
            for server, holds in (
                (self.source, self.source_holds),
                (self.destination, self.destination_holds),
            )
            if server and holds
        }
        return holders if self.session_over else holders - {self.owner}

    @property
    def owner(self) -> ApiServer | None:
        """Return the API server that has the session."""
        return self.destination if self.taken_over else self.source

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
