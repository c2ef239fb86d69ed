"""What is decided of a session that waits for an API server."""

from __future__ import annotations

from typing import NamedTuple


class Placement(NamedTuple):
    """The decision that a session gets an API server."""

    session: int
    device: int  # of several, the first
    server: int
    quota: int  # on each device
    devices: tuple[int, ...] = ()  # where an API server is to be started: all of them, ascending,
    servers: tuple[int, ...] = ()  # and an idle API server of each, if the policy placed it

    @property
    def taken(self) -> tuple[tuple[int, int], ...]:
        """The idle API servers that the policy chose, each with its device."""
        if not self.devices:
            return ((self.device, self.server),)
        return tuple(zip(self.devices, self.servers, strict=bool(self.servers)))

    def to_start(self) -> Placement:
        """Return the same, with an API server of its own in place of an idle one."""
        return self if self.devices else self._replace(devices=(self.device,), servers=(self.server,))


class Impossible(NamedTuple):
    """The decision that a session can never get an API server, and why."""

    session: int
    reason: str
    memory: bool  # but with less memory it could
