"""A GPU server in a few dictionaries, which checks every decision of a policy against the rules, slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpuferry.monitor.policy import (
    PLAIN,
    Decision,
    Gpu,
    Migrate,
    Place,
    Policy,
    Portion,
    Refuse,
    Request,
    Scheduler,
    Seat,
    build,
)
from gpuferry.monitor.policy.portion import FULL, Marks, count
from gpuferry.monitor.policy.session import Session

LIMIT = 25
REST = 5.0
RANKS: dict[str, Callable[[Card, Portion], tuple[int, int]]] = {
    "best-fit": lambda card, portion: (0, card.free),
    "worst-fit": lambda card, portion: (0, -card.free),
    "first-fit": lambda card, portion: (0, 0),
    "exclusive": lambda card, portion: (0, 0),
    "kubeshare": lambda card, portion: algorithm_1(card, portion),
}


def algorithm_1(card: Card, portion: Portion) -> tuple[int, int]:
    """How KubeShare ranks the GPUs that it may choose from."""
    if portion.affinity:
        return (1, -card.time) if card.here else (0, 0)
    if not portion.request and card.time <= 0:
        return (2, 0)
    if any(other.affinity for other in card.company(portion)):
        return (1, -card.time)
    return (0, card.time)


@dataclass
class Card:
    """One GPU."""

    memory: int
    labels: frozenset[str]
    homes: set[int]
    idle: set[int]
    held: dict[int, Request] = field(default_factory=dict)  # by session; by -1 - session if that leaves
    here: set[int] = field(default_factory=set)  # sessions that run here

    @property
    def free(self) -> int:
        return self.memory - sum(request.memory for request in self.held.values())

    @property
    def time(self) -> int:
        return 1000 - sum(request.portion.request for request in self.held.values())

    def company(self, portion: Portion) -> list[Portion]:
        """Those who are here and whose labels this one sees."""
        return [one.portion for one in self.held.values() if one.portion.scope == portion.scope]

    def lets_in(self, portion: Portion) -> bool:
        if portion.request and portion.request > self.time:
            return False
        others = self.company(portion)
        if any(other.exclusion != portion.exclusion for other in others):
            return False
        return not portion.anti_affinity or all(
            other.anti_affinity != portion.anti_affinity for other in others
        )


class World:
    """Tells a policy what happens, and believes nothing."""

    def __init__(
        self, fit: str, queue: str, cards: list[tuple[int, frozenset[str]]], workers: int, migration: str
    ) -> None:
        self.fit = fit
        self.queue = queue
        self.migration = migration
        self.policy: Policy = build(fit, queue, migration)
        self.now = 0.0
        self.log: list[Decision] = []
        self.cards: dict[int, Card] = {}
        self.waiting: list[Request] = []  # in order
        self.live: dict[int, Place] = {}
        self.on: dict[int, list[int]] = {}  # the GPUs of a live session
        self.moving: dict[int, tuple[Seat, Seat]] = {}  # from, to
        self.moved: dict[int, float] = {}  # and when
        self.gone: set[int] = set()  # refused, withdrawn or finished
        self.overtaken: dict[int, int] = {}
        self.arrived = 0
        for index, (memory, labels) in enumerate(cards):
            mine = {workers * index + number for number in range(workers)}
            self.cards[index] = Card(memory, labels, set(mine), set(mine))
            self.policy.add_gpu(Gpu(index, memory, labels))
            for worker in mine:
                self.policy.on_idle(index, worker)

    # -- events

    def arrive(
        self,
        memory: int,
        devices: int,
        labels: frozenset[str],
        patience: float,
        portion: Portion = PLAIN,
    ) -> None:
        request = Request(
            self.arrived, memory, "f", devices, labels, self.now, self.now + patience, portion=portion
        )
        self.arrived += 1
        self.waiting.append(request)
        self.overtaken[request.id] = 0
        self.policy.on_arrival(request, self.now)
        self.settle()

    def complete(self, session: int) -> None:
        seats = self.moving.get(session, self.live[session].seats)
        self._end(session)
        self.policy.on_complete(session, self.now)
        for seat in seats:
            self._come_back(seat)
        self.settle()

    def lose_worker(self, session: int) -> None:
        """The session's process died before it began: the guest goes back to the head of the queue."""
        place = self.live[session]
        self._end(session)
        self.gone.discard(session)
        for seat in place.seats:
            if seat.gpu in self.cards:
                self.cards[seat.gpu].homes.discard(seat.worker)
            self.policy.on_worker_lost(seat.gpu, seat.worker)
        self.policy.on_complete(session, self.now)
        self.waiting.insert(0, place.request)
        self.policy.on_arrival(place.request, self.now, first=True)
        for seat in place.seats:  # and a new one is started
            if seat.gpu in self.cards:
                self.cards[seat.gpu].homes.add(seat.worker + 1000)
                self.cards[seat.gpu].idle.add(seat.worker + 1000)
            self.policy.on_idle(seat.gpu, seat.worker + 1000)
        self.settle()

    def leave(self, request: Request) -> None:
        self.waiting.remove(request)
        self.gone.add(request.id)
        self.policy.on_leave(request.id)
        self.settle()

    def tick(self, utilisation: dict[int, float]) -> None:
        self.now += 0.25
        self.policy.on_tick(self.now, utilisation)
        self.settle()

    def launch(self, session: int) -> None:
        self.policy.on_launch(session, self.now)
        self.settle()

    def arrive_moved(self, session: int, done: bool) -> None:
        old, new = self.moving.pop(session)
        source, target = old.gpu, new.gpu
        if done:
            self.live[session] = self.live[session]._replace(seats=(new,))
            if source in self.cards:
                del self.cards[source].held[-1 - session]
        else:
            if source in self.cards:
                self.cards[source].held[session] = self.cards[source].held.pop(-1 - session)
                self.cards[source].here.add(session)
            if target in self.cards:
                del self.cards[target].held[session]
                self.cards[target].here.discard(session)
            self.on[session] = [source]
        self.policy.on_migrated(session, done, 0.1)
        self._come_back(old if done else new)
        self.settle()

    def _come_back(self, seat: Seat) -> None:
        if seat.gpu in self.cards:
            self.cards[seat.gpu].idle.add(seat.worker)
        self.policy.on_idle(seat.gpu, seat.worker)

    def remove(self, gpu: int) -> None:
        del self.cards[gpu]
        self.policy.remove_gpu(gpu)
        self.settle()

    def _end(self, session: int) -> None:
        del self.live[session]
        self.on.pop(session)
        self.moving.pop(session, None)
        self.gone.add(session)
        for card in self.cards.values():
            card.here.discard(session)
            card.held.pop(session, None)
            card.held.pop(-1 - session, None)

    # -- decisions

    def settle(self) -> None:
        while decision := self.policy.next():
            self.log.append(decision)
            if isinstance(decision, Place):
                self._check_turn(decision.request)
                self._check_place(decision)
            elif isinstance(decision, Refuse):
                self.waiting.remove(decision.request)
                self.gone.add(decision.request.id)
                late = decision.request.deadline <= self.now
                assert late or not self._ever_fits(decision.request), decision
            else:
                self._check_move(decision)
        self._check_rest()

    def _seats(self, request: Request) -> list[int]:
        """Every GPU where it could sit now."""
        wanted = self._where_its_group_is(request.portion)
        apart = self.fit == "kubeshare" and request.portion.affinity and wanted is None
        return [
            index
            for index, card in self.cards.items()
            if card.idle
            and card.lets_in(request.portion)
            and (wanted is None or index in wanted)
            and not (apart and card.company(request.portion))
            and card.free >= request.memory
            and request.labels <= card.labels
            and not (self.fit == "exclusive" and card.here)
        ]

    def _where_its_group_is(self, portion: Portion) -> list[int] | None:
        """The GPUs of those with its affinity; none while one moves; None if it is the first."""
        there = {
            (index, session)
            for index, card in self.cards.items()
            for session, other in card.held.items()
            if portion.affinity and (other.portion.affinity, other.portion.scope) == portion[2:6:3]
        }
        if not there:
            return None
        return [] if any(session < 0 for _, session in there) else [index for index, _ in there]

    def _fits(self, request: Request) -> bool:
        return len(self._seats(request)) >= request.devices

    def _ever_fits(self, request: Request) -> bool:
        able = [c for c in self.cards.values() if request.labels <= c.labels and request.memory <= c.memory]
        return len(able) >= request.devices

    def _check_turn(self, request: Request) -> None:
        position = self.waiting.index(request)
        ahead = self.waiting[:position]
        if self.queue == "fcfs":
            assert not ahead
        for other in ahead:
            self.overtaken[other.id] += 1
            assert self.overtaken[other.id] <= LIMIT
            assert not self._fits(other)
        del self.waiting[position]

    def _check_place(self, place: Place) -> None:
        request = place.request
        ranked = sorted(
            self._seats(request),
            key=lambda index: (RANKS[self.fit](self.cards[index], request.portion), index),
        )
        assert [seat.gpu for seat in place.seats] == ranked[: request.devices]
        self.live[request.id] = place
        self.on[request.id] = [seat.gpu for seat in place.seats]
        for seat in place.seats:
            card = self.cards[seat.gpu]
            assert seat.worker == min(card.idle)
            assert seat.worker in card.homes
            card.idle.remove(seat.worker)
            card.held[request.id] = request
            card.here.add(request.id)
            assert card.free >= 0

    def _check_move(self, move: Migrate) -> None:
        session = move.session
        source, target = self.cards[move.source], self.cards[move.target]
        assert self.on[session] == [move.source] == [seat.gpu for seat in self.live[session].seats]
        if self.migration == "dgsf":
            assert session not in self.moved
            assert len(source.here) > 1
            assert not target.here
        else:
            busy = {seat.gpu for seats in self.moving.values() for seat in seats}
            assert not busy & {move.source, move.target}
            assert self.now >= self.moved.get(session, -REST) + REST
        assert target.free >= self.live[session].request.memory
        request = self.live[session].request
        assert request.labels <= target.labels
        assert target.lets_in(request.portion)
        group = [
            one
            for one in source.company(request.portion)
            if one.affinity and one.affinity == request.portion.affinity
        ]
        assert len(group) <= 1, "an affinity was torn apart"
        assert move.worker == min(target.idle)
        target.idle.remove(move.worker)
        self.moved[session] = self.now
        self.moving[session] = self.live[session].seats[0], Seat(move.target, move.worker)
        self.on[session] = [move.target]
        source.held[-1 - session] = source.held.pop(session)
        source.here.remove(session)
        target.held[session] = request
        target.here.add(session)

    def _check_rest(self) -> None:
        """Nothing is lost, and nobody waits who need not."""
        waiting = [request.id for request in self.waiting]
        assert [request.id for request in self.policy.waiting()] == waiting
        assert sorted([*waiting, *self.live, *self.gone]) == list(range(self.arrived))
        self._check_books()
        if self.waiting and self.cards:
            assert not self._fits(self.waiting[0])
            most = max(self.overtaken[request.id] for request in self.waiting)
            if self.queue == "backfill" and most < LIMIT:
                assert not any(self._fits(request) for request in self.waiting)

    def _check_books(self) -> None:
        """The policy's books of time and labels are what its sessions come to, and ours."""
        assert isinstance(self.policy, Scheduler)
        for index, gpu in self.policy.gpus.items():
            assert (gpu.time, gpu.marks) == recount(self.policy.sessions, gpu)
            assert gpu.time == self.cards[index].time
            for card in (self.cards[index],):
                for one in card.held.values():
                    others = card.company(one.portion)
                    assert all(other.exclusion == one.portion.exclusion for other in others)
                    said = [other.anti_affinity for other in others if other.anti_affinity]
                    assert len(said) == len(set(said))
                assert card.time >= 0
        where: dict[tuple[str, str], set[int]] = {}
        for session, gpus in self.on.items():
            portion = self.live[session].request.portion
            if portion.affinity:
                where.setdefault((portion.scope, portion.affinity), set()).update(
                    set(gpus) & self.cards.keys()
                )
        assert all(len(gpus) <= 1 for gpus in where.values())  # of a GPU that failed, what is left is ending

    def why_each_waits(self) -> None:
        """A reason is told for whoever waits and finds no GPU, and only for those."""
        for request in self.waiting:
            if self.cards:
                assert bool(self.policy.obstacle(request)) == (not self._fits(request))


def recount(sessions: Iterable[Session], gpu: Gpu) -> tuple[int, dict[str, Marks]]:
    """The time left of the GPU and its marks, from its sessions: what its books must equal."""
    time, marks = FULL, dict[str, Marks]()
    for session in sessions:
        portion = session.request.portion
        for there in (*session.gpus, *session.leaving):
            if there is gpu:
                time -= portion.request
                marks.setdefault(portion.scope, Marks()).add(portion, 1)
        if gpu in session.leaving and portion.affinity:
            count(marks[portion.scope].leaving, portion.affinity, 1)
    return time, marks
