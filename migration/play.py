"""Plays a session out of its file, over a link to an API server."""

from __future__ import annotations

from collections.abc import Collection

from gpuferry.specs._generated import migration_pb2

from . import devices, frames, versions
from .abc import Observer
from .errors import SnapshotError
from .file import Snapshot
from .frames import COPY_IN, HANDLE, HEADER, LOCATE, PAGE, PRIMARY, RESUMABLE, VARIABLE_FOUND, Kept
from .link import PAUSE_PATIENCE, REBUILD_PATIENCE, SLOWEST, Link, require
from .report import Progress
from .targets import DONE, take_over


class Player:
    """One attempt to play a snapshot. The program waits all the time, so no part of it counts as a pause."""

    def __init__(
        self,
        reader: Snapshot,
        link: Link,
        observer: Observer,
        written: int | None = None,
        lacks: Collection[int] = (),
    ) -> None:
        """`written`: as much of its stream the guest has, if it came back by another connection meanwhile.
        `lacks`: operations of this build that the destination has not."""
        self._reader = reader
        self._link = link
        self._progress = Progress(observer, pauses=set())
        self._written = written
        self._lacks = lacks
        self._variable = _Variable(link)

    def run(
        self, welcome: bytes | None, guest: list[int], relayed: bool = False, tls: bytes = b""
    ) -> migration_pb2.Report:
        """Play the snapshot and return the report. `welcome`: the destination's, where it was read
        already; `guest`: the guest's socket, if the destination shall have it. Raises MigrationError.
        """
        self._prepare(welcome)
        with self._link.patient(REBUILD_PATIENCE):
            self._rebuild()
        with self._link.patient(PAUSE_PATIENCE + self._reader.snapshot.mapped_bytes // SLOWEST):
            self._progress.enter(migration_pb2.PHASE_VERIFY)
            self._link.tell(
                "sessionRestoreDone", DONE.pack(self._reader.snapshot.mapped_bytes), context=PRIMARY
            )
            self._link.settle()
            self._progress.enter(migration_pb2.PHASE_TAKE_OVER)
            take_over(self._link, guest, relayed, tls)
        return self._progress.finish()

    def report(self) -> migration_pb2.Report:
        """The report as far as the attempt came."""
        return self._progress.finish()

    def _prepare(self, welcome: bytes | None) -> None:
        self._progress.enter(migration_pb2.PHASE_PREPARE)
        snapshot = self._reader.snapshot
        try:
            versions.check(snapshot, self._lacks)
        except SnapshotError as error:
            raise SnapshotError(f"{self._reader.name}: {error.reason}") from None
        here = devices.of_welcome(snapshot.welcome)
        devices.compare(here, devices.of_welcome(welcome or self._link.welcome()))
        self._reader.check()

    def _rebuild(self) -> None:
        """In the order in which it was written, so that every frame finds what it needs."""
        self._progress.enter(migration_pb2.PHASE_REBUILD)
        for item in self._reader.contents():
            if isinstance(item, Kept):
                self._play(item)
            else:
                address, page = item
                self._link.tell("sessionCopyIn", COPY_IN.pack(0, address, 0, PAGE, 1), page, PRIMARY)
                self._progress.copied(PAGE)
            self._progress.advance(self._reader.done, self._reader.size)
        self._link.settle()

    def _play(self, kept: Kept) -> None:
        op = frames.header(kept.frame).op
        if op == LOCATE and kept.answer == 0:
            self._variable.locate(kept)
            return
        if op == frames.OPERATIONS["sessionCopyIn"]:
            kept, elsewhere = self._variable.content(kept)
            self._progress.report.variables_elsewhere += elsewhere
        elif op == LOCATE:
            self._variable.stay()
        self._link.replay(self._up_to_date(kept), frames.describe(kept.frame))

    def _up_to_date(self, kept: Kept) -> Kept:
        """What the file says of the guest's stream was so when it was written."""
        head = frames.header(kept.frame)
        if self._written is None or head.op != frames.OPERATIONS["sessionRestoreResumable"]:
            return kept
        *others, _ = RESUMABLE.unpack_from(kept.frame, HEADER.size)
        return Kept(kept.frame[: HEADER.size] + RESUMABLE.pack(*others, self._written), kept.answer)


class _Variable:
    """The variable whose contents come next: they are for where it lies here, which is asked."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._place: int | None = None  # None: where it lay
        self._begin: int | None = None  # where that was; None: nothing of it came yet

    def locate(self, kept: Kept) -> None:
        """Ask where the variable that this frame names lies here: its contents go there. Raises Refused if
        there is none.
        """

        def take(status: int, body: memoryview) -> None:
            require(status, frames.describe(kept.frame))
            self._place, _ = VARIABLE_FOUND.unpack_from(body)

        body = kept.frame[HEADER.size :]
        owner, name = body[: HANDLE.size], body[HANDLE.size :]
        self._begin = None
        self._link.ask("sessionRestoreVariable", owner, take, name, frames.header(kept.frame).context)
        self._link.settle()

    def stay(self) -> None:
        """The contents that come next go to the addresses that the file has."""
        self._place = None

    def content(self, kept: Kept) -> tuple[Kept, bool]:
        """What writes a part of it here, and whether it is the first of one that lies elsewhere."""
        if self._place is None:
            return kept, False
        stream, address, *rest = COPY_IN.unpack_from(kept.frame, HEADER.size)
        first = self._begin is None
        self._begin = address if self._begin is None else self._begin
        there = COPY_IN.pack(stream, self._place + address - self._begin, *rest)
        frame = kept.frame[: HEADER.size] + there + kept.frame[HEADER.size + COPY_IN.size :]
        return Kept(frame, kept.answer), first and self._place != address
