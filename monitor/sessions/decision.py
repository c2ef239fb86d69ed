"""What is decided of a session that waits for an API server."""

from __future__ import annotations

from typing import NamedTuple


class Placement(NamedTuple):
    """The decision that a session gets an API server."""

    session: int
    device: int  # of several, the first
    server: int
    quota: int  # on each device
    devices: tuple[int, ...] = ()  # where they are several: all of them, ascending,
    servers: tuple[int, ...] = ()  # and an idle API server of each, if the policy placed it


class Impossible(NamedTuple):
    """The decision that a session can never get an API server, and why."""

    session: int
    reason: str
    memory: bool  # but with less memory it could
