"""The books that all policies keep; a policy says whose turn it is, where, and who makes room."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import ClassVar

from .interface import Bring, Decision, End, Function, Invocation, Limit, Refuse, Run, Send, Start
from .ledger import Ledger
from .state import Card, Flow, Replica, Running


class Books(Ledger):
    """Functions, GPUs, replicas and invocations as they are after all events and decisions so far.

    `tokens`: invocations that may run on a GPU at once. `pool`: the most replicas, of all functions.
    `evict`: what becomes of a replica that makes room: "send" (its memory leaves), or "end" (so do papers).
    A subclass overrides the methods of the section "for policies", and `_moved`.
    """

    TAKES_ALL: ClassVar[bool] = False  # it is as good without a number of tokens, where nobody gives one

    def __init__(self, *, tokens: int = 1, pool: int = sys.maxsize, evict: str = "send") -> None:
        if tokens < 1 or pool < 1 or evict not in ("send", "end"):
            raise ValueError("tokens and pool are at least 1, evict is send or end")
        super().__init__()
        self._tokens = tokens
        self._pool = pool
        self._ends = evict == "end"
        self._now = 0.0
        self._cards: dict[int, Card] = {}
        self._allowed = Limit()
        self._waits: dict[int, Invocation] = {}
        self._turn: dict[int, int] = {}  # of those that wait: place in the order of arrival
        self._newest = self._oldest = 0
        self._runs: dict[int, Running] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._decided: deque[Decision] = deque()
        self._registered = 0
        self._open = 0  # tokens
        self._largest = 0  # memory of a GPU

    # -- for policies

    def _choose(self) -> bool:
        """Make a decision, or change the books so that the next one can be made; False: there is none now."""
        raise NotImplementedError

    def _may_choose(self) -> bool:
        """Whether there can be a decision while something waits."""
        return self._open > 0

    def _victim(self, card: Card) -> Replica:
        """Which idle replica of this GPU makes room there; there is one."""
        return next(iter(card.idle))

    def _surplus(self) -> Replica:
        """Which idle replica ends because the pool is full; there is one."""
        return next(iter(self._idle))

    def _arrived(self, flow: Flow, invocation: Invocation) -> None:
        """An invocation was added to `flow.waiting`."""

    def _withdrawn(self, flow: Flow, invocation: Invocation) -> None:
        """An invocation was cancelled or refused before it ran; it is in `flow.waiting` no longer."""

    def _started(self, running: Running) -> None:
        """The decision to run an invocation was made; its replica may have to start or return first."""

    def _began(self, running: Running) -> None:
        """The replica is ready and has begun to execute the invocation."""

    def _ended(self, running: Running, seconds: float | None) -> None:
        """An invocation ended after `seconds` of execution, well or not; None: it never began."""

    def _changed(self, flow: Flow) -> None:
        """The function was deployed, or deployed anew."""

    def _forgotten(self, flow: Flow) -> None:
        """The function was removed; nothing of it waits."""

    def _joined(self, card: Card) -> None:
        """A GPU is there."""

    def _parted(self, card: Card) -> None:
        """A GPU is gone, with its replicas."""

    def _ticked(self, utilisation: Mapping[int, float]) -> None:
        """Time passed."""

    # -- functions and GPUs

    def on_function(self, function: Function, now: float) -> None:
        self._now = now
        flow = self._flows.get(function.name)
        if flow is None:
            flow = self._flows[function.name] = Flow(function, self._registered)
            self._registered += 1
        flow.function = function
        for replica in flow.replicas:
            if replica.memory == function.memory:  # else it is of an earlier revision
                self._set_promise(replica, function.promise)
        flow.removed = False
        flow.load.declare(function.load)
        flow.run.declare(function.run)
        self._changed(flow)
        self._refuse_if_hopeless(flow)

    def on_function_removed(self, name: str, now: float) -> None:
        self._now = now
        flow = self._flows.get(name)
        if flow is None or flow.removed:
            return
        flow.removed = True
        for invocation in [one for one in self._waits.values() if one.function == name]:
            self._refuse(invocation, f"function {name} was removed")
        self._forgotten(flow)
        for replica in [one for one in flow.replicas if one.invocation is None]:
            self._end(replica)
        self._forget_if_over(flow)

    def on_gpu(self, gpu: int, memory: int, now: float, promised: float = math.inf) -> None:
        self._now = now
        if card := self._cards.get(gpu):
            if (card.memory, card.promised) != (memory, promised):
                card.promised = promised
                self._resize(card, memory)
            return
        card = self._cards[gpu] = Card(gpu, memory, self._tokens, promised=promised, peers=self._cards)
        self._open += card.open
        self._largest = max(self._largest, memory)
        self._joined(card)

    def on_limit(self, limit: Limit, now: float) -> None:
        self._now, self._allowed = now, limit
        self._keep_limit(0)
        self._keep_sessions()

    def _resize(self, card: Card, memory: int) -> None:
        card.memory = memory
        self._largest = max(one.memory for one in self._cards.values())
        self._make_room(card, 0)
        self._keep_promises(card, 0)
        for flow in [one for one in self._flows.values() if not one.removed]:
            self._changed(flow)  # it may fit where it did not, or no more where it did
            self._refuse_if_hopeless(flow)
        self._moved(card)

    def on_gpu_lost(self, gpu: int, now: float) -> None:
        self._now = now
        card = self._cards.pop(gpu, None)
        if card is None:
            return
        card.gone = True
        self._open -= card.open
        self._largest = max((one.memory for one in self._cards.values()), default=0)
        for replica in [one for flow in self._flows.values() for one in flow.replicas]:
            if replica.resident and card in replica.cards:
                self._drop(replica)
        self._parted(card)
        for flow in list(self._flows.values()):
            self._refuse_if_hopeless(flow)

    def on_others(self, gpu: int, others: int, now: float) -> None:
        self._now = now
        card = self._cards.get(gpu)
        if card and card.others != others:
            card.others = others
            self._moved(card)

    # -- replicas

    def on_start(self, function: Function, gpu: int, now: float) -> None:
        self._now = now
        if card := self._cards.get(gpu):
            self._vacate_for(card, function.gpus, function.memory, function.promise, function.perhaps)
            self._keep_sessions(function)

    def on_replica(self, replica: int, function: str, gpu: int | None, now: float) -> None:
        self._now = now
        flow = self._flows.get(function)
        if flow is None or flow.removed:
            self._decided.append(End(function, replica))
            return
        if replica in self._replicas:
            raise ValueError(f"replica {replica} is there already")
        added = Replica(replica, flow, flow.function.memory, flow.function.promise)
        self._replicas[replica] = added
        self._enrol(added)
        card = self._cards.get(gpu) if gpu is not None else None
        self._set_idle(added, card)
        if self._total > self._pool:
            self._end(self._surplus())

    def on_replica_lost(self, replica: int, now: float) -> None:
        self._now = now
        if found := self._replicas.get(replica):
            self._drop(found)

    def on_resident(self, replica: int, gpu: int | None, now: float, also: Collection[int] = ()) -> None:
        self._now = now
        found = self._replicas.get(replica)
        if found is None or found.invocation is not None:
            return
        self._unset_idle(found)
        card = self._cards.get(gpu) if gpu is not None else None
        if card:
            found.also = tuple(self._cards[one] for one in also if one in self._cards and one != gpu)
        self._set_idle(found, card)

    # -- invocations

    def on_arrival(self, invocation: Invocation, now: float, *, first: bool = False) -> None:
        self._now = now
        flow = self._flows.get(invocation.function)
        if flow is None or flow.removed:
            self._decided.append(Refuse(invocation, f"there is no function {invocation.function}"))
            return
        if invocation.id in self._waits or invocation.id in self._runs:
            raise ValueError(f"invocation {invocation.id} is there already")
        self._waits[invocation.id] = invocation
        flow.waiting[invocation.id] = invocation
        if first:
            self._oldest -= 1
            self._turn[invocation.id] = self._oldest
            flow.waiting.move_to_end(invocation.id, last=False)
        else:
            self._newest += 1
            self._turn[invocation.id] = self._newest
        if invocation.deadline < math.inf:
            heappush(self._deadlines, (invocation.deadline, invocation.id))
        self._arrived(flow, invocation)
        self._refuse_if_hopeless(flow)

    def on_cancel(self, invocation: int, now: float) -> None:
        self._now = now
        if waiting := self._waits.get(invocation):
            self._withdraw(waiting)

    def on_begin(self, invocation: int, now: float, replica: int) -> None:
        self._now = now
        running = self._runs.get(invocation)
        if running is None or running.began is not None:
            return
        running.began = now
        mine = running.replica
        if mine.id is None and not mine.lost:
            if replica in self._replicas:
                raise ValueError(f"replica {replica} is there already")
            mine.id = replica
            self._replicas[replica] = mine
        seconds = now - running.decided
        if running.start is Start.COLD:
            running.flow.load.add(seconds)
        elif running.start is Start.RETURN:
            running.flow.back.add(seconds)
        self._began(running)

    def on_complete(self, invocation: int, now: float, *, failed: bool = False) -> None:
        self._now = now
        running = self._runs.pop(invocation, None)
        if running is None:
            return
        flow, card, replica = running.flow, running.card, running.replica
        flow.in_flight -= 1
        cards = (card, *running.also)
        for each in cards:
            each.running -= 1
            if not each.gone:
                self._open += 1
        replica.invocation = None
        if replica.id is None:
            self._drop(replica, busy=True)
        elif not replica.lost:
            self._leave(replica, card)
            if not failed:
                replica.uses += 1
            replica.used_at = now
            self._set_idle(replica, card)
            if flow.removed or self._total > self._pool:
                self._end(replica)
        seconds = None
        if running.began is not None:
            seconds = now - running.began
            (flow.run.at_least if failed else flow.run.add)(seconds)
        self._ended(running, seconds)
        for each in cards:
            self._make_room(each, 0)  # if the GPU has less than it had
            self._keep_promises(each, 0)
            self._moved(each)
        self._forget_if_over(flow)

    def on_tick(self, now: float, utilisation: Mapping[int, float]) -> None:
        self._now = now
        self._ticked(utilisation)

    def next(self) -> Decision | None:
        while self._deadlines and self._deadlines[0][0] <= self._now:
            if late := self._waits.get(heappop(self._deadlines)[1]):
                self._refuse(late, "no GPU was free for it before its deadline")
        while not self._decided:
            if not self._waits or not self._may_choose() or not self._choose():
                return None
        return self._decided.popleft()

    @property
    def full(self) -> bool:
        """Whether there are as many replicas as there may be."""
        return self._total >= self._pool

    def waiting_of(self, function: str) -> int:
        """How many invocations of this function wait."""
        flow = self._flows.get(function)
        return len(flow.waiting) + flow.parked if flow else 0

    def __len__(self) -> int:
        return len(self._waits)

    def cards(self) -> Iterable[Card]:
        """The GPUs, for who looks on and changes nothing."""
        return self._cards.values()

    def flows(self) -> Iterable[Flow]:
        """The functions, for who looks on and changes nothing."""
        return self._flows.values()

    # -- decisions, for subclasses

    def _startable(self, flow: Flow) -> bool:
        """Whether its limits, and the pool's, let one more of its invocations run somewhere."""
        if flow.limited:
            return False
        return self._total < self._pool or bool(self._idle)

    def _run(self, flow: Flow, invocation: Invocation, card: Card) -> None:
        """Decide that it runs on this GPU, which holds it, and what makes room for that before."""
        self._unwait(invocation)
        cost = flow.cost
        replica, start = self._take(flow, card)
        replica.invocation = invocation.id
        flow.in_flight += 1
        card.assigned += 1
        self._enter(replica, card)
        for each in replica.cards:
            each.running += 1
            self._open -= 1
        cost = cost if start is not Start.WARM else 0.0
        running = Running(invocation, flow, card, replica, start, self._now, cost, also=replica.also)
        self._runs[invocation.id] = running
        also = tuple(each.index for each in replica.also)
        self._decided.append(Run(invocation, card.index, replica.id, start, also))
        self._started(running)
        for each in replica.cards:
            self._moved(each)

    def _take(self, flow: Flow, card: Card) -> tuple[Replica, Start]:
        """A replica that is nowhere in the books, and what it needs."""
        if warm := flow.idle_on(card):
            self._unset_idle(warm)
            return warm, Start.WARM
        if back := self._returning(flow, card):
            self._unset_idle(back)
            if back.resident and back.card:
                assert back.id is not None
                self._decided.append(Send(flow.function.name, back.card.index, back.id))
                self._moved(back.card)
            self._settle(back, card)
            return back, Start.RETURN
        if len(flow.replicas) >= flow.function.replicas and (old := flow.idle_anywhere()):
            self._end(old)  # of an earlier deployment: it does not fit here
        if self._total >= self._pool:
            self._end(self._surplus())
        new = Replica(None, flow, flow.function.memory, flow.function.promise)
        self._settle(new, card)
        if len(flow.replicas) % flow.function.places == 0:
            self._keep_sessions(flow.function)
        self._enrol(new)
        return new, Start.COLD

    def _settle(self, replica: Replica, card: Card) -> None:
        """See to it that the replica, which is nowhere in the books, has room on this GPU and its others."""
        function = replica.flow.function
        replica.also = self._vacate_for(
            card, function.gpus, replica.memory, replica.promise, function.perhaps
        )

    def _vacate_for(self, card: Card, gpus: int, memory: int, promise: int, perhaps: int) -> tuple[Card, ...]:
        """Idle replicas leave or end for such a new one on this GPU. Returns its other GPUs."""
        also = card.beside(gpus, memory, promise)
        for each in (card, *also):
            self._make_room(each, memory)
            self._keep_promises(each, promise or perhaps)
        self._keep_limit((promise or perhaps) * (1 + len(also)))
        return also

    def _returning(self, flow: Flow, card: Card) -> Replica | None:
        """A replica that is away, from this GPU rather than others; or any idle one, if there is no more. One
        that was deployed with more memory may not fit.
        """
        found = None
        for replica in flow.away:
            if not card.has_place(flow.function.gpus, replica.memory, replica.promise):
                continue
            if replica.card is card:
                return replica
            found = found or replica
        if found is None and len(flow.replicas) >= flow.function.replicas:
            return flow.idle_anywhere(card)
        return found

    def _make_room(self, card: Card, memory: int) -> None:
        while card.memory - card.used < memory and (card.idle or card.guests):
            victim = self._leaver(card)
            if self._ends:
                self._end(victim)
            else:
                self._send(victim)

    def _keep_promises(self, card: Card, more: int) -> None:
        """Idle replicas end, those that are away before others, so that the card may promise more bytes."""
        while card.bound + more > card.promised:
            away = next((one for one in self._idle if card in one.cards and not one.resident), None)
            if away is None and not (card.idle or card.guests):
                return
            self._end(away or self._leaver(card))

    def _keep_limit(self, more: int) -> None:
        """The same of all GPUs together."""
        while self._idle and sum(card.bound for card in self._cards.values()) + more > self._allowed.memory:
            self._end(next((one for one in self._idle if not one.resident), None) or self._surplus())

    def _keep_sessions(self, coming: Function | None = None) -> None:
        """Idle replicas that have sessions end, those that are away before others, for one of this function
        that has none yet.
        """
        while self._beyond_limit(coming):
            idle = [one for one in self._idle if one.flow.function.has_session]
            if not idle:
                return
            self._end(next((one for one in idle if not one.resident), idle[0]))

    def _beyond_limit(self, coming: Function | None) -> bool:
        if self._allowed.sessions == self._allowed.gpus == math.inf:
            return False
        held = [
            (flow.function, math.ceil(len(flow.replicas) / flow.function.places))
            for flow in self._flows.values()
        ] + ([(coming, 1)] if coming else [])
        sessions = [(function.gpus, number) for function, number in held if function.has_session]
        return (
            sum(number for _, number in sessions) > self._allowed.sessions
            or sum(gpus * number for gpus, number in sessions) > self._allowed.gpus
        )

    def _leaver(self, card: Card) -> Replica:
        """Who makes room on this GPU; those of several GPUs of which it is not the first come last."""
        return self._victim(card) if card.idle else next(iter(card.guests))

    def _bring(self, replica: Replica, card: Card) -> None:
        """Decide that this replica, which is away, comes to this GPU, which has room."""
        assert replica.id is not None
        self._unset_idle(replica)
        self._decided.append(Bring(replica.flow.function.name, card.index, replica.id))
        self._set_idle(replica, card)

    def _send(self, replica: Replica) -> None:
        """Decide that this replica, idle and resident, leaves its GPU."""
        card = replica.card
        assert card is not None
        assert replica.id is not None
        self._unset_idle(replica)
        self._decided.append(Send(replica.flow.function.name, card.index, replica.id))
        self._set_idle(replica, None)

    def _end(self, replica: Replica) -> None:
        """Decide that this idle replica ends."""
        assert replica.id is not None
        self._decided.append(End(replica.flow.function.name, replica.id))
        self._drop(replica)

    def _refuse(self, invocation: Invocation, reason: str) -> None:
        self._withdraw(invocation)
        self._decided.append(Refuse(invocation, reason))

    # -- entries

    def _withdraw(self, invocation: Invocation) -> None:
        flow = self._flows[invocation.function]
        self._unwait(invocation)
        self._withdrawn(flow, invocation)

    def _unwait(self, invocation: Invocation) -> None:
        del self._waits[invocation.id]
        del self._turn[invocation.id]
        self._flows[invocation.function].waiting.pop(invocation.id, None)

    def _refuse_if_hopeless(self, flow: Flow) -> None:
        """What no GPU could ever hold. Before the first GPU is known, everything may come."""
        if not self._cards:
            return
        most, function = self._largest, flow.function
        if function.memory > most:
            why = f"{function.name} needs {function.memory} bytes of a GPU, the largest has {most}"
        elif sum(card.memory >= function.memory for card in self._cards.values()) < function.gpus:
            why = f"{function.name} needs {function.gpus} GPUs with {function.memory} bytes each"
        else:
            return
        for invocation in [one for one in self._waits.values() if one.function == function.name]:
            self._refuse(invocation, why)
