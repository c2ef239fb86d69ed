"""How often something may happen, and log lines that many strangers can cause without filling a disk."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

KEYS_MOST = 1024
FLUSH_SECONDS = 10.0


class Buckets:
    """A token bucket for each key; of very many keys, those that were not seen longest begin anew."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = KEYS_MOST) -> None:
        self._clock = clock
        self._most = most
        self._filled: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, and when

    def take(self, key: Hashable, rate: float, burst: float) -> bool:
        """Take one token of this key's bucket, which holds `burst` and gets `rate` a second. False: none is
        left.
        """
        return not self.lack(key, rate, burst)

    def lack(self, key: Hashable, rate: float, burst: float) -> float:
        """Take one token as `take` does. Returns 0.0, or the part of a token that was lacking."""
        now = self._clock()
        tokens, then = self._filled.pop(key, (burst, now))
        tokens = min(burst, tokens + max(now - then, 0.0) * rate)
        taken = tokens >= 1
        self._filled[key] = (tokens - 1 if taken else tokens, now)
        if len(self._filled) > self._most:
            self._filled.popitem(last=False)
        return 0.0 if taken else 1 - tokens


class Sparing:
    """Log lines of one event, at a bounded rate for each key and in all; what was left out is counted."""

    RATE, BURST = 1.0, 5.0  # of one key, a second
    ALL_RATE, ALL_BURST = 20.0, 50.0

    def __init__(self, write: Callable[..., Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._buckets = Buckets(clock)
        self._left_out: Counter[str] = Counter()  # by event and reason
        self._timer: asyncio.TimerHandle | None = None

    def say(self, event: str, key: Hashable, **fields: Any) -> None:
        """Write the line, unless there were too many of this key, or of all. `reason`, if given, is counted
        by.
        """
        allowed = self._buckets.take((event, key), self.RATE, self.BURST)
        if allowed and self._buckets.take("all", self.ALL_RATE, self.ALL_BURST):
            self._write(event, **fields)
            return
        self._left_out[f"{event} ({fields['reason']})" if "reason" in fields else event] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._tell)

    def _tell(self) -> None:
        self._timer = None
        for event, count in self._left_out.items():
            self._write(f"{event}: {count} more suppressed")
        self._left_out.clear()
