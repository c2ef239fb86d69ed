"""What happens on a GPU server, for whoever wants to know."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass


class Kind(enum.Enum):
    """What happened to a session, an API server or a device."""

    QUEUED = "queued"  # a session waits
    LEFT = "left"  # it does not any more, of its own will
    REFUSED = "refused"
    STARTED = "started"
    ADOPTED = "adopted"  # a session that an earlier monitor granted
    ENDED = "ended"
    MIGRATE = "migrate"  # a session begins to move
    MIGRATED = "migrated"
    NOT_MIGRATED = "not_migrated"  # it goes on where it was
    SERVER_READY = "server_ready"
    SERVER_LOST = "server_lost"
    DEVICE_LOST = "device_lost"
    DEVICE_BACK = "device_back"


@dataclass(frozen=True)
class Event:
    """One thing that happened. A number that does not apply is 0, or -1 for devices."""

    kind: Kind
    session: int = 0
    device: int = -1
    server: int = 0  # its pid
    reason: str = ""
    target: int = -1  # device of a migration
    copied_bytes: int = 0  # of a migration
    pause_seconds: float = 0.0  # for which a migration held the program up


Listener = Callable[[Event], None]


class Announcer:
    """Tells all subscribers at once; they must be quick and must not raise."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener for every event from now on. Returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, event: Event) -> None:
        """Tell all subscribers of this event."""
        for listener in list(self._listeners):
            listener(event)
