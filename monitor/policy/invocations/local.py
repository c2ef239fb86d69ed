"""A queue for each GPU, and the simple policies that use one (policies.md §4.2)."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count

from .books import Books
from .interface import Invocation
from .ranking import Ranking
from .state import Card, Flow


class LocalQueue:
    """Invocations that wait for one GPU, by function, in the order in which they came into the queue."""

    def __init__(self) -> None:
        self._serial = count(1)
        self._lines: dict[Flow, OrderedDict[int, tuple[int, Invocation]]] = {}
        self._heads: Ranking[Flow] = Ranking()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, flow: Flow, invocation: Invocation, turn: int) -> None:
        """Add one. `turn`: its place in the order of arrival; who is tried again has one below 0."""
        line = self._lines.setdefault(flow, OrderedDict())
        serial = next(self._serial)
        turn = turn if turn < 0 else serial
        line[invocation.id] = (turn, invocation)
        if len(line) > 1 and turn < self.turn(flow):
            line.move_to_end(invocation.id, last=False)
        self._length += 1
        self._heads.set(flow, self.turn(flow))

    def remove(self, flow: Flow, invocation: int) -> None:
        """Take an invocation out of the function's line."""
        line = self._lines[flow]
        del line[invocation]
        self._length -= 1
        if line:
            self._heads.set(flow, self.turn(flow))
        else:
            del self._lines[flow]
            self._heads.discard(flow)

    def turn(self, flow: Flow) -> int:
        """The place of a function's first one in the queue."""
        return next(iter(self._lines[flow].values()))[0]

    def head(self, flow: Flow) -> Invocation:
        """A function's first one."""
        return next(iter(self._lines[flow].values()))[1]

    def __contains__(self, flow: Flow) -> bool:
        return flow in self._lines

    def first(self) -> Flow | None:
        """The function of the first one whose function may run one more."""
        return self._heads.best(lambda flow: not flow.limited)

    def flows(self) -> list[Flow]:
        """The functions of which something waits here."""
        return list(self._lines)

    def of(self, flow: Flow) -> list[Invocation]:
        """All of a function, in their order."""
        return [one for _, one in self._lines.get(flow, {}).values()]


def cached(card: Card) -> set[Flow]:
    """The functions that have a replica on this GPU."""
    return {replica.flow for replica in (*card.idle, *card.busy)}


class LocalPolicy(Books):
    """Keeps a queue for each GPU. An invocation in one of them is parked: it is not in its `flow.waiting`."""

    def __init__(self, *, tokens: int = 1, pool: int = sys.maxsize, evict: str = "send") -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        self._local: dict[Card, LocalQueue] = {}
        self._parked: dict[int, Card] = {}
        self._line: Ranking[Flow] = Ranking()  # the global queue
        self._idlers: Ranking[Card] = Ranking()  # GPUs with a token, least used first

    def _park(self, flow: Flow, invocation: Invocation, card: Card) -> None:
        del flow.waiting[invocation.id]
        flow.parked += 1
        self._parked[invocation.id] = card
        self._local[card].push(flow, invocation, self._turn[invocation.id])
        self._stand(flow)

    def _unpark(self, flow: Flow, invocation: Invocation) -> None:
        card = self._parked.pop(invocation.id)
        self._local[card].remove(flow, invocation.id)
        flow.parked -= 1

    def _run_local(self, card: Card, flow: Flow) -> None:
        """Run this function's first one of the GPU's own queue there."""
        invocation = self._local[card].head(flow)
        self._unpark(flow, invocation)
        self._run(flow, invocation, card)
        self._stand(flow)

    def _run_head(self, card: Card, flow: Flow) -> None:
        """Run this function's first one of the global queue there."""
        self._run(flow, flow.head, card)
        self._stand(flow)

    def _stand(self, flow: Flow) -> None:
        if flow.waiting:
            self._line.set(flow, self._turn[flow.head.id])
        else:
            self._line.discard(flow)

    def _call_back(self, flow: Flow, invocations: Sequence[Invocation]) -> None:
        """What waited for one GPU waits in the global queue again, in the order of arrival."""
        for invocation in invocations:
            self._unpark(flow, invocation)
            flow.waiting[invocation.id] = invocation
        flow.waiting = OrderedDict(sorted(flow.waiting.items(), key=lambda item: self._turn[item[0]]))
        self._stand(flow)

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        self._stand(flow)

    def _changed(self, flow: Flow) -> None:
        """Call back what waits for GPUs that are too small for the function's new size."""
        for card, local in self._local.items():
            if card.memory < flow.function.memory and flow in local:
                self._call_back(flow, local.of(flow))

    def _withdrawn(self, flow: Flow, invocation: Invocation) -> None:
        if invocation.id in self._parked:
            self._unpark(flow, invocation)
        self._stand(flow)

    def _forgotten(self, flow: Flow) -> None:
        self._line.discard(flow)

    def _joined(self, card: Card) -> None:
        self._local[card] = LocalQueue()
        self._moved(card)

    def _parted(self, card: Card) -> None:
        """The GPU is gone: what waited for it in its local queue waits in the global one again."""
        self._idlers.discard(card)
        local = self._local[card]
        for flow in local.flows():
            self._call_back(flow, local.of(flow))
        del self._local[card]

    def _moved(self, card: Card) -> None:
        if card.open > 0 and not card.gone:
            self._idlers.set(card, card.others, card.assigned, card.index)
        else:
            self._idlers.discard(card)


class RoundRobin(LocalPolicy):
    """Each invocation goes to the queue of the least frequently used GPU when it arrives (RR)."""

    def __init__(self, *, tokens: int = 1, pool: int = sys.maxsize, evict: str = "send") -> None:
        super().__init__(tokens=tokens, pool=pool, evict=evict)
        self._by_use: Ranking[Card] = Ranking()
        self._given: dict[Card, int] = {}

    def _joined(self, card: Card) -> None:
        super()._joined(card)
        self._given[card] = min(self._given.values(), default=0)  # or it would get all for a while
        self._by_use.set(card, self._given[card], card.index)
        self._assign_all()

    def _parted(self, card: Card) -> None:
        self._by_use.discard(card)
        del self._given[card]
        super()._parted(card)
        self._assign_all()

    def _changed(self, flow: Flow) -> None:
        super()._changed(flow)
        self._assign_all()

    def _assign_all(self) -> None:
        """Give everything in the global queue to a GPU, if there is one."""
        while self._given and (flow := self._line.first()):
            self._assign(flow, flow.head)

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        super()._arrived(flow, invocation)
        if self._given:
            self._assign(flow, invocation)

    def _assign(self, flow: Flow, invocation: Invocation) -> None:
        card = self._by_use.best(lambda card: card.memory >= flow.function.memory)
        if card is None:  # nobody has one so large: it is refused
            return self._line.discard(flow)
        self._given[card] += 1
        self._by_use.set(card, self._given[card], card.index)
        return self._park(flow, invocation, card)

    def _pick(self, card: Card) -> Flow | None:
        """The function whose first invocation in its own queue this GPU runs next."""
        return self._local[card].first()

    def _choose(self) -> bool:
        def serves(card: Card) -> bool:
            flow = self._pick(card)
            return flow is not None and card.holds(flow) and self._startable(flow)

        card = self._idlers.best(serves)
        if card is None:
            return False
        flow = self._pick(card)
        assert flow is not None
        self._run_local(card, flow)
        return True


class RoundRobinO3(RoundRobin):
    """As RR, but a GPU takes the first of its queue whose function is resident there (RRO3)."""

    def _pick(self, card: Card) -> Flow | None:
        local = self._local[card]
        here = [flow for flow in cached(card) if flow in local and not flow.limited]
        return min(here, key=local.turn) if here else local.first()


class LoadBalance(LocalPolicy):
    """The invocation that waits longest goes to the least frequently used GPU that is idle (LB)."""

    def _choose(self) -> bool:
        flow = self._line.best(self._startable)
        card = self._idlers.best(lambda card: card.holds(flow)) if flow else None
        if flow is None or card is None:
            return False
        self._run_head(card, flow)
        return True
