"""What is measured of a function."""

from __future__ import annotations

import math

LEAST_WEIGHT = 0.1  # of the newest observation, once there are many: the mean follows a function that changes


class Mean:
    """A mean over all observations at first, and over about the last twenty later."""

    __slots__ = ("count", "value")

    def __init__(self, declared: float | None = None) -> None:
        self.value = declared  # None until something is known
        self.count = 0

    def add(self, observed: float) -> None:
        """Take in an observation; the first one replaces what was declared."""
        self.count += 1
        if self.value is None or self.count == 1:
            self.value = observed
        else:
            self.value += (observed - self.value) * max(1.0 / self.count, LEAST_WEIGHT)

    def at_least(self, observed: float) -> None:
        """Take in an observation that was cut short: all that it says is that the whole is no less."""
        if self.value is None or observed > self.value:
            if self.count:
                self.add(observed)
            else:
                self.value = observed  # until a whole one is known

    def declare(self, value: float | None) -> None:
        """Take the declared value as long as nothing was observed."""
        if not self.count:
            self.value = value

    def or_else(self, unknown: float) -> float:
        """The mean, or this if nothing is known."""
        return unknown if self.value is None else self.value


class Lately:
    """A sum in which what was added `life` seconds ago counts 1/e of what it did."""

    __slots__ = ("_life", "_sum", "_when")

    def __init__(self, life: float) -> None:
        self._life = life
        self._sum = 0.0
        self._when = 0.0

    def add(self, value: float, now: float) -> None:
        """Add to it at this moment, which is not before the last one."""
        self._sum = self.at(now) + value
        self._when = now

    def at(self, now: float) -> float:
        """The sum at this moment, which is not before the last one."""
        return self._sum * math.exp((self._when - now) / self._life)
