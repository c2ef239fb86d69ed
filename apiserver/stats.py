"""What the monitor is told of a session's use of device, memory and calls."""

from __future__ import annotations

from gpuferry.specs._generated import node_pb2

from ._core import Core
from .process import rss
from .session import Session

TURN_STATES = (
    node_pb2.TURN_STATE_UNSPECIFIED,
    node_pb2.TURN_STATE_WAITS,
    node_pb2.TURN_STATE_HAS,
)


def stats_of(core: Core, session: Session | None) -> node_pb2.Stats:
    """The statistics of this session, or of a process without one; a session that arrives has none yet."""
    if session is None or session.restoring:
        return node_pb2.Stats(rss=rss())
    values = dict(session.stats or core.stats())
    busy = values.pop("busy_nanoseconds") / 1e9
    away = session.away_until is not None
    stats = node_pb2.Stats(session=session.id, busy_seconds=busy, rss=rss(), disconnected=away)
    for name, value in values.items():
        setattr(stats, name, value)
    stats.mapped_on.extend(core.mapped_on())
    stats.resides.CopyFrom(session.residing.describe())
    stats.idle_seconds, stats.stays = core.idle_seconds, core.stays
    turn, stats.turn_ago = core.turn
    stats.turn = TURN_STATES[turn]
    for operation, succeeded, failed, timed, nanoseconds in core.calls():
        stats.calls.add(
            operation=operation,
            succeeded=succeeded,
            failed=failed,
            timed=timed,
            seconds=nanoseconds / 1e9,
        )
    for function, calls in core.unsupported():
        stats.unsupported.add(function=function, calls=calls)
    return stats
