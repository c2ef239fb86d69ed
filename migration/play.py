"""A session out of its file, into a link."""

from __future__ import annotations

from gpuferry.specs._generated import migration_pb2
from gpuferry.specs._generated.wire import SPEC_HASH

from . import devices, frames
from .abc import Observer
from .errors import SnapshotError
from .file import Reader
from .frames import COPY_IN, PAGE, PRIMARY, Kept
from .link import PAUSE_PATIENCE, REBUILD_PATIENCE, SLOWEST, Link
from .report import Progress
from .targets import DONE, take_over


class Player:
    """One attempt. The program waits all the time, so nothing is a pause."""

    def __init__(self, reader: Reader, link: Link, observer: Observer) -> None:
        self._reader = reader
        self._link = link
        self._progress = Progress(observer)

    def run(self, welcome: bytes | None, guest: list[int]) -> migration_pb2.Report:
        """Without a welcome the link begins with it. With the guest's socket the destination gets that."""
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
            take_over(self._link, guest)
        return self._progress.finish()

    def report(self) -> migration_pb2.Report:
        """As far as it came."""
        return self._progress.finish()

    def _prepare(self, welcome: bytes | None) -> None:
        self._progress.enter(migration_pb2.PHASE_PREPARE)
        snapshot = self._reader.snapshot
        if snapshot.spec_hash != SPEC_HASH:
            raise SnapshotError(
                f"{self._reader.path} was written by a gpuferry of another version of the wire"
            )
        here = devices.of_welcome(snapshot.welcome)
        devices.compare(here, devices.of_welcome(welcome or self._link.welcome()))
        self._reader.check()

    def _rebuild(self) -> None:
        """In the order in which it was written, so that every frame finds what it needs."""
        self._progress.enter(migration_pb2.PHASE_REBUILD)
        total = sum(part.size for part in self._reader.snapshot.parts)
        done = 0
        for item in self._reader.contents():
            if isinstance(item, Kept):
                self._link.replay(item, frames.describe(item.frame))
                done += len(item.frame)
            else:
                address, page = item
                self._link.tell("sessionCopyIn", COPY_IN.pack(0, address, 0, PAGE, 1), page, PRIMARY)
                self._progress.copied(PAGE)
                done += PAGE
            self._progress.advance(done, total)
        self._link.settle()
