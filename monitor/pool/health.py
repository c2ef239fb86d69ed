"""Whether API servers live on a device, and when to try again where they do not. No clock."""

from __future__ import annotations

PAUSE_FIRST, PAUSE_MOST = 0.25, 30.0  # seconds
SHORT_LIFE = 5.0  # seconds
FREE_RESTARTS = 3
HOPELESS = 3  # failures in a row


class Health:
    """How API servers fare on one device."""

    def __init__(self) -> None:
        self.out = False  # of service
        self.resting = False  # nothing is started there now
        self.hopeless = False  # one after the other could not live there
        self.reason: str | None = None  # why no more API servers live there; none: they do
        self._failures = 0

    def server_ready(self) -> None:
        """An API server is ready on the device."""
        self.out = self.hopeless = False
        self.reason = None

    def server_died(self, was_ready: bool, served: bool, age: float) -> float:
        """An API server is gone; seconds until the next is started.

        One that served or lasted is replaced at once; one that cannot live would only burn time.
        """
        self._failures = 0 if served or (age > SHORT_LIFE and was_ready) else self._failures + 1
        excess = self._failures - (FREE_RESTARTS if was_ready else 0)
        if excess <= 0:
            return 0.0
        self.hopeless = excess >= HOPELESS
        return min(PAUSE_FIRST * 2.0 ** (excess - 1), PAUSE_MOST)
