"""What the books of a policy hold: GPUs, replicas, functions with what waits of them, and what runs."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from .estimates import Mean
from .interface import Function, Invocation, Start


@dataclass(eq=False, slots=True)
class Card:
    """One GPU as the books see it."""

    index: int
    memory: int
    tokens: int  # invocations that may run here at once
    running: int = 0
    used: int = 0  # bytes of the replicas that are resident
    pinned: int = 0  # of these, bytes of the ones that run
    absent: int = 0  # bytes of the replicas that were here last and are away
    promised: float = math.inf  # bytes that replicas may be promised together
    bound: int = 0  # of these, promised to the replicas that are here, or were last
    tied: int = 0  # of these, to the ones that run
    assigned: int = 0  # how often an invocation was given to it
    others: int = 0  # other dispatchers that keep it busy
    gone: bool = False
    idle: OrderedDict[Replica, None] = field(
        default_factory=OrderedDict
    )  # resident; the last used at the end
    busy: dict[Replica, None] = field(default_factory=dict)
    guests: OrderedDict[Replica, None] = field(
        default_factory=OrderedDict
    )  # idle ones of which it is not the first GPU
    peers: Mapping[int, Card] = field(default_factory=dict)  # all GPUs

    @property
    def open(self) -> int:
        """Invocations that may begin here now."""
        return self.tokens - self.running

    def holds(self, flow: Flow) -> bool:
        """Whether a replica of the function is resident here and idle, or can be once idle ones leave."""
        return self.takes(flow) or flow.idle_on(self) is not None

    def takes(self, flow: Flow) -> bool:
        """Whether one more replica of the function can be here once idle ones leave or end."""
        return self.has_place(flow.function.gpus, flow.function.memory, flow.function.promise)

    def has_place(self, gpus: int, memory: int, promise: int) -> bool:
        """The same of a replica with so many GPUs, so much memory on each, which is promised so much."""
        fits = self._has_room(memory, promise)
        return fits and (gpus == 1 or len(self.beside(gpus, memory, promise)) == gpus - 1)

    def _has_room(self, memory: int, promise: int) -> bool:
        return self.memory - self.pinned >= memory and self.promised - self.tied >= promise

    def beside(self, gpus: int, memory: int, promise: int) -> tuple[Card, ...]:
        """The other GPUs of such a replica of which this is the first: those with the most room. Too few: no
        more have a token and room now.
        """
        if gpus == 1:
            return ()
        able = [
            card
            for card in self.peers.values()
            if card is not self and card.open > 0 and card._has_room(memory, promise)
        ]
        able.sort(key=lambda card: (card.others, card.used - card.memory, card.index))
        return tuple(able[: gpus - 1])


@dataclass(eq=False, slots=True)
class Replica:
    """A replica; away if it is not resident, and then `card` is where it was."""

    id: int | None  # None until its first invocation began
    flow: Flow
    memory: int
    promise: int
    card: Card | None = None
    also: tuple[Card, ...] = ()  # its other GPUs, if it has several
    resident: bool = False
    invocation: int | None = None
    lost: bool = False
    uses: int = 0  # invocations that it completed
    used_at: float = -math.inf

    @property
    def cards(self) -> tuple[Card, ...]:
        """The GPUs on which the replica counts, `card` first; empty while it is on none."""
        return (self.card, *self.also) if self.card else ()


@dataclass(eq=False, slots=True)
class Flow:
    """A function, and all that belongs to it."""

    function: Function
    number: int  # order of registration
    load: Mean = field(default_factory=Mean)  # seconds of a cold start
    back: Mean = field(default_factory=Mean)  # seconds of a return
    run: Mean = field(default_factory=Mean)  # seconds of an invocation on a warm replica
    waiting: OrderedDict[int, Invocation] = field(default_factory=OrderedDict)
    parked: int = 0  # more that wait, for one GPU each
    in_flight: int = 0
    replicas: dict[Replica, None] = field(default_factory=dict)
    at: dict[Card, dict[Replica, None]] = field(default_factory=dict)  # where replicas are resident
    away: dict[Replica, None] = field(default_factory=dict)
    removed: bool = False

    @property
    def head(self) -> Invocation:
        """The invocation that waits longest."""
        return next(iter(self.waiting.values()))

    @property
    def cost(self) -> float:
        """Seconds before an invocation executes where no replica is resident; 0 if nothing is known."""
        return self.back.or_else(self.load.or_else(0.0)) if self.away else self.load.or_else(0.0)

    @property
    def limited(self) -> bool:
        """Whether no more of its invocations may run now."""
        return self.in_flight >= self.function.replicas

    def idle_on(self, card: Card) -> Replica | None:
        """A replica that is resident on this GPU and idle, with a token on each other GPU that it has."""
        for replica in self.at.get(card, ()):
            if replica.invocation is None and all(other.open > 0 for other in replica.also):
                return replica
        return None

    def idle_anywhere(self, card: Card | None = None) -> Replica | None:
        """A replica that is idle, and can be on this GPU, away rather than resident."""
        for replica in (*self.away, *self.replicas):
            able = card is None or card.has_place(self.function.gpus, replica.memory, replica.promise)
            if replica.invocation is None and able:
                return replica
        return None


@dataclass(eq=False, slots=True)
class Running:
    """An invocation from its Run to its end."""

    invocation: Invocation
    flow: Flow
    card: Card
    replica: Replica
    start: Start
    decided: float
    cost: float  # seconds before its execution, as expected
    also: tuple[Card, ...] = ()
    began: float | None = None
