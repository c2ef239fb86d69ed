"""An invocation, its answer, and what it is told when there is none."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol


class Ran(str, enum.Enum):
    """Whether the function's handler has begun with an invocation: whether to repeat it is safe."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Call:
    """What a caller sent."""

    method: str
    path: str  # behind the function's name, with its slash; empty: nothing was there
    query: str  # as it came
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)


class Parts(Protocol):
    """An answer that comes in parts, as its caller sees it."""

    def parts(self) -> AsyncIterator[bytes]:
        """Each part. Raises Failed where the rest does not come."""

    async def whole(self, most: int) -> bytes:
        """All of it, for who cannot be given parts. Raises Failed."""

    def leave(self) -> None:
        """The caller has gone, or has all."""


@dataclass(frozen=True)
class Answer:
    """What a handler answered."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    cold: bool = False  # a replica was started for it
    length: int | None = None  # of the body that is left out because only the head was asked for
    stream: Parts | None = field(default=None, repr=False)  # in place of a body: what comes in parts


class Code(str, enum.Enum):
    """Why an invocation has no answer of its function's. Each has one HTTP status."""

    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    MALFORMED = "malformed"
    QUEUE_FULL = "queue_full"
    SHUTTING_DOWN = "shutting_down"
    REMOVED = "removed"
    REFUSED = "refused"
    WAITED = "waited"
    NO_START = "no_start"
    TIMEOUT = "timeout"
    RAISED = "raised"
    CRASHED = "crashed"
    MEMORY = "memory"
    PROCESSES = "processes"
    BAD_ANSWER = "bad_answer"
    CANCELLED = "cancelled"
    DEFECT = "defect"  # of the function server

    @property
    def status(self) -> int:
        """The HTTP status that says so."""
        return _STATUSES.get(self, 500)


_STATUSES = {
    Code.NOT_FOUND: 404,
    Code.TOO_LARGE: 413,
    Code.TOO_SLOW: 408,
    Code.MALFORMED: 400,
    Code.QUEUE_FULL: 429,
    Code.SHUTTING_DOWN: 503,
    Code.REMOVED: 404,
    Code.REFUSED: 503,
    Code.WAITED: 504,
    Code.NO_START: 503,
    Code.TIMEOUT: 504,
    Code.RAISED: 500,
    Code.CRASHED: 502,
    Code.MEMORY: 502,
    Code.PROCESSES: 502,
    Code.BAD_ANSWER: 502,
    Code.CANCELLED: 499,
}


class Failed(Exception):
    """An invocation without an answer of its function's."""

    def __init__(
        self, code: Code, why: str, ran: Ran = Ran.NO, *, trace: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.ran = ran
        self.trace = trace
        self.retry_after = retry_after


class Lost(Failed):
    """The replica is gone, or not to be used any more; so is the invocation."""


class NotBegun(Exception):
    """The replica was gone before its handler began with the invocation, which may be run elsewhere."""
