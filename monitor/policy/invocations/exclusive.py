"""KaaS's Exclusive: a GPU belongs to one function at a time (policies.md §2.3)."""

from __future__ import annotations

import sys
from itertools import count

from .books import Books
from .interface import Invocation
from .ranking import Ranking
from .state import Card, Flow, Running

RULES = ("source", "paper")


class Exclusive(Books):
    """Each function has a pool of GPUs on which its worker is alone.

    What finds an idle worker of its own runs there. Else an unused GPU becomes its function's; else its
    function takes a GPU from the largest pool, among equals the one robbed longest ago, an idle GPU rather
    than one that is busy and must finish first. `rule` "source": only if the function has none, or the
    victim keeps at least as many; "paper": if it has fewer, by which two functions may rob each other for
    ever. Its workers never leave their GPU but by their end.
    """

    def __init__(self, *, rule: str = "source", tokens: int = 1, pool: int = sys.maxsize) -> None:
        super().__init__(tokens=1, pool=pool, evict="end")
        if rule not in RULES or tokens != 1:
            raise ValueError("rule is source or paper, and a GPU runs one invocation at a time")
        self._paper = rule == "paper"
        self._owner: dict[Card, Flow | None] = {}
        self._cards_of: dict[Flow, dict[Card, None]] = {}
        self._unused: dict[Card, None] = {}
        self._size: dict[Flow, int] = {}
        self._robbed: dict[Flow, int] = {}  # when; in the order of registration before the first time
        self._robberies = count()
        self._promised: dict[Card, tuple[Flow, Invocation]] = {}  # who takes it over when it is idle
        self._due: dict[Card, None] = {}  # of those, who is idle
        self._waiters: dict[int, Ranking[Flow]] = {}  # by size of their pool, in order of arrival
        self._stood: dict[Flow, int] = {}  # in which of these each one waits
        self._ready: Ranking[Flow] = Ranking()  # who has an idle worker, in order of arrival
        self._pools: Ranking[Flow] = Ranking()  # who can be robbed, the largest pool first

    def pool(self, function: str) -> int:
        """How many GPUs are the function's, those that are promised to it too."""
        return self._size[self._flows[function]]

    # -- entries

    def _mine(self, flow: Flow) -> list[Card]:
        return [card for card in self._cards_of.get(flow, ()) if card not in self._promised]

    def _stand(self, flow: Flow) -> None:
        """Enter what the function's GPUs and what waits of it come to."""
        mine = self._mine(flow)
        if mine:
            self._pools.set(flow, -self._size[flow], self._robbed[flow])
        else:
            self._pools.discard(flow)
        if not flow.waiting or flow.in_flight + flow.parked >= flow.function.replicas:
            self._wait_no_more(flow)
            self._ready.discard(flow)
            return
        turn = self._turn[flow.head.id]
        self._wait(flow, turn)
        if mine and any(card.open > 0 for card in mine):
            self._ready.set(flow, turn)
        else:
            self._ready.discard(flow)

    def _wait(self, flow: Flow, turn: int) -> None:
        size = self._size[flow]
        if self._stood.get(flow) != size:
            self._wait_no_more(flow)
            self._stood[flow] = size
            if size not in self._waiters:
                self._waiters[size] = Ranking()
        self._waiters[size].set(flow, turn)

    def _wait_no_more(self, flow: Flow) -> None:
        size = self._stood.pop(flow, None)
        if size is None:
            return
        self._waiters[size].discard(flow)
        if not self._waiters[size]:
            del self._waiters[size]

    def _own(self, card: Card, flow: Flow | None) -> None:
        old = self._owner.get(card)
        self._owner[card] = flow
        if flow:
            self._size[flow] += 1
            self._cards_of.setdefault(flow, {})[card] = None
            self._unused.pop(card, None)
        else:
            self._unused[card] = None
        if old:
            self._size[old] -= 1
            del self._cards_of[old][card]
            self._stand(old)
        if flow:
            self._stand(flow)

    def _changed(self, flow: Flow) -> None:
        self._size.setdefault(flow, 0)
        self._robbed.setdefault(flow, next(self._robberies))
        for card in [one for one in self._cards_of.get(flow, ()) if not self._fits(flow, one)]:
            if card in self._promised:
                self._wait_again(*self._break_promise(card))
            self._own(card, None)
        self._stand(flow)

    def _forgotten(self, flow: Flow) -> None:
        for card in self._mine(flow):
            self._own(card, None)
        self._stand(flow)
        self._wait_no_more(flow)
        self._pools.discard(flow)
        self._ready.discard(flow)
        self._cards_of.pop(flow, None)
        del self._size[flow], self._robbed[flow]

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        self._stand(flow)

    def _withdrawn(self, flow: Flow, invocation: Invocation) -> None:
        for card, (_, promised) in list(self._promised.items()):
            if promised.id == invocation.id:
                self._break_promise(card)
        self._stand(flow)

    def _ended(self, running: Running, seconds: float | None) -> None:
        if running.flow in self._size:
            self._stand(running.flow)

    def _moved(self, card: Card) -> None:
        if card.open > 0 and card in self._promised:
            self._due[card] = None

    def _joined(self, card: Card) -> None:
        self._own(card, None)

    def _parted(self, card: Card) -> None:
        owner = self._owner[card]
        if card in self._promised:
            self._wait_again(*self._break_promise(card))
        self._own(card, None)
        del self._owner[card], self._unused[card]
        if owner:
            self._stand(owner)

    # -- decisions

    def _may_choose(self) -> bool:
        return True  # also what is busy is promised

    def _choose(self) -> bool:
        if self._due:
            card = next(iter(self._due))
            flow, invocation = self._break_promise(card)
            if self._startable(flow):  # or fewer may run than when it was promised
                self._begin(card, flow, invocation)
            else:
                self._wait_again(flow, invocation)
                self._stand(flow)
            return True
        found = self._first_who_may([card for card in self._unused if card.open > 0])
        if found is None:
            return False
        flow, card = found
        owner = self._owner[card]
        if owner is not flow:
            if owner:
                self._robbed[owner] = next(self._robberies)
            if card.open <= 0:
                self._promise(card, flow)
                return True
            self._own(card, flow)
        self._begin(card, flow, flow.head)
        return True

    def _begin(self, card: Card, flow: Flow, invocation: Invocation) -> None:
        """Run it on this GPU, where the workers of all others end."""
        for replica in [one for one in card.idle if one.flow is not flow]:
            self._end(replica)
        self._run(flow, invocation, card)
        self._stand(flow)

    # -- promises: a GPU that is busy, and the invocation that begins there next

    def _promise(self, card: Card, flow: Flow) -> None:
        """Reserve this busy GPU for the function's first waiting invocation."""
        invocation = flow.head
        self._promised[card] = flow, invocation
        del flow.waiting[invocation.id]
        flow.parked += 1
        self._own(card, flow)

    def _break_promise(self, card: Card) -> tuple[Flow, Invocation]:
        """Undo the reservation of this GPU. Returns whom it was for; the caller runs it or lets it wait
        again.
        """
        self._due.pop(card, None)
        flow, invocation = self._promised.pop(card)
        flow.parked -= 1
        return flow, invocation

    def _wait_again(self, flow: Flow, invocation: Invocation) -> None:
        """Put an invocation back as the first of its function; the caller calls `_stand`."""
        flow.waiting[invocation.id] = invocation
        flow.waiting.move_to_end(invocation.id, last=False)

    # -- whose turn it is

    def _first_who_may(self, unused: list[Card]) -> tuple[Flow, Card] | None:
        """Who waits longest of those that can be given a GPU, and that GPU: its own, an unused one, or one to
        take from another. Who fits on none of them is skipped.
        """
        victim = self._pools.first()
        if not unused and not victim and not self._ready:
            return None
        largest = self._size[victim] if victim else 0
        rankings = [self._ready]
        for size, ranking in self._waiters.items():
            if unused or (victim and self._may_rob(size, largest)):
                rankings.append(ranking)
        hopeless: set[tuple[int, int]] = set()  # sizes of pools and memory, for which nobody can be robbed
        cards: dict[Flow, Card] = {}

        def may(flow: Flow) -> bool:
            if flow in cards:
                return True
            if not self._startable(flow):
                return False
            found = self._idle_for(flow, unused)
            if found is None:
                case = self._size[flow], flow.function.memory
                found = self._prey_of(flow) if case not in hopeless else None
                if found is None:
                    hopeless.add(case)
                    return False
            cards[flow] = found
            return True

        first = self._longest([ranking.first() for ranking in rankings])
        if first is not None and not may(first):
            first = self._longest([ranking.best(may) for ranking in rankings])
        return (first, cards[first]) if first is not None else None

    def _longest(self, flows: list[Flow | None]) -> Flow | None:
        """The one of these whose first invocation waits longest."""
        return min((flow for flow in flows if flow), key=lambda flow: self._turn[flow.head.id], default=None)

    def _idle_for(self, flow: Flow, unused: list[Card]) -> Card | None:
        """An idle GPU of its own that is large enough, else one that nobody has."""
        for cards in (self._mine(flow) if flow in self._ready else (), unused):
            if able := [card for card in cards if card.open > 0 and self._fits(flow, card)]:
                return min(able, key=lambda one: one.index)
        return None

    def _prey_of(self, thief: Flow) -> Card | None:
        """The GPU to take from the first pool that may be robbed of one that is large enough; an idle one
        rather than a busy one.
        """
        size = self._size[thief]
        cards: list[Card] = []

        def can_be_robbed(pool: Flow) -> bool:
            if pool is not thief and self._may_rob(size, self._size[pool]):
                cards.extend([card for card in self._mine(pool) if self._fits(thief, card)])
            return bool(cards)

        self._pools.best(can_be_robbed)
        return min(cards, key=lambda one: (one.open <= 0, one.index), default=None)

    def _may_rob(self, size: int, victim: int) -> bool:
        return size < victim if self._paper else size == 0 or size + 1 < victim

    def _fits(self, flow: Flow, card: Card) -> bool:
        return card.memory >= flow.function.memory
