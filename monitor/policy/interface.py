"""What a policy is told and what it answers (design D13). Times are seconds of whoever tells them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from .gpu import Gpu
from .portion import PLAIN, Portion


class Request(NamedTuple):
    """A session that asks for GPUs; the session that it becomes has the same id."""

    id: int
    memory: int  # on each device, in the unit of `Gpu.memory`
    function: str = ""
    devices: int = 1
    labels: frozenset[str] = frozenset()  # each GPU must have all of them
    arrival: float = 0.0
    deadline: float = math.inf  # refused if it still waits then
    tenant: str = ""
    portion: Portion = PLAIN  # of each device


class Seat(NamedTuple):
    """A worker on its home GPU."""

    gpu: int
    worker: int


class Place(NamedTuple):
    """The request becomes a session on these seats: one per device, in the order of its devices."""

    request: Request
    seats: tuple[Seat, ...]

    @property
    def gpu(self) -> int:
        """The GPU of the first, and mostly only, seat."""
        return self.seats[0].gpu

    @property
    def worker(self) -> int:
        """The worker of the first, and mostly only, seat."""
        return self.seats[0].worker


class Migrate(NamedTuple):
    """The session moves to a worker of another GPU; whoever carries it out reports by `on_migrated`."""

    session: int
    source: int
    target: int
    worker: int  # taken from the target's idle ones


class Refuse(NamedTuple):
    """The request leaves the queue; the reason is for its user."""

    request: Request
    reason: str
    memory: bool = False  # with less of it asked for, there would have been a place


Decision = Place | Migrate | Refuse


class Standing(NamedTuple):
    """What a tenant has of a server."""

    waiting: int  # requests
    sessions: int
    memory: int  # granted to them
    gpus: int = 0  # of theirs; one that several have counts with each
    time: int = 0  # promised to them, in thousandths of a GPU's


class Declined(Exception):
    """Raised where an operator's wish cannot be carried out as things are now; the text says why."""


class Policy(Protocol):
    """Events only change its state; after each one `next` is asked until it answers None."""

    def on_arrival(self, request: Request, now: float, *, first: bool = False) -> None:
        """A request joins the queue; `first` if it was placed before and lost its worker at once: then told
        right after its `on_complete`, and it was overtaken as often as before.
        """

    def on_complete(self, session: int, now: float) -> None:
        """A session ended and its memory is free; its worker comes back by `on_idle`, or not."""

    def on_tick(self, now: float, utilisation: Mapping[int, float]) -> None:
        """Time passed; what each GPU measured since the last tick, from 0 to 1."""

    def next(self) -> Decision | None:
        """The next decision, entered in the policy's own books already; None: there is none now."""

    # What happens to the server itself.

    def add_gpu(self, gpu: Gpu) -> None:
        """A GPU joins; from here on its view belongs to the policy."""

    def remove_gpu(self, gpu: int) -> None:
        """A GPU failed or left. Its sessions still complete one by one."""

    def on_idle(self, gpu: int, worker: int) -> None:
        """A worker is ready on its home GPU: new, or returned from a session."""

    def on_worker_lost(self, gpu: int, worker: int) -> None:
        """A worker of that home GPU is gone."""

    def withhold(self, gpu: int, size: int) -> None:
        """Of the GPU's memory, so many bytes are not to be promised for now."""

    # What happens to a request or session besides its arrival and its end.

    def adopt(self, request: Request, *gpus: int) -> None:
        """A session that is there already, placed by whoever was here before; it may exceed the room."""

    def on_leave(self, request: int) -> None:
        """A waiting request was withdrawn."""

    def on_launch(self, session: int, now: float) -> None:
        """A session is about to launch a kernel: a point where it may be moved."""

    def on_migrated(self, session: int, done: bool, seconds: float = 0.0) -> None:
        """A migration ended after a pause of so long; if not done, the session is where it was.

        The worker that has no session now comes back by `on_idle`, or not.
        """

    def rehome(self, session: int, target: int) -> None:
        """Who invokes the session's program wants it on this GPU: if it asked for one by its label, that is
        this one from now on.
        """

    def request_migration(self, session: int, target: int) -> None:
        """Move the session to this GPU, as an operator wants: the decision is among the next ones. Raises
        Declined.
        """

    def move_several(self, session: int, targets: Sequence[int]) -> None:
        """Move the session of several devices to these, as an operator wants, at once. Raises Declined."""

    def whereabouts(self, session: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The GPUs where the session is, and those to which it is moving; none of a session that is not
        placed.
        """

    def adopt_move(self, session: int, *gpus: int) -> None:
        """Enter a move that an earlier monitor let begin, whether there is room or not."""

    def on_return(self, request: Request, gpu: int) -> int:
        """Place a suspended session on this GPU again. Returns its worker there. Raises Declined."""

    def on_join(self, gpu: int, tenant: str) -> int | None:
        """An idle worker of the GPU for one more process of a tenant's session that is there, which counts as
        it did; None: there is none, or it is left to other tenants.
        """

    def imbalance(self) -> tuple[int, int] | None:
        """(source, target) while the next launch on `source` may bring a migration; else None, and no
        launch need be told.
        """

    def standing(self, tenant: str) -> Standing:
        """What the tenant has of this server."""

    def crowd(self) -> tuple[str, int, int]:
        """The tenant with the most waiting requests, how many those are, and which has its turn last. Only if
        somebody waits.
        """

    def waiting(self) -> Sequence[Request]:
        """The requests in the order in which they stand in the queue."""

    def find(self, request: int) -> Request | None:
        """The waiting request with this id; None if it does not wait."""

    def obstacle(self, request: Request) -> str:
        """Why no GPU takes the waiting request at this moment; empty: only those before it are in the way."""

    def __len__(self) -> int:
        """Return how many requests wait."""
