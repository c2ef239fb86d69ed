"""GPUs and replicas in a few dictionaries, which check every decision of a policy and carry it out."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from gpuferry.monitor.policy.invocations import (
    Bring,
    Decision,
    End,
    Function,
    Invocation,
    Limit,
    Refuse,
    Run,
    Send,
    Start,
    build,
)
from gpuferry.monitor.policy.invocations.books import Books


@dataclass
class Live:
    """An invocation that runs."""

    run: Run
    replica: int | None  # None until it began
    lost: bool = False


@dataclass
class World:
    """Tells a policy what happens, and believes nothing."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policy: Books = build(self.name, **self.options)
        self.now = 0.0
        self.log: list[str] = []
        self.gpus: dict[int, int] = {}  # memory
        self.functions: dict[str, Function] = {}
        self.waiting: dict[int, Invocation] = {}
        self.live: dict[int, Live] = {}
        self.replicas: dict[int, tuple[str, int | None]] = {}  # idle ones: function and where resident
        self.busy: dict[int, str] = {}  # began
        self.over: dict[int, str] = {}  # why
        self.ran: dict[int, int] = {}
        self.ids = count(1)
        self.issued = 0
        self.replica_ids = count(100)
        self.memory: dict[int, int] = {}  # of each replica, when it was made
        self.also: dict[int, tuple[int, ...]] = {}  # of each replica, where it was last

    # -- events

    def gpu(self, number: int, memory: int = 100, promised: float = math.inf) -> None:
        self.gpus[number] = memory
        self.policy.on_gpu(number, memory, self.now, promised)
        self.settle()

    def limit(self, **limit: float) -> None:
        self.policy.on_limit(Limit(**limit), self.now)
        self.settle()

    def function(self, name: str, memory: int = 10, **more: Any) -> None:
        self.functions[name] = Function(name, memory, **more)
        self.policy.on_function(self.functions[name], self.now)
        self.settle()

    def remove(self, name: str) -> None:
        del self.functions[name]
        self.policy.on_function_removed(name, self.now)
        self.settle()

    def arrive(self, name: str, settle: bool = True, **more: Any) -> int:
        number = self.issued = next(self.ids)
        invocation = Invocation(number, name, self.now, **more)
        self.waiting[number] = invocation
        self.policy.on_arrival(invocation, self.now)
        if settle:
            self.settle()
        return number

    def again(self, number: int, invocation: Invocation) -> None:
        """A failed invocation is tried once more."""
        del self.over[number]
        self.waiting[number] = invocation
        self.policy.on_arrival(invocation, self.now, first=True)
        self.settle()

    def begin(self, number: int) -> None:
        live = self.live[number]
        if live.replica is None:
            live.replica = next(self.replica_ids) if live.run.replica is None else live.run.replica
            if live.run.replica is None:
                self.memory[live.replica] = self.memory.pop(-number)
            self.also[live.replica] = live.run.also
        self.policy.on_begin(number, self.now, live.replica)
        self.settle()

    def complete(self, number: int, failed: bool = False) -> None:
        live = self.live.pop(number)
        self.over[number] = "failed" if failed else "ran"
        if live.replica is not None and not live.lost:
            self.replicas[live.replica] = (live.run.invocation.function, live.run.gpu)
        elif live.replica is None and live.run.replica is not None and not live.lost:
            self.replicas[live.run.replica] = (live.run.invocation.function, live.run.gpu)
        self.policy.on_complete(number, self.now, failed=failed)
        self.settle()

    def finish(self, number: int, seconds: float = 1.0, load: float = 0.0) -> None:
        """It begins, if it has not, and completes."""
        if self.live[number].replica is None:
            self.now += load
            self.begin(number)
        self.now += seconds
        self.complete(number)

    def cancel(self, number: int) -> None:
        if self.waiting.pop(number, None):
            self.over[number] = "cancelled"
        self.policy.on_cancel(number, self.now)
        self.settle()

    def lose_replica(self, replica: int) -> None:
        self.replicas.pop(replica, None)
        for live in self.live.values():
            if replica in (live.replica, live.run.replica):
                live.lost = True
        self.policy.on_replica_lost(replica, self.now)
        self.settle()

    def lose_gpu(self, number: int) -> None:
        del self.gpus[number]
        self.replicas = {
            key: value
            for key, value in self.replicas.items()
            if value[1] is None or number not in (value[1], *self.also[key])
        }
        for live in self.live.values():
            if number in (live.run.gpu, *live.run.also):
                live.lost = True
        self.policy.on_gpu_lost(number, self.now)
        self.settle()

    def resident(self, replica: int, gpu: int | None) -> None:
        self.replicas[replica] = (self.replicas[replica][0], gpu)
        self.policy.on_resident(replica, gpu, self.now)
        self.settle()

    def tick(self, seconds: float = 0.2) -> None:
        self.now += seconds
        self.policy.on_tick(self.now, dict.fromkeys(self.gpus, 0.5))
        self.settle()

    # -- decisions

    def settle(self) -> None:
        while decision := self.policy.next():
            self.log.append(self.word(decision))
            self.carry_out(decision)

    def word(self, decision: Decision) -> str:
        if isinstance(decision, Run):
            return f"{decision.invocation.function}@{decision.gpu} {decision.start.value}"
        if isinstance(decision, Refuse):
            return f"refuse {decision.invocation.id}"
        return f"{type(decision).__name__.lower()} {decision.function}"

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Run):
            self.check_run(decision)
        elif isinstance(decision, Refuse):
            number = decision.invocation.id
            del self.waiting[number]
            self.over[number] = f"refused: {decision.reason}"
        elif isinstance(decision, End):
            assert self.replicas.pop(decision.replica)[0] == decision.function
        elif isinstance(decision, Send):
            assert self.replicas[decision.replica] == (decision.function, decision.gpu)
            self.replicas[decision.replica] = (decision.function, None)
        else:
            assert isinstance(decision, Bring)
            assert self.replicas[decision.replica] == (decision.function, None)
            assert self.used(decision.gpu) + self.memory[decision.replica] <= self.gpus[decision.gpu]
            self.replicas[decision.replica] = (decision.function, decision.gpu)

    def check_run(self, run: Run) -> None:
        number, name = run.invocation.id, run.invocation.function
        assert self.waiting.pop(number) == run.invocation
        assert run.gpu in self.gpus
        tokens = self.options.get("tokens", 2 if self.name == "mqfq" else 1)
        for gpu in (run.gpu, *run.also):
            assert gpu in self.gpus
            assert sum(gpu in (live.run.gpu, *live.run.also) for live in self.live.values()) < tokens
        mine = [live for live in self.live.values() if live.run.invocation.function == name]
        assert len(mine) < self.functions[name].replicas
        if run.replica is None:
            assert run.start is Start.COLD
            self.memory[-number] = self.functions[name].memory
            every = len(self.replicas) + sum(not live.lost for live in self.live.values())
            assert every < self.options.get("pool", 1 << 60)
        else:
            function, where = self.replicas.pop(run.replica)
            assert function == name
            assert run.start is (Start.WARM if where == run.gpu else Start.RETURN)
            self.also[run.replica] = run.also
        self.live[number] = Live(run, None)
        self.ran[number] = self.ran.get(number, 0) + 1
        for gpu in (run.gpu, *run.also):
            assert self.used(gpu) <= self.gpus[gpu]

    # -- recounts

    def memory_of(self, number: int, live: Live) -> int:
        replica = live.replica if live.replica is not None else live.run.replica
        return self.memory[-number if replica is None else replica]

    def used(self, gpu: int) -> int:
        idle = sum(
            self.memory[key]
            for key, (_, where) in self.replicas.items()
            if where is not None and gpu in (where, *self.also[key])
        )
        return idle + self.pinned(gpu)

    def pinned(self, gpu: int) -> int:
        here = {
            number: live
            for number, live in self.live.items()
            if gpu in (live.run.gpu, *live.run.also) and not live.lost
        }
        return sum(self.memory_of(number, live) for number, live in here.items())

    def audit(self) -> None:
        """The policy's books equal a recount."""
        pinned, used, running = Counter[int](), Counter[int](), Counter[int]()
        in_flight = Counter[str]()
        for number, live in self.live.items():
            running.update((live.run.gpu, *live.run.also))
            in_flight[live.run.invocation.function] += 1
            for each in () if live.lost else (live.run.gpu, *live.run.also):
                pinned[each] += self.memory_of(number, live)
        homes: dict[int | None, set[int]] = {gpu: set() for gpu in (None, *self.gpus)}
        for key, (_, gpu) in self.replicas.items():
            homes[gpu].add(key)
            for each in () if gpu is None else (gpu, *self.also[key]):
                used[each] += self.memory[key]
        assert len(self.policy) == len(self.waiting)
        cards = {card.index: card for card in self.policy.cards()}
        replicas = [replica for flow in self.policy.flows() for replica in flow.replicas]
        assert cards.keys() == self.gpus.keys()
        for gpu, card in cards.items():
            assert (card.used, card.pinned) == (used[gpu] + pinned[gpu], pinned[gpu])
            assert card.running == running[gpu]
            assert {replica.id for replica in card.idle} == homes[gpu]
            mine = [one for one in replicas if card in one.cards]
            assert card.tied == sum(one.promise for one in mine if one.invocation is not None)
            assert card.bound == sum(one.promise for one in mine)
            assert card.bound <= max(card.promised, card.tied)
        waiting = Counter(one.function for one in self.waiting.values())
        flows = {flow.function.name: flow for flow in self.policy.flows()}
        for name in self.functions:
            flow = flows[name]
            assert self.policy.waiting_of(name) == waiting[name]
            assert flow.in_flight >= in_flight[name]  # those of an earlier function of that name run too
            away = {key for key in homes[None] if self.replicas[key][0] == name}
            assert {replica.id for replica in flow.away} == away
        assert len(self.waiting) + len(self.live) + len(self.over) == self.issued
