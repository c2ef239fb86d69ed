"""Where each replica is: the entries that keep GPUs, functions and replicas in agreement."""

from __future__ import annotations

from collections import OrderedDict

from .state import Card, Flow, Replica


class Ledger:
    """Replicas by id, by function and by GPU, idle or busy, resident or away. Decides nothing."""

    def __init__(self) -> None:
        self._flows: dict[str, Flow] = {}
        self._replicas: dict[int, Replica] = {}
        self._total = 0  # replicas, those without an id too
        self._idle: OrderedDict[Replica, None] = OrderedDict()  # everywhere; the last used at the end

    def _moved(self, card: Card) -> None:
        """What is resident on this GPU, or whether it works, changed."""

    def _enrol(self, replica: Replica) -> None:
        self._total += 1
        replica.flow.replicas[replica] = None

    def _enter(self, replica: Replica, card: Card) -> None:
        """Book a replica as resident on this GPU, and its others, and busy."""
        replica.card, replica.resident = card, True
        card.busy[replica] = None
        for each in replica.cards:
            each.pinned += replica.memory
            each.tied += replica.promise
        self._occupy(replica, card)

    def _leave(self, replica: Replica, card: Card) -> None:
        """Take a busy replica off this GPU, and its others; the caller books where it is next."""
        del card.busy[replica]
        for each in replica.cards:
            each.pinned -= replica.memory
            each.tied -= replica.promise
        self._vacate(replica, card)

    def _occupy(self, replica: Replica, card: Card) -> None:
        replica.flow.at.setdefault(card, {})[replica] = None
        for each in replica.cards:
            each.used += replica.memory
            each.bound += replica.promise

    def _vacate(self, replica: Replica, card: Card) -> None:
        at = replica.flow.at[card]
        del at[replica]
        if not at:
            del replica.flow.at[card]
        for each in replica.cards:
            each.used -= replica.memory
            each.bound -= replica.promise

    def _set_idle(self, replica: Replica, card: Card | None) -> None:
        """Book a replica as idle: resident on this GPU, and its others, or away (None)."""
        self._idle[replica] = None
        replica.resident = card is not None
        if card is None:
            replica.flow.away[replica] = None
            for each in replica.cards:
                each.absent += replica.memory
                each.bound += replica.promise
            return
        replica.card = card
        card.idle[replica] = None
        for other in replica.also:
            other.guests[replica] = None
        self._occupy(replica, card)
        for each in replica.cards:
            self._moved(each)

    def _unset_idle(self, replica: Replica) -> None:
        del self._idle[replica]
        card = replica.card
        if not replica.resident:
            del replica.flow.away[replica]
            for each in replica.cards:
                each.absent -= replica.memory
                each.bound -= replica.promise
            return
        assert card is not None
        del card.idle[replica]
        for other in replica.also:
            del other.guests[replica]
        self._vacate(replica, card)
        for each in replica.cards:
            self._moved(each)

    def _set_promise(self, replica: Replica, promise: int) -> None:
        """It is promised so many bytes from now on."""
        more, replica.promise = promise - replica.promise, promise
        for each in replica.cards:
            each.bound += more
            if replica.invocation is not None:
                each.tied += more

    def _drop(self, replica: Replica, busy: bool = False) -> None:
        """Take a replica that has ended out of the books. `busy`: an invocation ran in it."""
        if replica.lost:
            return
        replica.lost = True
        card = replica.card
        if busy or replica.invocation is not None:
            assert card is not None
            self._leave(replica, card)
            for each in replica.cards:
                self._moved(each)
        else:
            self._unset_idle(replica)
        self._total -= 1
        del replica.flow.replicas[replica]
        if replica.id is not None:
            del self._replicas[replica.id]
        self._forget_if_over(replica.flow)

    def _forget_if_over(self, flow: Flow) -> None:
        if flow.removed and not flow.replicas and not flow.in_flight:
            self._flows.pop(flow.function.name, None)
