"""Locality-aware load balancing, in order of arrival or out of it: LALB and LALBO3 (policies.md §4.2)."""

from __future__ import annotations

import sys
from heapq import heappush, heappushpop

from .interface import Invocation
from .local import LocalPolicy, cached
from .room import Room
from .state import Card, Flow, Running

SKIPS = 25
FINISH = ("phases", "elapsed")


class Lalb(LocalPolicy):
    """An idle GPU takes the first invocation whose function is resident there.

    Those before it are skipped, each `skips` times at most. Whoever was skipped so often, and the first one
    when none is resident, goes to an idle GPU that has its function; else into the queue of the busy GPU that
    has it and is done soonest, if that is sooner than loading it here; else it is loaded here. For who was
    skipped so often and fits on no GPU beside what runs, one is kept until it does.
    `finish`: what is left of an invocation that runs is its phases that are not over ("phases", the thesis),
    or less the time that it had of them ("elapsed").
    """

    def __init__(
        self,
        *,
        skips: int = SKIPS,
        finish: str = "phases",
        tokens: int = 1,
        pool: int = sys.maxsize,
        evict: str = "send",
    ) -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        if finish not in FINISH or skips < 0:
            raise ValueError("finish is phases or elapsed, and skips is not negative")
        self._skips = skips
        self._elapsed = finish == "elapsed"
        # Each look that skips, skips all who came before some turn. So one was skipped as often as there are
        # looks that went beyond its own turn, and the `skips` that went farthest tell who had enough.
        self._looks: list[float] = []
        self._works: dict[Card, dict[int, Running]] = {}
        self._queued: dict[Card, float] = {}  # seconds of inference in each GPU's own queue
        self._queued_of: dict[int, float] = {}
        self._room = Room()

    # -- when a GPU will be done

    def finish_time(self, gpu: int) -> float:
        """Seconds until this GPU has done what it runs and what is in its own queue, as estimated."""
        return self._finish(self._cards[gpu])

    def _finish(self, card: Card) -> float:
        left = self._queued[card]
        for running in self._works[card].values():
            need = running.flow.run.or_else(0.0)
            since = running.began
            if since is None:
                need += running.cost
                since = running.decided
            if self._elapsed:
                need = max(0.0, need - (self._now - since))
            left += need
        return left

    # -- entries

    def _joined(self, card: Card) -> None:
        self._works[card] = {}
        self._queued[card] = 0.0
        super()._joined(card)

    def _parted(self, card: Card) -> None:
        super()._parted(card)
        del self._works[card], self._queued[card]

    def _park(self, flow: Flow, invocation: Invocation, card: Card) -> None:
        super()._park(flow, invocation, card)
        seconds = self._queued_of[invocation.id] = flow.run.or_else(0.0)
        self._queued[card] += seconds

    def _unpark(self, flow: Flow, invocation: Invocation) -> None:
        card = self._parked[invocation.id]
        super()._unpark(flow, invocation)
        self._queued[card] -= self._queued_of.pop(invocation.id)
        if not self._local[card]:
            self._queued[card] = 0.0  # what rounding left

    def _started(self, running: Running) -> None:
        self._room.release(running.flow)
        self._works[running.card][running.invocation.id] = running

    def _ended(self, running: Running, seconds: float | None) -> None:
        if not running.card.gone:
            del self._works[running.card][running.invocation.id]

    # -- decisions

    def _choose(self) -> bool:
        for card in self._idle_by_use():
            if card.open <= 0:
                continue  # it was given something meanwhile
            self._serve(card)
            if self._decided:
                return True
        return False

    def _idle_by_use(self) -> list[Card]:
        """Idle GPUs, least used first; before them those with a queue, or others could keep it waiting."""
        if not self._line and not self._parked:
            return []
        return sorted(
            self._idlers, key=lambda card: (not self._local[card], card.others, card.assigned, card.index)
        )

    def _serve(self, card: Card) -> None:
        """What the thesis does for one idle GPU."""

        def able(flow: Flow) -> bool:
            may = self._startable(flow) and not self._room.bars(flow, card)
            return may and card.open > 0 and card.holds(flow)  # of several GPUs, it may have been the second

        own = self._local[card].first() if self._local[card] else None
        if own and able(own):
            self._run_local(card, own)
            return
        if own and not card.holds(own) and self._enough(self._turn[self._local[card].head(own).id]):
            return  # what runs here ends first: nobody else can run it
        oldest = self._line.best(self._startable)
        if oldest is None:
            return
        if not card.holds(oldest) and self._had_enough(oldest):
            self._room.keep(oldest, self._cards.values())
        while (flow := self._line.best(able)) and self._had_enough(flow):
            if card in flow.at:
                self._run_head(card, flow)
                return
            if self._place(flow, card):
                return
        here = [flow for flow in cached(card) if flow.waiting and able(flow)]
        if here:
            flow = min(here, key=lambda one: self._turn[one.head.id])
            self._look_beyond(self._turn[flow.head.id])
            self._run_head(card, flow)
            return
        self._look_beyond(self._newest + 1)
        while flow := self._line.best(able):
            if self._place(flow, card):
                return

    def _had_enough(self, flow: Flow) -> bool:
        return self._enough(self._turn[flow.head.id])

    def _enough(self, turn: float) -> bool:
        """Whether who has this place in the order of arrival was skipped as often as it may be."""
        if not self._skips:
            return True
        return len(self._looks) == self._skips and turn < self._looks[0]

    def _look_beyond(self, turn: float) -> None:
        """All before this turn were skipped once more."""
        if len(self._looks) < self._skips:
            heappush(self._looks, turn)
        elif self._skips:
            heappushpop(self._looks, turn)

    def _place(self, flow: Flow, card: Card) -> bool:
        """Find a place for the function's first one; whether it is this GPU, which has no replica of it."""
        idle = [
            other
            for other in flow.at
            if other.open > 0 and other.holds(flow) and not self._room.bars(flow, other)
        ]
        if idle:
            self._run_head(min(idle, key=lambda other: (other.others, other.assigned, other.index)), flow)
            return False
        busy = [(self._finish(other), other.index, other) for other in flow.at]
        if busy:
            finish, _, soonest = min(busy)
            if finish < flow.cost:
                self._park(flow, flow.head, soonest)
                return False
        self._run_head(card, flow)
        return True
