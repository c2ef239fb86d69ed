"""Turns as tables of a terminal: `gpuferry status` and `top`."""

from __future__ import annotations

from collections.abc import Sequence

from gpuferry.specs._generated import control_pb2

from .grid import Gives, left, names, right

THOUSAND = 1000
COLUMNS = (
    right("id"),
    *names("program"),
    right("share"),
    right("request"),
    right("limit"),
    right("turns", Gives.WAY),
    right("used", Gives.WAY),
    left("turn"),
)


def share(session: control_pb2.Session) -> str:
    """The part of the window that the session has had; `-`: nobody takes turns there."""
    return f"{session.turns.share:.0%}" if session.HasField("turns") else "-"


def state(turns: control_pb2.SessionTurns) -> str:
    """Whether it has a turn, or since when it waits for one."""
    if turns.working:
        return "works"
    waits = f"waits {turns.waits_seconds * 1000:.0f} ms" if turns.waits_seconds else "-"
    return f"{waits}, overruns" if turns.overruns else waits


def row(session: control_pb2.Session) -> Sequence[str]:
    """Return the cells of a session's row, one for each of COLUMNS."""
    turns = session.turns
    return (
        str(session.id),
        session.program or "-",
        share(session),
        f"{turns.request / THOUSAND:.0%}" if turns.request else "-",
        f"{turns.limit / THOUSAND:.0%}" if turns.limit else "-",
        str(turns.turns),
        f"{turns.used_seconds:.1f}s",
        state(turns),
    )


def head(device: control_pb2.Device) -> str:
    """How sessions take turns on a device, in a line."""
    turns = device.turns
    if not turns.arbiter:
        return f"device {device.ordinal}: no arbiter of turns now: all sessions work at once"
    return (
        f"device {device.ordinal}: sharing by {turns.sharing}, {turns.working} of {turns.tokens} at work, "
        f"{turns.waiting} wait; {turns.share:.0%} of the last {turns.window_seconds:g} s used"
    )
