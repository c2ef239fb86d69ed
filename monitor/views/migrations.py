"""Migrations, as control.proto describes them."""

from __future__ import annotations

import time

from gpuferry.migration.follow import session_of
from gpuferry.specs._generated import control_pb2

from ..moves.migration import Migration, State

_RESULTS = {
    State.RUNNING: control_pb2.MIGRATION_STATE_RUNNING,
    State.DONE: control_pb2.MIGRATION_STATE_DONE,
    State.FAILED: control_pb2.MIGRATION_STATE_FAILED,
}


def describe(one: Migration) -> control_pb2.Migration:
    """The migration as it is at this moment, over or not."""
    return control_pb2.Migration(
        id=one.id,
        session=one.session.id,
        source=one.came_from,
        target=str(one.target),
        state=_RESULTS[one.state],
        started_seconds_ago=time.monotonic() - one.began,
        seconds=one.elapsed,
        downtime_seconds=one.report.pause_seconds if one.report else 0.0,
        bytes=one.copied_bytes,
        reason=one.reason,
        bytes_total=one.bytes_total,
        phase=one.phase,
        report=one.report,
        session_there=session_of(one.remote.welcome) if one.remote and one.taken_over else 0,
    )
