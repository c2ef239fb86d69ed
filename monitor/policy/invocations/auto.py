"""Ours: locality, fairness and deadlines at once, all of them weighed in seconds."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from .estimates import Lately, Mean
from .fairness import VirtualTime
from .flows import FlowPolicy
from .homes import pack
from .interface import Invocation
from .ranking import Ranking
from .room import Room
from .state import Card, Flow, Replica, Running

OVERRUN = 1.0  # seconds of each token that a function may be ahead
PATIENCE = 0.3  # seconds; the longer, the more short and resident functions are preferred to old invocations
LEAD = 0.5  # times the patience, that count against a function for each of its runs that it is ahead
LATE = 0.15  # times the patience, that count against it for each of its runs of the last moments
MOMENT = 0.3  # seconds after which a run counts 1/e of that
AT_HOME = 4.0  # times its score counts who is resident on a GPU of its own
SPARE = 0.5  # of a GPU's memory: so much may be full, and who is sooner done elsewhere is loaded there still
LONG = 20.0  # times what it costs; who waits longer is loaded once more, whoever else is there
SHORTLIST = 3  # functions from each of the rankings that are compared exactly
LOOKED_AT = 64  # idle replicas, from the one used longest ago, when one has to leave
URGENT = 40.0  # times the patience: what an invocation is ahead whose answer would be late otherwise
PASSED_OVER = 3.0  # seconds that one waits which fits beside nothing; then a GPU is kept for it
UNKNOWN = 0.1  # seconds, of a start or a run of which nothing is known
STARTS = 0.7  # 0: who leaves is who is called least; 1: who costs the fewest seconds
HORIZON = 60.0  # seconds of expected calls for which a replica is worth keeping


class Choice:
    """Functions of one kind that could be next: their highest score, and who comes first by its claim."""

    def __init__(self) -> None:
        self.best: Flow | None = None
        self.most = -math.inf
        self._rank = (-math.inf, 0)

    def add(self, flow: Flow, score: float, claim: float, turn: int) -> None:
        """`claim`: the part of the score that counts. Of equals the one of the earlier turn comes first."""
        self.most = max(self.most, score)
        if (score * claim, -turn) > self._rank:
            self.best, self._rank = flow, (score * claim, -turn)


@dataclass(slots=True)
class Past:
    """What a function had, and when it was called."""

    had: Lately = field(default_factory=lambda: Lately(MOMENT))  # seconds of service
    gap: Mean = field(default_factory=Mean)  # seconds between calls
    called: float = -math.inf  # the last time
    lost: float = 0.0  # seconds that it waited and could have begun on a copy, since its last load


class Auto(FlowPolicy):
    """The GPU that is free runs whose invocation gains most for what it costs there.

    The cost is the time of the run and its part of the start: of a cold start or a return, as measured,
    divided among all that wait of the function; nothing where it is resident. The gain is how long its
    oldest waits, more `patience`, and much more if its answer would come too late otherwise. A function that
    had `overrun` seconds a token more than the least, waits for the others; of those that are resident, who
    had less of late comes first, and first of all who is on a GPU of its own. Nothing is loaded that is
    sooner done where the function is resident already, except where nothing else is to do and half of the
    memory is free, once waiting has cost as much. For who waits `PASSED_OVER` seconds and fits on no GPU
    beside what runs, one is kept until it does. Who leaves a GPU is whose return will cost least, for its
    size.
    """

    def __init__(
        self,
        *,
        overrun: float = OVERRUN,
        patience: float = PATIENCE,
        tokens: int = 1,
        pool: int = sys.maxsize,
        evict: str = "send",
    ) -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        if overrun < 0 or patience < 0:
            raise ValueError("overrun and patience are not negative")
        self._overrun = overrun
        self._patience = patience
        self._fair: VirtualTime[Flow] = VirtualTime()
        self._costs: Ranking[Flow] = Ranking()  # by what a run costs that has to load first
        self._dates: Ranking[Flow] = Ranking()  # by when the answer is wanted
        self._pasts: dict[Flow, Past] = {}
        self._works: dict[Card, dict[int, Running]] = {}
        self._charged: dict[int, float] = {}
        self._room = Room()
        self._homes: dict[Flow, list[Card]] | None = None  # dealt when they are asked for
        self._declined: dict[int, float] = {}  # since when invocations wait that could have begun on a copy

    # -- costs

    def _run_cost(self, flow: Flow) -> float:
        return flow.run.or_else(UNKNOWN)

    def _start(self, flow: Flow) -> float:
        return flow.cost or UNKNOWN

    def _score(self, flow: Flow, head: Invocation, start: float) -> float:
        """The gain over the root of the cost: between the shortest first, whose waits lie far apart, and the
        oldest first, who waits for no other's load.
        """
        run = flow.run.or_else(UNKNOWN)
        gain = self._patience + self._now - head.arrival
        cost = run + start / len(flow.waiting)
        if head.wanted < math.inf:
            slack = head.wanted - self._now - start - run
            if 0 <= slack < 2 * (start + run):
                gain += URGENT * self._patience
        return gain / math.sqrt(max(cost, 1e-6))

    def _claim(self, flow: Flow, head: Invocation, card: Card) -> float:
        """How much of its score counts among its kind: less if its function had more than the others had."""
        gain = self._patience + self._now - head.arrival
        behind = LEAD * max(0.0, self._fair.lead(flow)) + LATE * self._pasts[flow].had.at(self._now)
        lost = self._patience * behind / max(self._run_cost(flow), 1e-6)
        claim = gain / (gain + lost) if gain + lost > 0 else 1.0  # without patience, of who came just now
        return claim * AT_HOME if self._at_home(flow, card) else claim

    def _left(self, card: Card) -> float:
        """Seconds until a token of this GPU is free."""
        least = math.inf
        for running in self._works[card].values():
            since = running.began
            need = self._run_cost(running.flow)
            if since is None:
                since, need = running.decided, need + running.cost
            least = min(least, max(0.0, need - (self._now - since)))
        return 0.0 if card.open > 0 else least

    # -- decisions

    def _choose(self) -> bool:
        if not self._line:
            return False
        free = list(self._free)
        if len(free) > 1:
            free.sort(key=lambda card: (card.others, -card.open, card.assigned, card.index))
        for card in free:
            flow = self._best(card)
            if flow is None:
                continue
            self._run(flow, flow.head, self._better(flow, card))
            return True
        return False

    def _best(self, card: Card) -> Flow | None:
        """The function to run next on this GPU; of equals the one that waits longest."""
        bound = self._overrun * max(1, self._tokens * len(self._cards))
        self._keep_room(card, bound)
        if self._total >= self._pool and not self._idle:
            return None
        candidates = self._candidates(card)
        ahead = self._fair.ahead(candidates, bound)  # of the others, whom they wait for
        near = candidates.difference(ahead) if ahead else candidates
        return self._most_gained(near, card) or self._most_gained(ahead, card)

    def _most_gained(self, flows: Iterable[Flow], card: Card) -> Flow | None:
        """Whether to load one is decided by the highest scores. Who is resident elsewhere, and does not wait
        long, is loaded once more only where nothing else is to do.
        """
        kept = self._room.keeps
        waits: dict[Card, float] = {}
        warm, cold, more = Choice(), Choice(), Choice()
        sooner: list[tuple[Flow, float]] = []
        for flow in flows:
            if kept and self._room.bars(flow, card):
                continue
            start = 0.0
            if not flow.at or flow.idle_on(card) is None:
                if not card.takes(flow):
                    continue
                start = self._start(flow)
            head = flow.head
            choice = cold if start else warm
            if start and flow.at:
                if self._sooner_elsewhere(flow, card, start, waits):
                    sooner.append((flow, start))
                    continue
                if self._now - head.arrival < LONG * (start + self._run_cost(flow)):
                    choice = more
            score = self._score(flow, head, start)
            claim = 1.0 if start else self._claim(flow, head, card)
            choice.add(flow, score, claim, self._turn[head.id])
        first = warm if warm.most >= cold.most else cold
        return first.best or more.best or self._copied(sooner, card)

    def _keep_room(self, card: Card, bound: float) -> None:
        """See to it that neither the oldest nor who had least is passed over for ever, for want of room."""
        for flow in (self._line.first(), self._fair.first()):
            if flow is None or card.takes(flow) or self._fair.lead(flow) > bound:
                continue
            if self._now - flow.head.arrival >= PASSED_OVER:
                self._room.keep(flow, self._cards.values())

    def _candidates(self, card: Card) -> set[Flow]:
        """Whoever is resident there, and the first ones of each ranking; all of them are in the line."""
        found = {replica.flow for replica in card.idle if replica.flow in self._line}
        found.update(self._costs.least(SHORTLIST), self._line.least(SHORTLIST), self._fair.least(SHORTLIST))
        if self._dates:
            found.update(self._dates.least(SHORTLIST))
        return found

    def _sooner_elsewhere(self, flow: Flow, card: Card, start: float, waits: dict[Card, float]) -> bool:
        """Whether what waits of it is done where it is resident, before it could begin here. `waits`: for a
        token of each GPU, as far as that is known.
        """
        copies = len(flow.at) - (card in flow.at)
        if not copies:
            return False
        left = start - (len(flow.waiting) - 1) * self._run_cost(flow) / copies
        if left <= 0:
            return False
        sooner = False
        for other in flow.at:
            if other is card:
                continue
            wait = waits.get(other)
            if wait is None:
                wait = waits[other] = self._left(other)
            if wait == 0.0:  # there is an idle one, see `_better`
                return False
            sooner = sooner or wait < left
        return sooner

    def _copied(self, sooner: Iterable[tuple[Flow, float]], card: Card) -> Flow | None:
        """Which of these is loaded here, where nothing else is to do, although it is sooner done where it is
        resident: the oldest for which waiting has cost as much as a load, in memory that nobody wants.
        """
        worth = []
        for flow, start in sooner:
            self._declined.setdefault(flow.head.id, self._now)
            fits = card.used + flow.function.memory <= SPARE * card.memory and self._total < self._pool
            if fits and self._pasts[flow].lost >= start:
                worth.append(flow)
        return min(worth, key=lambda flow: self._turn[flow.head.id], default=None)

    def _at_home(self, flow: Flow, card: Card) -> bool:
        """Whether this GPU is one of the function's own; where there is one GPU alone, it is nobody's."""
        if len(self._cards) == 1:
            return False
        if self._homes is None:
            self._homes = pack(self._flows.values(), self._cards.values())
        return card in self._homes[flow]

    def _better(self, flow: Flow, card: Card) -> Card:
        """The GPU to run it on, this one or another one that is free."""
        if flow.idle_on(card):
            return card
        warm = [
            other
            for other in flow.at
            if other.open > 0 and flow.idle_on(other) and not self._room.bars(flow, other)
        ]
        if warm:
            return max(warm, key=lambda other: (-other.others, other.open, -other.index))
        if len(self._free) == 1:
            return card
        able = [
            other
            for other in islice(self._free, SHORTLIST)
            if other.holds(flow) and not self._room.bars(flow, other)
        ]
        if card not in able:
            able.append(card)
        memory = flow.function.memory
        return min(able, key=lambda other: (other.others, self._loss(other, memory), other.index))

    # -- who leaves

    def _value(self, replica: Replica) -> float:
        """What its return will cost within the horizon, for each byte, by calls and seconds (see STARTS)."""
        flow = replica.flow
        past = self._pasts.get(flow)
        calls = float(len(flow.waiting))
        if past:
            calls += HORIZON / max(past.gap.or_else(HORIZON), 1e-3, self._now - past.called)
        copies = len(flow.replicas) - len(flow.away) or 1
        seconds = self._start(flow) + self._run_cost(flow)
        return calls * math.pow(seconds, STARTS) / (max(1, replica.memory) * copies)

    def _loss(self, card: Card, memory: int) -> float:
        """What goes with those that would make room here."""
        short = memory - (card.memory - card.used)
        if short <= 0:
            return 0.0
        loss = 0.0
        for replica in sorted(islice(card.idle, LOOKED_AT), key=self._value):
            loss += self._value(replica) * replica.memory
            short -= replica.memory
            if short <= 0:
                break
        return loss

    def _least(self, replicas: Iterable[Replica]) -> Replica:
        few = list(islice(replicas, LOOKED_AT))
        return min(few, key=self._value) if len(few) > 1 else few[0]

    def _victim(self, card: Card) -> Replica:
        return self._least(card.idle)

    def _surplus(self) -> Replica:
        return self._least(self._idle)

    # -- entries

    def _stand(self, flow: Flow) -> None:
        if not flow.waiting or flow.limited:
            for ranking in (self._line, self._costs, self._dates):
                ranking.discard(flow)
            self._fair.leave(flow)
            return
        head = flow.head
        self._line.set(flow, self._turn[head.id])
        self._fair.compete(flow)
        self._costs.set(flow, self._run_cost(flow) + self._start(flow) / len(flow.waiting))
        if head.wanted < math.inf:
            self._dates.set(flow, head.wanted)
        else:
            self._dates.discard(flow)

    def _changed(self, flow: Flow) -> None:
        self._pasts.setdefault(flow, Past())
        self._homes = None
        super()._changed(flow)

    def _forgotten(self, flow: Flow) -> None:
        super()._forgotten(flow)
        self._costs.discard(flow)
        self._dates.discard(flow)
        self._fair.forget(flow)
        self._homes = None
        self._pasts.pop(flow, None)

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        past = self._pasts[flow]
        if past.called > -math.inf:
            past.gap.add(self._now - past.called)
        past.called = self._now
        super()._arrived(flow, invocation)

    def _withdrawn(self, flow: Flow, invocation: Invocation) -> None:
        self._declined.pop(invocation.id, None)
        super()._withdrawn(flow, invocation)

    def _joined(self, card: Card) -> None:
        self._works[card] = {}
        self._homes = None
        super()._joined(card)

    def _parted(self, card: Card) -> None:
        super()._parted(card)
        self._homes = None
        del self._works[card]

    def _started(self, running: Running) -> None:
        flow = running.flow
        self._room.release(flow)
        self._works[running.card][running.invocation.id] = running
        charge = self._charged[running.invocation.id] = self._run_cost(flow) + running.cost
        self._fair.charge(flow, charge / flow.function.weight)
        past = self._pasts[flow]
        past.had.add(charge / flow.function.weight, self._now)
        since = self._declined.pop(running.invocation.id, self._now)
        past.lost = 0.0 if running.cost else past.lost + self._now - since
        super()._started(running)

    def _ended(self, running: Running, seconds: float | None) -> None:
        if not running.card.gone:
            del self._works[running.card][running.invocation.id]
        charged = self._charged.pop(running.invocation.id)
        flow = running.flow
        if flow.removed:
            return
        if seconds is not None and running.began is not None:
            took = self._now - running.decided
            self._fair.charge(flow, (took - charged) / flow.function.weight)
        super()._ended(running, seconds)
