"""What a policy over invocations is told and what it answers (designs D13, D20).

Times are seconds of whoever tells them, memory is bytes. A policy has no clock but the `now` of events.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol


class Function(NamedTuple):
    """A function that can be invoked; each of its replicas answers one invocation at a time."""

    name: str
    memory: int = 0  # bytes of a GPU that a replica occupies while it is resident
    quota: int = 0  # bytes that a replica is promised there, be it resident or away; 0: as its memory
    weight: float = 1.0  # its share of service beside others that are busy too
    replicas: int = sys.maxsize  # the most there may be at once, and so the most invocations at once
    load: float | None = None  # seconds of a cold start, declared; None: unknown until measured
    run: float | None = None  # seconds of an invocation on a warm replica, declared; None: unknown
    gpus: int = 1  # that a replica has at once, and its memory on each of them
    perhaps: int = (
        0  # bytes that a new replica may turn out to need: idle ones end for them, and nobody waits
    )
    places: int = 1  # so many replicas are one session, which has these GPUs once

    @property
    def promise(self) -> int:
        """Bytes that a replica is promised."""
        return self.quota or self.memory

    @property
    def has_session(self) -> bool:
        """Whether a replica has a session at the GPU server, as far as is known."""
        return bool(self.promise or self.perhaps)


class Limit(NamedTuple):
    """What all replicas may have together, those that are away too."""

    memory: float = math.inf  # bytes that are promised, on all GPUs
    sessions: float = math.inf  # of replicas that are, or may be, promised memory
    gpus: float = math.inf  # of these sessions: one that several have counts with each


class Invocation(NamedTuple):
    """One call of a function. Ids are never used again, except to let a failed invocation run once more."""

    id: int
    function: str
    arrival: float = 0.0
    deadline: float = math.inf  # refused if it still waits then
    wanted: float = math.inf  # when its caller hopes to have the answer; nothing is refused for it


class Start(enum.Enum):
    """What comes before an invocation's execution."""

    WARM = "warm"  # nothing: its replica is resident on the GPU
    RETURN = "return"  # its replica's memory comes back, or comes from another GPU
    COLD = "cold"  # a replica is started and loads its model


class Run(NamedTuple):
    """The invocation runs now, on this GPU. The caller reports `on_begin` and then `on_complete`.

    `replica` is idle; where it is away its memory is brought to `gpu` first (`start` is RETURN). None: the
    caller starts a new one there (COLD), and `on_begin` says its id. `also`: its other GPUs, if it has
    several.
    """

    invocation: Invocation
    gpu: int
    replica: int | None
    start: Start
    also: tuple[int, ...] = ()


class Bring(NamedTuple):
    """The idle replica's memory comes back to this GPU, because invocations of it are expected."""

    function: str
    gpu: int
    replica: int


class Send(NamedTuple):
    """The idle replica's memory leaves this GPU; the replica stays, and may come back to any GPU."""

    function: str
    gpu: int
    replica: int


class End(NamedTuple):
    """The idle replica ends: its process and its memory go. The policy has forgotten it already."""

    function: str
    replica: int


class Refuse(NamedTuple):
    """The invocation is not run; the reason is for its caller."""

    invocation: Invocation
    reason: str


Decision = Run | Bring | Send | End | Refuse


class Policy(Protocol):
    """Schedules invocations on GPUs, and says which replicas are resident where.

    Events only change its books; after each one, `next` is asked until it answers None. Each decision is in
    the books at once, as if it were done. So the caller carries out decisions that name one GPU, or one
    replica, in their order: a Run waits for the Sends and Ends before it. Those of several GPUs need not wait
    for each other. If one fails, the caller says how things are: `on_complete`, `on_replica_lost` or
    `on_resident`.
    """

    def on_function(self, function: Function, now: float) -> None:
        """A function was deployed, or deployed anew with other figures; what was measured of it stays."""

    def on_function_removed(self, name: str, now: float) -> None:
        """A function was removed: what waits is refused, idle replicas end, the others when they are idle."""

    def on_gpu(self, gpu: int, memory: int, now: float, promised: float = math.inf) -> None:
        """A GPU joins, with so many bytes for replicas; or one that is there has so many from now on.
        `promised`: bytes that replicas may be promised there together, those that are away too.
        """

    def on_limit(self, limit: Limit, now: float) -> None:
        """All replicas may have so much together."""

    def on_gpu_lost(self, gpu: int, now: float) -> None:
        """A GPU left, with all that was resident there. Its invocations complete one by one, as failed."""

    def on_others(self, gpu: int, others: int, now: float) -> None:
        """So many other dispatchers keep this GPU busy: those that nobody does go first."""

    def on_start(self, function: Function, gpu: int, now: float) -> None:
        """A replica that no Run asked for is about to start on this GPU, and may load what it needs before it
        is an `on_replica`: idle ones make room for it. The function need not be deployed.
        """

    def on_replica(self, replica: int, function: str, gpu: int | None, now: float) -> None:
        """An idle replica is there that no Run asked for: kept warm, or found at start. `gpu`: where it is
        resident; None: its memory is away.
        """

    def on_replica_lost(self, replica: int, now: float) -> None:
        """A replica died or was ended. Its invocation, if it has one, is told by `on_complete` as well."""

    def on_resident(self, replica: int, gpu: int | None, now: float, also: Collection[int] = ()) -> None:
        """An idle replica's memory is elsewhere than the policy decided: on this GPU, or away (None). `also`:
        its other GPUs, if it has several.
        """

    def on_arrival(self, invocation: Invocation, now: float, *, first: bool = False) -> None:
        """An invocation waits. `first`: it was run before and failed, and goes before all others."""

    def on_begin(self, invocation: int, now: float, replica: int) -> None:
        """The invocation's execution begins, on this replica: its memory is where the Run wanted it."""

    def on_complete(self, invocation: int, now: float, *, failed: bool = False) -> None:
        """The invocation ended after its Run. Its replica is idle, unless it was lost or never began.
        `failed`: how long it took is service that its function had, and no more than a least time of its
        runs.
        """

    def on_cancel(self, invocation: int, now: float) -> None:
        """The caller went. If it waits, it is forgotten; if it runs, it still ends by `on_complete`."""

    def on_tick(self, now: float, utilisation: Mapping[int, float]) -> None:
        """Time passed; what each GPU measured since the last tick, from 0 to 1. About every 200 ms."""

    def next(self) -> Decision | None:
        """The next decision, entered in the books; None: there is none until the next event."""

    def waiting_of(self, function: str) -> int:
        """How many invocations of this function wait."""

    def __len__(self) -> int:
        """How many invocations wait."""
