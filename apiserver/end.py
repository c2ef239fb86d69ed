"""Why a session ended: a cause, which is acted upon, and a text, which is only read."""

from __future__ import annotations

from typing import NamedTuple

from gpuferry.specs._generated import node_pb2


class End(NamedTuple):
    """The end of a session. Behaviour depends on the cause alone."""

    cause: node_pb2.Cause
    reason: str


CLOSED = End(node_pb2.CAUSE_CLOSED, "closed")
LOST = End(node_pb2.CAUSE_LOST, "connection lost")
MOVED = End(node_pb2.CAUSE_MOVED, "moved")


def revoked(why: str) -> End:
    """The end of a session that somebody ended from outside, or that reached a limit."""
    return End(node_pb2.CAUSE_REVOKED, f"revoked: {why}")
