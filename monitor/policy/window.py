"""How much of a GPU's time a session has had lately: intervals in a window that slides."""

from __future__ import annotations

from collections import deque


class Window:
    """Intervals of use that lie behind each other, in nanoseconds of whoever tells them. What left the
    window is forgotten.
    """

    __slots__ = ("_records", "_sum", "length")

    def __init__(self, length: int) -> None:
        self.length = length
        self._records: deque[tuple[int, int]] = deque()
        self._sum = 0  # of all records, as a whole

    def add(self, begin: int, end: int) -> None:
        """The GPU was used from `begin` to `end`. What was told before is not counted again."""
        last = self._records[-1][1] if self._records else begin
        begin = max(begin, last)
        if end <= begin:
            return
        self._sum += end - begin
        if self._records and begin == last:
            begin = self._records.pop()[0]
        self._records.append((begin, end))

    def follow(self, other: Window) -> None:
        """Add what was used in another one, after all of this."""
        for begin, end in other._records:
            self.add(begin, end)

    def used(self, now: int) -> int:
        """Nanoseconds of use that are in the window now."""
        self._forget(now)
        cut = now - self.length
        if self._records and self._records[0][0] < cut:
            return self._sum - (cut - self._records[0][0])
        return self._sum

    def changes(self) -> int | None:
        """When the oldest record begins to leave the window; None: there is none."""
        return self._records[0][0] + self.length if self._records else None

    def falls_to(self, use: int, now: int) -> int:
        """The first moment, from now on, at which no more than `use` is in the window if nothing is added."""
        excess = self.used(now) - use
        if excess <= 0:
            return now
        cut = now - self.length
        for begin, end in self._records:
            begin = max(begin, cut)
            if excess <= end - begin:
                return begin + excess + self.length
            excess -= end - begin
        raise ValueError(f"a window cannot fall to {use}")

    def _forget(self, now: int) -> None:
        cut = now - self.length
        while self._records and self._records[0][1] <= cut:
            begin, end = self._records.popleft()
            self._sum -= end - begin
