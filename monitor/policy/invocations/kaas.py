"""KaaS's CFS-Affinity (policies.md §2.2), and hot and cold lists for who leaves a GPU (§2.4)."""

from __future__ import annotations

import sys
from collections import OrderedDict
from itertools import count

from .books import Books
from .homes import pack
from .interface import Invocation
from .ranking import Ranking
from .room import Room
from .state import Card, Flow, Replica, Running

PENALTY = 10.0  # of a GPU that is not the function's own, times its weight
PASSED_OVER = 10  # turns of others before one that did not fit; then a GPU is kept for it
HOT = 1
UNKNOWN = 1e-3  # seconds of GPU time of which nothing is known
WEIGHTS = ("measured", "static")
RETURNS = ("max", "base")


class CfsAffinity(Books):
    """A GPU that is free runs the function that has had least, its own functions before others.

    Each function's virtual time grows by its expected GPU time at each turn. On a GPU that is not the
    function's own it counts as `penalty` times that later; but no GPU is idle while anything waits that fits.
    Who was before others `PASSED_OVER` times and did not fit beside what runs, has a GPU kept until it does.
    Functions that begin to wait start no earlier than the least of those that waited at the last turn
    (`returns` "max"); with "base", as KaaS's source has it, they start there, whatever they had before.
    `weights`: expected GPU time is "measured", or stays as declared ("static"). `hot`: replicas that were
    used more often leave after all others.
    """

    def __init__(
        self,
        *,
        penalty: float = PENALTY,
        weights: str = "measured",
        returns: str = "max",
        hot: int = HOT,
        tokens: int = 1,
        pool: int = sys.maxsize,
        evict: str = "send",
    ) -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        if weights not in WEIGHTS or returns not in RETURNS or penalty < 0 or hot < 0:
            raise ValueError(
                "weights are measured or static, returns is max or base, penalty and hot are not negative"
            )
        self._penalty = penalty
        self._static = weights == "static"
        self._forgets = returns == "base"
        self._hot = hot
        self._base = 0.0
        self._time: dict[Flow, float] = {}
        self._order: dict[Flow, int] = {}  # who had a turn last is the greatest
        self._orders = count()
        self._freed: OrderedDict[Card, None] = OrderedDict()  # in the order in which they became free
        self._least: Ranking[Flow] = Ranking()  # by virtual time
        self._anywhere: Ranking[Flow] = Ranking()  # by the same, with the penalty
        self._own: dict[Card, Ranking[Flow]] = {}
        self._homes: dict[Flow, list[Card]] = {}
        self._packed = True
        self._passed: dict[Flow, int] = {}  # turns of others that came later and fit
        self._room = Room()

    def virtual_time(self, function: str) -> float:
        """Return the function's virtual time: expected seconds of GPU time, summed over its turns."""
        return self._time[self._flows[function]]

    def homes(self, function: str) -> list[int]:
        """The GPUs that the function prefers."""
        self._pack()
        return [card.index for card in self._homes[self._flows[function]]]

    # -- which GPUs are whose

    def _pack(self) -> None:
        if self._packed:
            return
        self._packed = True
        self._own = {card: Ranking() for card in self._cards.values()}
        self._homes = pack(self._time, self._cards.values())
        for flow in self._homes:
            self._stand(flow)

    # -- entries

    def _expected(self, flow: Flow) -> float:
        declared = flow.function.run
        if self._static and declared is not None:
            return declared
        return flow.run.or_else(UNKNOWN)

    def _stand(self, flow: Flow) -> None:
        own = [self._own[card] for card in self._homes.get(flow, ()) if card in self._own]
        if flow.waiting and not flow.limited:
            time, order = self._time[flow], self._order[flow]
            self._least.set(flow, time)
            self._anywhere.set(
                flow, time + self._penalty * self._expected(flow) / flow.function.weight, order
            )
            for ranking in own:
                ranking.set(flow, time, order)
        else:
            for ranking in (self._least, self._anywhere, *own):
                ranking.discard(flow)

    def _changed(self, flow: Flow) -> None:
        self._time.setdefault(flow, self._base)
        self._order.setdefault(flow, next(self._orders))
        self._packed = False
        self._stand(flow)

    def _forgotten(self, flow: Flow) -> None:
        self._stand(flow)
        del self._time[flow], self._order[flow]
        self._homes.pop(flow, None)
        self._passed.pop(flow, None)
        self._packed = False

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        if len(flow.waiting) == 1:
            self._time[flow] = self._base if self._forgets else max(self._time[flow], self._base)
        self._stand(flow)

    def _withdrawn(self, flow: Flow, invocation: Invocation) -> None:
        self._stand(flow)

    def _ended(self, running: Running, seconds: float | None) -> None:
        if running.flow in self._time:
            self._stand(running.flow)

    def _joined(self, card: Card) -> None:
        self._packed = False
        self._moved(card)

    def _parted(self, card: Card) -> None:
        self._freed.pop(card, None)
        self._packed = False

    def _moved(self, card: Card) -> None:
        if card.open <= 0 or card.gone:
            self._freed.pop(card, None)
        else:
            self._freed.setdefault(card)

    # -- decisions

    def _choose(self) -> bool:
        self._pack()
        for card in self._freed:
            flow = self._pop(card)
            if flow is None:
                continue
            least = self._least.first()
            assert least is not None
            self._base = self._time[least]
            self._time[flow] += self._expected(flow) / flow.function.weight
            self._order[flow] = next(self._orders)
            self._passed.pop(flow, None)
            self._room.release(flow)
            self._run(flow, flow.head, card)
            self._stand(flow)
            return True
        return False

    def _pop(self, card: Card) -> Flow | None:
        crowded: set[Flow] = set()  # who would be before, but for what runs here

        def able(flow: Flow) -> bool:
            if not self._startable(flow) or self._room.bars(flow, card):
                return False
            if card.holds(flow):
                return True
            if card.memory >= flow.function.memory:
                crowded.add(flow)
            return False

        own = self._own[card].best(able)
        other = self._anywhere.best(able)
        chosen = own or other
        if own and other and self._own[card].rank(own) > self._anywhere.rank(other):
            chosen = other
        if chosen and crowded:
            self._pass_over(min(crowded, key=lambda flow: (self._time[flow], self._order[flow])))
            if self._room.bars(chosen, card):
                return None
        return chosen

    def _pass_over(self, flow: Flow) -> None:
        """Another function has this turn; note it, and keep a GPU if it was so too often."""
        self._passed[flow] = self._passed.get(flow, 0) + 1
        if self._passed[flow] > PASSED_OVER:
            self._room.keep(flow, self._cards.values())

    def _victim(self, card: Card) -> Replica:
        return next((one for one in card.idle if one.uses <= self._hot), super()._victim(card))
