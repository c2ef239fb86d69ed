"""Policies that choose a function first, and then a GPU for it."""

from __future__ import annotations

import sys

from .books import Books
from .interface import Invocation
from .ranking import Ranking
from .state import Card, Flow, Running


class FlowPolicy(Books):
    """Functions that have something waiting stand in a ranking; the first one's oldest invocation is run.

    It goes where a replica is resident and idle, else where one was, else to the GPU with the most free
    tokens. If no GPU can hold the first one now, the others wait for it. Of those that reached their limit of
    replicas nothing waits in the ranking.
    """

    def __init__(self, *, tokens: int = 1, pool: int = sys.maxsize, evict: str = "send") -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        self._line: Ranking[Flow] = Ranking()
        self._free: Ranking[Card] = Ranking()  # GPUs with free tokens, the most first

    def _rank(self, flow: Flow) -> tuple[float | str, ...]:
        """The function's place in the line; the least comes first. Only asked while an invocation of it
        waits.
        """
        raise NotImplementedError

    def _stand(self, flow: Flow) -> None:
        """Rank the function anew, or take it out of the line if nothing of it can run."""
        if flow.waiting and not flow.limited:
            self._line.set(flow, *self._rank(flow))
        else:
            self._line.discard(flow)

    def _first(self) -> Flow | None:
        """The function whose turn it is."""
        return self._line.first()

    def _choose(self) -> bool:
        flow = self._first()
        if flow is None or not self._startable(flow):
            return False
        card = self._card_for(flow)
        if card is None:
            return False
        self._run(flow, flow.head, card)
        return True

    def _may_use(self, card: Card) -> bool:
        """Whether one more invocation may begin on this GPU, which has a token."""
        return True

    def _card_for(self, flow: Flow) -> Card | None:
        warm = [card for card in flow.at if card.open > 0 and flow.idle_on(card) and self._may_use(card)]
        if warm:
            return max(warm, key=lambda card: (-card.others, card.open, -card.index))
        for replica in flow.away:
            card = replica.card
            if card and not card.gone and card.open > 0 and card.holds(flow) and self._may_use(card):
                return card
        return self._free.best(lambda card: card.holds(flow) and self._may_use(card))

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        self._stand(flow)

    def _withdrawn(self, flow: Flow, invocation: Invocation) -> None:
        self._stand(flow)

    def _changed(self, flow: Flow) -> None:
        self._stand(flow)

    def _forgotten(self, flow: Flow) -> None:
        self._line.discard(flow)

    def _started(self, running: Running) -> None:
        self._stand(running.flow)

    def _ended(self, running: Running, seconds: float | None) -> None:
        self._stand(running.flow)

    def _joined(self, card: Card) -> None:
        self._moved(card)

    def _parted(self, card: Card) -> None:
        self._free.discard(card)

    def _moved(self, card: Card) -> None:
        if card.open > 0 and not card.gone:
            self._free.set(card, card.others, -card.open, card.index)
        else:
            self._free.discard(card)
