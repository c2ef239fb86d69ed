"""The arbiters of all GPUs of a server, and who asks them. No I/O.

A session of several GPUs works when it has a turn on each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..policy.place import Place
from ..policy.tokens import Client
from .gathering import Gathering
from .gpu import Arbiter, Use, Voice
from .words import Packet, Word

OWN_MOST = 60 * 10**9  # nanoseconds of an API server's own work that it may claim at once

Soon = Callable[[int, Sequence[int]], None]


class Unfit(Exception):
    """An API server said what cannot be as things are."""


class Line(Protocol):
    """The connection to one API server, and the page of memory shared with it."""

    def send(self, packet: Packet) -> None:
        """Send a packet, without waiting."""

    def show(self, stop: bool, wanted: bool) -> None:
        """Write into the page whether its turn shall stop, and whether others want it."""


@dataclass
class Worker:
    """An API server, and what it was last told."""

    key: int
    devices: tuple[int, ...]  # in the order in which their turns are waited for: first the same for all
    line: Line
    session: int = 0  # 0: none; a request waits until there is one
    turn: int = 0  # the number of its last request
    asked: bool = False
    queued: bool = False  # with an arbiter: it has a session
    place: int = 0  # of the devices whose turn it has, the next one's
    works: bool = False
    told: tuple[bool, bool] = (False, False)
    wanted: set[int] = field(default_factory=set)  # devices on which others wait for its turn


class Told(NamedTuple):
    """What one session has had of one GPU."""

    session: int
    use: Use


class Gpus:
    """The arbiters of all GPUs of a server, and the API servers that take turns on them."""

    def __init__(
        self, make: Callable[[int, Voice], Arbiter], soon: Soon = lambda session, spared: None
    ) -> None:
        """`make`: the arbiter of this GPU. `soon`: hears which session is about to have a turn and is not
        there, and which ones have their turns meanwhile.
        """
        self._make, self._soon = make, soon
        self.arbiters: dict[int, Arbiter] = {}
        self.workers: dict[int, Worker] = {}
        self._gathering = Gathering()
        self.own: Counter[int] = Counter()  # nanoseconds of API servers' own work, by device: they say so

    def add(self, key: int, devices: Sequence[int], line: Line) -> None:
        """An API server is there."""
        self.workers[key] = Worker(key, tuple(sorted(set(devices))), line)
        for device in devices:
            if device not in self.arbiters:
                self.arbiters[device] = self._make(device, _Voice(self, device))

    def assign(
        self, key: int, session: int, request: int, limit: int, function: str, now: int, owner: str = ""
    ) -> None:
        """Give an API server a session. Request and limit are thousandths of each GPU's time; 0: none."""
        worker = self.workers.get(key)
        if worker is None:  # gone meanwhile
            return
        if worker.session not in (0, session):
            self.free(key, now)
        worker.session = session
        for device in worker.devices:
            self.arbiters[device].join(Client(key, request, limit, function, owner), now)
        if worker.asked and not worker.queued:
            self._ask_next(worker, now)

    def place(self, key: int, place: Place, least: int, now: int) -> None:
        """Where its session's memory is, and nanoseconds that it takes to come and to go. That of a session
        of several GPUs stays.
        """
        worker = self.workers.get(key)
        if worker and worker.session and len(worker.devices) == 1:
            self.arbiters[worker.devices[0]].place(key, place, least, now)

    def free(self, key: int, now: int) -> None:
        """Note that the session of an API server is over."""
        worker = self.workers.get(key)
        if worker is None:
            return
        self._withdraw(worker, now)
        for device in worker.devices:
            self.arbiters[device].leave(key, now)
        worker.session = 0

    def remove(self, key: int, now: int) -> None:
        """Remove an API server whose process or connection is gone."""
        self.free(key, now)
        self.workers.pop(key, None)

    def heard(self, key: int, packet: Packet, now: int) -> None:
        """Handle a packet from an API server. Raises Unfit if it is not allowed at this moment."""
        worker = self.workers[key]
        if packet.word is Word.ASK:
            if worker.asked:
                raise Unfit("it asked for a turn, and has one or waits")
            worker.asked, worker.turn, worker.place = True, packet.turn, 0
            if worker.session:
                self._ask_next(worker, now)
        elif packet.word is Word.REST:
            for device in worker.devices:
                self.arbiters[device].rest(key, now)
        else:
            self.own[min(worker.devices)] += min(packet.value, OWN_MOST)
            self._withdraw(worker, now)
            for device in worker.devices if worker.session else ():
                self.arbiters[device].back(key, now)

    def tick(self, now: int) -> None:
        """Let each arbiter whose deadline has passed act on it. `now`: monotonic nanoseconds."""
        for arbiter in self.arbiters.values():
            deadline = arbiter.deadline()
            if deadline is not None and deadline <= now:
                arbiter.tick(now)
        while (key := self._gathering.due(now)) is not None:
            worker = self.workers[key]
            if self._gathering.yields(key, bool(worker.wanted), now):
                self._yield(worker, now)

    def deadline(self) -> int | None:
        """When `tick` has something to do, in monotonic nanoseconds; None: nothing waits for a time."""
        found = [arbiter.deadline() for arbiter in self.arbiters.values()]
        found.append(self._gathering.deadline())
        return min((each for each in found if each is not None), default=None)

    def uses(self, device: int, now: int) -> Iterator[Told]:
        """What each session has had of a GPU."""
        for use in self.arbiters[device].uses(now):
            worker = self.workers[use.key]
            yield Told(worker.session, use)

    # -- what arbiters say

    def went(self, device: int, key: int, quota: int | None, now: int) -> None:
        """An arbiter gave it a turn."""
        worker = self.workers[key]
        worker.place += 1
        if worker.place < len(worker.devices):
            self._gathering.holds(key, quota, now)
            self._ask_next(worker, now)
            return
        self._gathering.is_over(key)
        worker.works = True
        for each in worker.devices:
            self.arbiters[each].begin(key, now)
        worker.told = (False, bool(worker.wanted))
        worker.line.show(*worker.told)
        worker.line.send(Packet(Word.GO, worker.turn, quota or 0))

    def stopped(self, key: int) -> None:
        """Tell an API server that its turn on one of its GPUs has to end."""
        worker = self.workers[key]
        if worker.works and not worker.told[0]:
            worker.told = (True, worker.told[1])
            worker.line.show(*worker.told)
            worker.line.send(Packet(Word.STOP, worker.turn))

    def taken(self, device: int, key: int, now: int) -> None:
        """Take an API server's turn on one GPU away, and with it the turns on its other GPUs."""
        worker = self.workers[key]
        turn = worker.turn
        self._withdraw(worker, now)
        worker.line.send(Packet(Word.TAKEN, turn))
        for each in worker.devices:
            if each != device:
                self.arbiters[each].lose(key, now)

    def is_wanted(self, device: int, key: int, others: bool) -> None:
        """Whether others wait on this GPU."""
        worker = self.workers[key]
        (worker.wanted.add if others else worker.wanted.discard)(device)
        told = (worker.told[0], bool(worker.wanted))
        if told != worker.told and worker.works:
            worker.told = told
            worker.line.show(*told)
            if told[1]:
                worker.line.send(Packet(Word.WANTED, worker.turn))

    def about(self, key: int, spared: Collection[int]) -> None:
        """Announce who will probably have the next turn. Nobody of `spared` may leave for it."""
        self._soon(self.workers[key].session, [self.workers[each].session for each in spared])

    # -- how

    def _ask_next(self, worker: Worker, now: int) -> None:
        worker.queued = True
        self.arbiters[worker.devices[worker.place]].ask(worker.key, now)

    def _yield(self, worker: Worker, now: int) -> None:
        """It gives up what it has, and goes on waiting for what it lacks: that comes first from now on."""
        had, lacks = worker.devices[: worker.place], worker.devices[worker.place :]
        worker.devices, worker.place = lacks + had, 0
        worker.wanted.clear()
        for device in had:
            self.arbiters[device].back(worker.key, now)

    def _withdraw(self, worker: Worker, now: int) -> None:
        self._gathering.is_over(worker.key)
        worker.asked = worker.queued = worker.works = False
        worker.place = 0
        worker.wanted.clear()


class _Voice:
    """What the arbiter of one GPU says."""

    def __init__(self, gpus: Gpus, device: int) -> None:
        self._gpus, self._device = gpus, device

    def go(self, key: int, quota: int | None, now: int) -> None:
        self._gpus.went(self._device, key, quota, now)

    def stop(self, key: int) -> None:
        self._gpus.stopped(key)

    def taken(self, key: int, now: int) -> None:
        self._gpus.taken(self._device, key, now)

    def wanted(self, key: int, others: bool) -> None:
        self._gpus.is_wanted(self._device, key, others)

    def soon(self, key: int, spared: Collection[int]) -> None:
        self._gpus.about(key, spared)
