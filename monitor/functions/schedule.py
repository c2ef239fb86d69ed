"""The policy that decides which invocation runs when, as the function server sees it.

All that the server knows of policies is here. A replica of the policy is a *place*: an invocation at a time.
A program with a concurrency of four is one process with four places.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ..policy.invocations import Decision, Function, Invocation, Limit, Run, build
from ..policy.invocations.books import Books
from ..policy.invocations.build import read_options
from ..policy.invocations.store import Memory, Publisher, measured
from ..settings.errors import ConfigError
from .deployment import Deployment

GPU = 0  # as long as nobody says which GPUs there are, they are one to the policy,
MEMORY = 1 << 60  # without an end
UNLIMITED = Limit()
EVERYTHING = sys.maxsize  # tokens, where nobody said how many, as long as no GPU is known


def _unbounded(policy: str, options: Mapping[str, Any]) -> Books:
    """A policy for one GPU of unknown size and utilisation, with unbounded tokens where it takes a number."""
    options = {name: value for name, value in options.items() if name != "limit"}
    try:
        return build(policy, tokens=EVERYTHING, **options)
    except ValueError:  # it runs one at a time
        return build(policy, **options)


class Occupancy:
    """Which part of the tokens of each GPU was in use, over time: what the server can tell of utilisation. Of
    an invocation it knows that it runs, not what part of the GPU it uses.
    """

    def __init__(self) -> None:
        self._gpus: dict[int, tuple[int, ...]] = {}  # of each invocation that runs
        self._running: dict[int, int] = {}
        self._area: dict[int, float] = {}  # seconds of a token since the last look
        self._counted: dict[int, float] = {}
        self._looked = time.monotonic()

    def begin(self, number: int, *gpus: int) -> None:
        """An invocation has a token of each of these GPUs."""
        self._gpus[number] = gpus
        for gpu in gpus:
            self._count(gpu, time.monotonic())
            self._running[gpu] = self._running.get(gpu, 0) + 1

    def end(self, number: int) -> None:
        """The invocation has given its tokens back. Of one that never had one: nothing."""
        for gpu in self._gpus.pop(number, ()):
            self._count(gpu, time.monotonic())
            self._running[gpu] -= 1

    def look(self, tokens: Mapping[int, int]) -> dict[int, float]:
        """Since the last look, from 0 to 1. `tokens`: how many each GPU has."""
        now = time.monotonic()
        span, self._looked = now - self._looked, now
        for gpu in self._running:
            self._count(gpu, now)
        area, self._area = self._area, {}
        if span <= 0:
            return {}
        return {gpu: min(1.0, area.get(gpu, 0.0) / (span * number)) for gpu, number in tokens.items()}

    def _count(self, gpu: int, now: float) -> None:
        seconds, self._counted[gpu] = now - self._counted.get(gpu, now), now
        self._area[gpu] = self._area.get(gpu, 0.0) + self._running.get(gpu, 0) * seconds


class Schedule:
    """The policy with its clock."""

    def __init__(self, policy: str, tokens: int, options: Mapping[str, str] | None = None) -> None:
        """A policy by its name, for GPUs that are not known yet.

        `tokens`: 0 for the policy's own number on each GPU, and no limit as long as none is known, or for a
        policy that needs none. `options`: of the policy, as they are written. Raises ConfigError for what it
        does not have.
        """
        try:
            given = read_options(policy, options or {}, without=("tokens",))
            if tokens:
                given["tokens"] = tokens
            self._fresh = partial(build, policy, **given)
            self._policy = self._fresh()
            if not tokens:
                self._policy = _unbounded(policy, given)
                if self._policy.TAKES_ALL:
                    self._fresh = partial(_unbounded, policy, given)
        except ValueError as error:
            raise ConfigError(f"--policy {policy}: {error}") from None
        self.gpus: dict[int, int] = {GPU: MEMORY}
        self.known = False  # whether they are the GPU server's
        self._occupancy = Occupancy()
        self._others: Mapping[int, int] = {}
        self._usual = 0  # bytes that a program is granted which asks for none
        self._deployed: dict[str, Deployment] = {}
        self._uses: dict[str, bool] = {}  # of functions that have run: whether they have memory on a GPU
        self.models = Memory()  # seconds of starts and runs that other servers measured
        self._policy.on_gpu(GPU, MEMORY, time.monotonic())

    def take(
        self,
        gpus: Mapping[int, int],
        promised: Mapping[int, int] = MappingProxyType({}),
        usual: int = 0,
        limit: Limit = UNLIMITED,
    ) -> None:
        """There are these GPUs. The first time the policy begins anew: of what waits it must hear again, and
        of what runs, or is anywhere, it knows nothing. `promised`: what programs may be granted of each, if
        that is bounded; `usual`: what a program is granted that asks for none; `limit`: what all may have
        together.
        """
        now = time.monotonic()
        if not self.known:
            self._begin_anew(now)
        for gpu in list(self.gpus):
            if gpu not in gpus:
                del self.gpus[gpu]
                self._policy.on_gpu_lost(gpu, now)
        for gpu, memory in gpus.items():
            self.gpus[gpu] = memory
            self._policy.on_gpu(gpu, memory, now, promised.get(gpu, math.inf))
        self._policy.on_limit(limit, now)
        if self._usual != usual:
            self._usual = usual
            for deployment in list(self._deployed.values()):
                self.deploy(deployment)
        self.gpus = dict(sorted(self.gpus.items()))  # whichever was ready first
        self.known = True
        self.others(self._others)  # who may say nothing new for long

    def _begin_anew(self, now: float) -> None:
        """The policy that is for GPUs which are known. What was measured of functions goes on."""
        before, self._policy = self._policy, self._fresh()
        told = Memory()
        Publisher(told).publish(before)
        for flow in before.flows():
            if not flow.removed:
                self._policy.on_function(measured(told, flow.function), now)
        self.gpus = {}

    def deploy(self, deployment: Deployment) -> None:
        """A function is there, or is another from now on."""
        self._deployed[deployment.name] = deployment
        self._policy.on_function(measured(self.models, self._function(deployment)), time.monotonic())

    def make_room(self, deployment: Deployment, gpu: int) -> None:
        """A replica of this deployment, which may not be there yet, is about to start on this GPU."""
        self._policy.on_start(self._function(deployment), gpu, time.monotonic())

    def _function(self, deployment: Deployment) -> Function:
        uses = self._uses.get(deployment.name)
        quota = deployment.gpu_memory or (self._usual if uses else 0)
        perhaps = self._usual if uses is None else 0
        return Function(
            deployment.name,
            memory=deployment.gpu_memory // deployment.concurrency,  # which its places share
            quota=quota // deployment.concurrency,
            weight=deployment.weight,
            replicas=deployment.most * deployment.concurrency,
            gpus=max(1, deployment.gpus),
            perhaps=perhaps // deployment.concurrency,
            places=deployment.concurrency,
        )

    def uses_gpu(self, name: str, does: bool) -> None:
        """A replica of the function has memory on a GPU, or has run and has none: it never calls CUDA. Who
        has once had some may have it again.
        """
        known = self._uses.get(name)
        if name in self._deployed and (known is None or (does and not known)):
            self._uses[name] = does
            self.deploy(self._deployed[name])

    def remove(self, name: str) -> None:
        """A function is gone: what waits is refused, idle places end."""
        self._deployed.pop(name, None)
        self._uses.pop(name, None)
        self._policy.on_function_removed(name, time.monotonic())

    def arrive(self, number: int, function: str, again: bool = False) -> None:
        """An invocation waits. `again`: it was given to a replica that was gone before it began."""
        now = time.monotonic()
        self._policy.on_arrival(Invocation(number, function, now), now, first=again)

    def begin(self, number: int, place: int) -> None:
        """The invocation is on its way to the replica."""
        self._policy.on_begin(number, time.monotonic(), place)

    def complete(self, number: int, failed: bool) -> None:
        """The invocation is over; its place is idle, if it is still there."""
        self._occupancy.end(number)
        self._policy.on_complete(number, time.monotonic(), failed=failed)

    def cancel(self, number: int) -> None:
        """The caller has gone."""
        self._policy.on_cancel(number, time.monotonic())

    def add(self, place: int, function: str, gpu: int) -> None:
        """An idle place is there that no invocation asked for. It has nothing on that GPU yet."""
        self._policy.on_replica(place, function, gpu, time.monotonic())
        if self.known:
            self.resident(place, None)

    def resident(self, place: int, gpu: int | None, also: Collection[int] = ()) -> None:
        """An idle place's memory is on this GPU, and these others; None: on none."""
        self._policy.on_resident(place, gpu if gpu in self.gpus else None, time.monotonic(), also)

    def lose(self, place: int) -> None:
        """A place is gone."""
        self._policy.on_replica_lost(place, time.monotonic())

    def others(self, busy: Mapping[int, int]) -> None:
        """So many other servers' invocations fill these GPUs."""
        self._others = busy
        for gpu in self.gpus:
            self._policy.on_others(gpu, busy.get(gpu, 0), time.monotonic())

    def published(self, node: str) -> dict[str, str]:
        """What a cache manager tells others, by key; `node`: the GPU server's name."""
        told = Memory()
        Publisher(told, lambda _: node).publish(self._policy)
        return {key: value for key, value in told.items("") if self.known or not key.startswith("gpu/")}

    def tick(self) -> None:
        """Time passed."""
        tokens = {card.index: card.tokens for card in self._policy.cards()}
        self._policy.on_tick(time.monotonic(), self._occupancy.look(tokens))

    def decisions(self) -> Iterator[Decision]:
        """What is to be done now, until there is nothing more to do before the next event."""
        while (decision := self._policy.next()) is not None:
            if isinstance(decision, Run):
                self._occupancy.begin(decision.invocation.id, decision.gpu, *decision.also)
            yield decision

    @property
    def full(self) -> bool:
        """Whether there are as many places as the policy may have."""
        return self._policy.full

    def waiting(self, function: str) -> int:
        """How many invocations of a function wait."""
        return self._policy.waiting_of(function)

    def __len__(self) -> int:
        return len(self._policy)
