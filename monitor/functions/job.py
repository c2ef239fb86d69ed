"""An invocation on its way through the server, and who hears of it."""

from __future__ import annotations

import asyncio
import enum
import time
from dataclasses import dataclass, field
from typing import Protocol

from .fleet import Function, Place
from .invocation import Answer, Call
from .stream import Stream


class State(enum.Enum):
    """The states of an invocation, from its arrival to its answer."""

    WAITING = "waiting"
    STARTING = "starting"  # a replica is, for it
    RUNNING = "running"
    OVER = "over"


@dataclass(eq=False)
class Job:
    """An invocation that was accepted, until it is answered."""

    number: int
    function: Function
    call: Call = field(repr=False)
    future: asyncio.Future[Answer] = field(repr=False)
    arrived: float = field(default_factory=time.monotonic)
    state: State = State.WAITING
    tries: int = 0
    began: float = 0.0
    cold: bool = False
    place: Place | None = None
    timer: asyncio.TimerHandle | None = None  # of its wait, then of its end when its caller has gone
    running: asyncio.Future[Answer | None] | None = None
    stream: Stream | None = field(default=None, repr=False)  # of an answer in parts; its future has it then
    gone: bool = False  # its caller has
    told: bool = False  # observers know that it has begun
    entered: bool = False  # the policy knows that it has begun

    @property
    def wanted(self) -> bool:
        """Whether its caller still waits for an answer."""
        return not self.future.done()


class Observer(Protocol):
    """Who hears of invocations: figures, and the GPU server."""

    def begun(self, job: Job) -> None:
        """Hear that an invocation is sent to a replica."""

    def ended(self, job: Job, result: str, seconds: float) -> None:
        """Hear how an invocation ended: `ok` or a `Code`, and seconds on the replica (0: never there)."""
