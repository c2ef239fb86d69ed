"""MQFQ-Sticky: fair queueing with room for locality (policies.md §5.1)."""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from .estimates import Mean
from .flows import FlowPolicy
from .interface import Invocation
from .ranking import Ranking
from .state import Card, Flow, Replica, Running

OVERRUN = 10.0
TOKENS = 2
ALPHA = 2.0
UNKNOWN_TTL = 2.0  # seconds, of a function that was not called twice yet
LOOKED_AT = 64  # idle replicas, from the one used longest ago, when one has to end
NEWEST = 0.6  # weight of the newest sample of a GPU's utilisation
LEAVES = ("needed", "paper")
LIVES = ("gaps", "runs")
ALONE = 0.5  # by how much the estimate of a GPU's utilisation grows when its first invocation begins


class State(enum.Enum):
    """The state of a function's queue: active, throttled or inactive."""

    INACTIVE = "inactive"  # empty for so long that its memory may go
    ACTIVE = "active"  # may run, or is empty and expected to be called again
    THROTTLED = "throttled"  # too far ahead of the others


@dataclass(slots=True)
class _Tags:
    time: float = 0.0  # start tag of the head, or finish tag of the last when nothing waits
    costs: dict[int, float] = field(default_factory=dict)  # of each that waits: finish less start tag
    gaps: Mean = field(default_factory=Mean)  # seconds between calls
    work: float = 0.0  # the sum of these costs
    called: float = -math.inf
    expires: float = math.inf  # when the empty queue becomes inactive
    state: State = State.INACTIVE

    def take(self, invocation: int) -> float:
        """The cost of one, which waits no longer."""
        cost = self.costs.pop(invocation)
        self.work = self.work - cost if self.costs else 0.0
        return cost


class Mqfq(FlowPolicy):
    """Functions advance in virtual time by what they run, over their weight; the least far is the clock.

    Who is more than `overrun` seconds ahead of the clock is throttled. Of the others the one with the fewest
    in flight runs, then the one with the longest queue: so one function runs several times in a row while
    its memory is there. With `tokens` 1 only the length of the queue counts. `alpha`: an empty queue stays
    active for so many of its own mean gaps between calls (`lives` "gaps"; "runs": of its mean execution
    time, as MQFQ-Sticky's source has it), or for `ttl` seconds if that is given. `strict`: who is just
    `overrun` ahead is throttled too. `select`: only so many functions are compared, those whose last one
    finishes last in virtual time, and never fewer than there are tokens; up to 1 it is a part of them; 0:
    all. Memory of queues that are not active leaves first, and at once where more is wanted than the GPU
    holds; it comes back when they are active again. `limit`: above this utilisation, 0 to 1, a GPU that runs
    something gets no more.
    """

    def __init__(
        self,
        *,
        overrun: float = OVERRUN,
        tokens: int = TOKENS,
        alpha: float = ALPHA,
        ttl: float | None = None,
        lives: str = "gaps",
        strict: bool = False,
        select: float = 0.0,
        limit: float | None = None,
        leaves: str = "needed",
        pool: int = sys.maxsize,
        evict: str = "send",
    ) -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        if overrun < 0 or alpha < 0 or leaves not in LEAVES:
            raise ValueError("overrun and alpha are not negative, and leaves is needed or paper")
        if lives not in LIVES or select < 0 or (ttl is not None and ttl < 0):
            raise ValueError("lives is gaps or runs, and neither select nor ttl is negative")
        if strict and not overrun:
            raise ValueError("strict with an overrun of 0 lets nobody run")
        if limit is not None and not 0 <= limit <= 1:
            raise ValueError("limit is a part of a GPU, from 0 to 1")
        self._paper = leaves == "paper"
        self._overrun = overrun
        self._alpha = alpha
        self._ttl = ttl
        self._by_runs = lives == "runs"
        self._strict = strict
        self._select = select
        self._farthest: Ranking[Flow] = Ranking()  # of those in the line, by the finish tag of their last
        self._limit = limit
        self._clock = 0.0  # Global_VT
        self._tags: dict[Flow, _Tags] = {}
        self._competing: Ranking[Flow] = Ranking()  # who has something waiting, by virtual time
        self._throttled: Ranking[Flow] = Ranking()  # those of them that are throttled
        self._expiring: Ranking[Flow] = Ranking()  # empty queues, by the time when they become inactive
        self._utilisation: dict[Card, float] = {}

    # -- for who looks on

    def virtual_time(self, function: str) -> float:
        """Return the function's virtual time, which grows with the service that it had."""
        return self._tags[self._flows[function]].time

    @property
    def clock(self) -> float:
        """The global virtual time: that of the function that is the least far (see `_stand`)."""
        return self._clock

    def state(self, function: str) -> State:
        """Return the state of a function's queue."""
        return self._tags[self._flows[function]].state

    # -- virtual time

    def _rank(self, flow: Flow) -> tuple[float | str, ...]:
        in_flight = flow.in_flight if self._tokens != 1 else 0
        time = self._tags[flow].time
        return (in_flight, -len(flow.waiting), time, self._turn[flow.head.id], flow.function.name)

    def _stand(self, flow: Flow) -> None:
        """Enter where the function stands; the clock goes on if it was the least far."""
        tags = self._tags[flow]
        if flow.waiting and not flow.limited:
            if flow not in self._competing:  # what it could not run earns it nothing
                tags.time = max(tags.time, self._clock)
            self._competing.set(flow, tags.time)
        else:
            self._competing.discard(flow)
        if first := self._competing.first():
            self._clock = max(self._clock, self._tags[first].time)
        self._admit(flow)
        while (ahead := self._throttled.first()) and self._may_run(self._tags[ahead]):
            self._admit(ahead)

    def _may_run(self, tags: _Tags) -> bool:
        lead = tags.time - self._clock
        return lead < self._overrun if self._strict else lead <= self._overrun

    def _admit(self, flow: Flow) -> None:
        """Enter the function into the line, or throttle it if its virtual time is too far ahead."""
        tags = self._tags[flow]
        if flow not in self._competing:
            self._line.discard(flow)
            self._farthest.discard(flow)
            self._throttled.discard(flow)
            if tags.state is State.THROTTLED:
                tags.state = State.ACTIVE
        elif self._may_run(tags):
            self._throttled.discard(flow)
            self._line.set(flow, *self._rank(flow))
            if self._select:
                self._farthest.set(flow, -(tags.time + tags.work))
            if tags.state is not State.ACTIVE:
                tags.state = State.ACTIVE
                self._expect(flow)
        else:
            self._line.discard(flow)
            self._farthest.discard(flow)
            self._throttled.set(flow, tags.time)
            if tags.state is not State.THROTTLED:
                tags.state = State.THROTTLED
                self._dismiss(flow)

    def _changed(self, flow: Flow) -> None:
        self._tags.setdefault(flow, _Tags())
        super()._changed(flow)

    def _forgotten(self, flow: Flow) -> None:
        for ranking in (self._competing, self._throttled, self._expiring, self._farthest):
            ranking.discard(flow)
        super()._forgotten(flow)
        del self._tags[flow]

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        tags = self._tags[flow]
        cost = flow.run.or_else(self._overrun / 10) / flow.function.weight
        tags.costs[invocation.id] = cost
        tags.work += cost
        if tags.called > -math.inf:
            tags.gaps.add(self._now - tags.called)
        tags.called = self._now
        self._expiring.discard(flow)
        self._stand(flow)

    def _withdrawn(self, flow: Flow, invocation: Invocation) -> None:
        self._tags[flow].take(invocation.id)
        super()._withdrawn(flow, invocation)
        self._rest(flow)

    def _started(self, running: Running) -> None:
        tags = self._tags[running.flow]
        tags.time += tags.take(running.invocation.id)
        card = running.card
        if card in self._utilisation:
            more = self._utilisation[card] / (card.running - 1) if card.running > 1 else ALONE
            self._utilisation[card] += more
        super()._started(running)

    def _ended(self, running: Running, seconds: float | None) -> None:
        if running.flow in self._tags:
            super()._ended(running, seconds)
            self._rest(running.flow)

    # -- whose turn it is

    def _first(self) -> Flow | None:
        if not self._select:
            return super()._first()
        tokens = self._tokens * len(self._cards)
        most = self._select if self._select > 1 else math.ceil(self._select * len(self._line))
        few = self._farthest.least(max(int(most), min(tokens, len(self._line))))
        return min(few, key=self._line.rank, default=None)

    # -- tokens

    def _may_use(self, card: Card) -> bool:
        if self._limit is None or card.running == 0:
            return True
        return self._utilisation.get(card, 0.0) <= self._limit

    def _joined(self, card: Card) -> None:
        if self._limit is not None:
            self._utilisation[card] = 0.0
        super()._joined(card)

    def _parted(self, card: Card) -> None:
        self._utilisation.pop(card, None)
        super()._parted(card)

    def _ticked(self, utilisation: Mapping[int, float]) -> None:
        for card, estimate in self._utilisation.items():
            if (sample := utilisation.get(card.index)) is not None:
                self._utilisation[card] = NEWEST * sample + (1 - NEWEST) * estimate
        while (flow := self._expiring.first()) and self._tags[flow].expires <= self._now:
            self._expiring.discard(flow)
            self._tags[flow].state = State.INACTIVE
            self._dismiss(flow)

    # -- memory

    def time_to_live(self, function: str) -> float:
        """Seconds for which the function's queue stays active when it is empty."""
        return self._life(self._flows[function])

    def _life(self, flow: Flow) -> float:
        if self._ttl is not None:
            return self._ttl
        gap = flow.run.value if self._by_runs else self._tags[flow].gaps.value
        return UNKNOWN_TTL if gap is None else self._alpha * gap

    def _rest(self, flow: Flow) -> None:
        """If it is over for now, its memory stays for a while."""
        if not flow.waiting and not flow.in_flight and self._tags[flow].state is State.ACTIVE:
            self._tags[flow].expires = self._now + self._life(flow)
            self._expiring.set(flow, self._tags[flow].expires)

    def _dismiss(self, flow: Flow) -> None:
        """Send the function's idle replicas away from GPUs that were given more than they hold."""
        if self._ends:
            return  # a replica that leaves would be lost: only for room that is needed
        for card in list(flow.at):
            while card.used + card.absent > card.memory and (replica := flow.idle_on(card)):
                self._send(replica)

    def _expect(self, flow: Flow) -> None:
        """A replica of it comes back, if there is none and its memory, or that of queues not active, is
        free.
        """
        if flow.at:
            return
        for replica in flow.away:
            card = replica.card
            if not card or card.gone or replica.also:  # of several GPUs there is room on all of them or none
                continue
            spare = [one for one in card.idle if not self._is_active(one)]
            if card.memory - card.used + sum(one.memory for one in spare) < replica.memory:
                continue
            for one in spare:
                if card.memory - card.used >= replica.memory:
                    break
                self._send(one)
            self._bring(replica, card)
            return

    def _is_active(self, replica: Replica) -> bool:
        tags = self._tags.get(replica.flow)
        return tags is not None and tags.state is State.ACTIVE

    def _leaves(self, replicas: Iterable[Replica]) -> Replica:
        """Choose which of these replicas leaves: the least needed, of equals the one used longest ago."""
        oldest = list(islice(replicas, LOOKED_AT))
        return min(oldest, key=self._need)

    def _need(self, replica: Replica) -> int:
        """How much its function needs it: the least when its queue is inactive, the most when it may run."""
        tags = self._tags.get(replica.flow)
        if tags is None or tags.state is State.INACTIVE:
            return 0
        if self._paper:
            return int(tags.state is State.ACTIVE)
        if not replica.flow.waiting:
            return 1
        return 2 if tags.state is State.THROTTLED else 3

    def _victim(self, card: Card) -> Replica:
        return self._leaves(card.idle)

    def _surplus(self) -> Replica:
        return self._leaves(self._idle)
