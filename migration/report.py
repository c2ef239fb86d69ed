"""Measures how long each phase of a migration took and how many bytes it copied."""

from __future__ import annotations

import time
from collections.abc import Set

from gpuferry.specs._generated import migration_pb2

from .abc import Observer

PAUSED = {
    migration_pb2.PHASE_HOLD,
    migration_pb2.PHASE_DRAIN,
    migration_pb2.PHASE_CATCH_UP,
    migration_pb2.PHASE_VERIFY,
    migration_pb2.PHASE_TAKE_OVER,
}


class Progress:
    """The phases of one migration, their times, and the bytes that were copied."""

    def __init__(self, observer: Observer, pauses: Set[migration_pb2.Phase] = PAUSED) -> None:
        """`pauses`: the phases in which the program waits and would not otherwise."""
        self._observer = observer
        self._pauses = pauses
        self._began = self._since = time.monotonic()
        self.phase = migration_pb2.PHASE_UNSPECIFIED
        self._seconds: dict[migration_pb2.Phase, float] = {}
        self.report = migration_pb2.Report()

    @property
    def paused(self) -> bool:
        """Whether the program waits in this phase."""
        return self.phase in self._pauses

    def enter(self, phase: migration_pb2.Phase, total: int = 0) -> None:
        """Begin the next phase, in which `total` bytes are to be copied. Raises Cancelled."""
        self._leave()
        self.phase = phase
        self._observer.phase(phase, 0, total)

    def advance(self, done: int, total: int) -> None:
        """Tell how many bytes of the phase are done. Raises Cancelled."""
        self._observer.phase(self.phase, done, total)

    def copied(self, count: int) -> None:
        """Count bytes that were copied."""
        self.report.copied_bytes += count
        if self.paused:
            self.report.pause_bytes += count

    def finish(self) -> migration_pb2.Report:
        """End the last phase and return the report, whether the migration succeeded or not."""
        self._leave()
        self.phase = migration_pb2.PHASE_UNSPECIFIED
        report = self.report
        report.seconds = time.monotonic() - self._began
        report.pause_seconds = sum(self._seconds.get(phase, 0.0) for phase in self._pauses)
        del report.phases[:]
        for phase, seconds in self._seconds.items():
            report.phases.add(phase=phase, seconds=seconds)
        return report

    def _leave(self) -> None:
        now = time.monotonic()
        if self.phase != migration_pb2.PHASE_UNSPECIFIED:
            self._seconds[self.phase] = self._seconds.get(self.phase, 0.0) + now - self._since
        self._since = now
