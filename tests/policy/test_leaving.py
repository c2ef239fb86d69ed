"""Places that a tenant leaves to those that have none: whoever comes finds one, whatever others ask for."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter

import pytest
from gpuferry.monitor.policy import Gpu, Migrate, Place, Refuse, Request, Scheduler, Share, build
from gpuferry.monitor.settings.limits import Limits
from gpuferry.monitor.tenants.tenancy import Source, Tenancy
from hypothesis import given
from hypothesis import strategies as st

MEMORY, SEATS = 100, 4
USUAL = MEMORY // SEATS


class Server:
    """GPUs of four places each, a clock, and everything that happens later by that."""

    def __init__(
        self, gpus: int = 1, seats: int = SEATS, fit: str = "best-fit", queue: str = "fcfs", **leave: int
    ) -> None:
        shares = {name: Share(leave=count) for name, count in leave.items()}
        self.policy: Scheduler = build(fit, queue, shares=lambda name: shares.get(name, Share(leave=1)))
        self.now = 0.0
        self._later: list[tuple[float, int, str, Place]] = []
        self._count = itertools.count()
        self.lasts: dict[int, float] = {}
        self.began: dict[int, float] = {}
        self.arrived: dict[int, float] = {}
        self.refused: list[Refuse] = []
        self.live: dict[int, Place] = {}
        self.cards = {index: Gpu(index, MEMORY, usual=MEMORY // seats, seats=seats) for index in range(gpus)}
        for index, gpu in self.cards.items():
            self.policy.add_gpu(gpu)
            for seat in range(seats):
                self.policy.on_idle(index, index * seats + seat)

    def arrive(self, tenant: str, memory: int = USUAL, lasts: float = 1e9, devices: int = 1) -> int:
        number = next(self._count)
        self.lasts[number], self.arrived[number] = lasts, self.now
        self.policy.on_arrival(Request(number, memory, tenant=tenant, devices=devices), self.now)
        self.settle()
        return number

    def settle(self) -> None:
        while decision := self.policy.next():
            assert not isinstance(decision, Migrate)
            if isinstance(decision, Refuse):
                self.refused.append(decision)
                continue
            number = decision.request.id
            self.live[number] = decision
            if len(decision.seats) > 1:  # an API server is started for it
                for gpu, worker in decision.seats:
                    self.policy.on_idle(gpu, worker)
            self.began[number] = self.now
            heapq.heappush(self._later, (self.now + self.lasts[number], number, "end", decision))

    def until(self, time: float, restart: float = 0.3) -> None:
        """Let sessions end, and their workers be replaced, till then."""
        while self._later and self._later[0][0] <= time:
            self.now, number, what, place = heapq.heappop(self._later)
            if what == "end":
                del self.live[number]
                self.policy.on_complete(number, self.now)
                if len(place.seats) == 1:
                    self.policy.on_worker_lost(place.gpu, place.worker)
                    heapq.heappush(self._later, (self.now + restart, number, "back", place))
            else:
                self.policy.on_idle(place.gpu, place.worker)
            self.settle()
        self.now = time

    def waited(self, number: int) -> float:
        return self.began[number] - self.arrived[number]

    def places(self) -> int:
        """Usual sessions that could begin now."""
        return sum(min(len(gpu.idle), max(gpu.free, 0) // gpu.usual) for gpu in self.cards.values())


@pytest.mark.some(6)
@pytest.mark.parametrize("lasts", [0.0, 0.01, 0.5, 5.0, 1e9])
@pytest.mark.parametrize("fit", ["best-fit", "worst-fit", "first-fit"])
def test_a_bystander_beside_a_crowd_waits_for_a_worker_to_be_replaced_at_most(fit: str, lasts: float) -> None:
    """The crowd of tests/adversity/bystander.py, by a clock: 150 that come and go, all the time."""
    server = Server(fit=fit)
    runs = []
    for step in range(400):
        server.until(step * 0.1)
        for _ in range(5):
            server.arrive("attacker", lasts=lasts)
        if step % 7 == 0:
            runs.append(server.arrive("bystander", lasts=0.2))
    server.until(60.0)
    assert max(server.waited(run) for run in runs) <= 0.3 + 1e-9


def test_sessions_that_end_at_once_leave_places_too() -> None:
    """A crowd that hangs up: it has no session at any time, and yet each takes a worker."""
    server = Server()
    for _ in range(300):
        server.arrive("attacker", lasts=0.0)
    for step in range(1, 100):
        server.until(step * 0.05)
        server.arrive("attacker", lasts=0.0)
        if step % 20 == 0:
            assert server.places() >= 1
            assert server.waited(server.arrive("bystander", lasts=0.1)) == 0.0


@pytest.mark.parametrize("memory", [USUAL, 2 * USUAL, 3 * USUAL])
def test_memory_is_left_too(memory: int) -> None:
    server = Server()
    for _ in range(10):
        server.arrive("attacker", memory)
    assert server.live
    assert server.waited(server.arrive("bystander")) == 0.0


def test_who_asks_for_more_than_others_leave_is_told_why() -> None:
    server = Server()
    server.arrive("attacker", 3 * USUAL + 1)
    (refusal,) = server.refused
    assert refusal.memory
    assert "at most 75" in refusal.reason
    assert "left to other tenants (limit leave=1)" in refusal.reason


def test_a_place_may_be_on_any_gpu() -> None:
    server = Server(gpus=2)
    server.arrive("big", MEMORY)
    assert len(server.live) == 1
    server.arrive("big", MEMORY)
    assert len(server.live) == 1
    assert server.waited(server.arrive("other")) == 0.0


def test_sessions_of_several_gpus_leave_a_place_too() -> None:
    """Each may be one that a session of one GPU could have, but not on all of them at once."""
    server = Server(gpus=2, seats=2)
    for _ in range(3):
        server.arrive("attacker", MEMORY // 2, devices=2)
    assert len(server.live) == 1
    (waits, _) = server.policy.waiting()
    assert "left to tenants that have no session (limit leave=1)" in server.policy.obstacle(waits)
    assert server.waited(server.arrive("bystander", MEMORY // 2)) == 0.0
    server.arrive("attacker", MEMORY, devices=2)  # at most 50: with 51 it has all that there is
    (refusal,) = server.refused
    assert "at most 50 can be granted, because something is left" in refusal.reason
    server = Server(gpus=3, fit="exclusive")
    server.arrive("attacker", devices=3)
    assert not server.live
    server.arrive("attacker", devices=2)
    assert len(server.live) == 1


@pytest.mark.parametrize("fit", ["best-fit", "exclusive"])
def test_a_server_of_one_place_has_none_to_leave(fit: str) -> None:
    server = Server(seats=1 if fit == "best-fit" else 4, fit=fit)
    server.arrive("only", MEMORY)
    assert len(server.live) == 1


def test_a_gpu_is_left_where_each_session_has_one_alone() -> None:
    server = Server(gpus=3, fit="exclusive")
    for _ in range(5):
        server.arrive("attacker", MEMORY)
    assert len(server.live) == 2
    assert server.waited(server.arrive("bystander", MEMORY)) == 0.0


def test_who_leaves_nothing_takes_all() -> None:
    server = Server(trusted=0)
    for _ in range(5):
        server.arrive("trusted")
    assert len(server.live) == SEATS


def test_who_waits_for_room_holds_up_no_first_session() -> None:
    server = Server()
    server.arrive("notebook")
    server.arrive("big", 3 * USUAL)  # not as long as the notebook is there
    for run in range(60):
        number = server.arrive(f"tenant-{run}", lasts=0.1)
        assert server.waited(number) == 0.0
        server.until(server.now + 1.0)


@pytest.mark.parametrize(("seats", "has"), [(1, 0), (2, 0), (2, 2)])
def test_who_wants_several_gpus_gets_them_beside_those_who_come_and_go(seats: int, has: int) -> None:
    """While a worker was being replaced, it seemed to wait for sessions of its own, of which it had none, or
    such as need no worker of the pool: and how often it had been passed over was forgotten.
    """
    server = Server(gpus=2, seats=seats, crowd=0, patient=0)
    for _ in range(has):
        server.arrive("patient", 10, devices=2)
    for step in range(100):
        server.until(step * 0.25)
        for _ in range(seats):
            server.arrive("crowd", 30, lasts=1.0)
        if step == 4:
            waits = server.arrive("patient", 60, devices=2)
    assert server.waited(waits) < 20.0


def test_processes_of_a_program_leave_places_too() -> None:
    server = Server(seats=2)
    server.arrive("attacker", 50)
    assert server.policy.on_join(0, "attacker") is None
    assert Server(trusted=0).policy.on_join(0, "trusted") is not None


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 120), st.floats(0.1, 5), st.integers(1, 3)),
        max_size=60,
    ),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(["fcfs", "backfill"]),
)
def test_nobody_with_a_session_takes_the_last_places(
    arrivals: list[tuple[str, int, float, int]], gpus: int, seats: int, leave: int, queue: str
) -> None:
    server = Server(gpus, seats, queue=queue, a=leave, b=leave, c=leave)
    place = server.policy._place

    def checked(request: Request, where: list[Gpu], overtaken: int) -> Place:
        first, before = not server.policy.standing(request.tenant).sessions, server.places()
        decision: Place = place(request, where, overtaken)
        if request.devices > 1:  # its API server is started for it
            for gpu, worker in decision.seats:
                server.cards[gpu].welcome(worker)
        if not (first and request.devices == 1 and request.memory <= MEMORY // seats):
            taken_as_left = first and before - server.places() <= 1
            assert taken_as_left or server.places() >= min(leave, gpus * seats - 1)
        return decision

    server.policy._place = checked  # type: ignore[method-assign, assignment]
    for number, (tenant, memory, lasts, devices) in enumerate(arrivals):
        server.until(number * 0.5)
        server.arrive(tenant, memory, lasts, devices)
    server.until(1e4)
    assert not server.policy.waiting()


def test_where_one_tenant_may_come_it_leaves_nothing() -> None:
    tenancy = Tenancy({"batch": "leave=0", "wide": "leave=3"})
    tenants = ("acme", "batch", "wide", "")

    def leaves() -> list[int]:
        return [tenancy.share(name).leave for name in tenants]

    assert leaves() == [0, 0, 0, 0]
    assert tenancy.know(Source.MACHINE, {"acme"})
    assert not tenancy.know(Source.MACHINE, {"acme"})
    assert tenancy.know(Source.CLUSTER, {"acme"})
    assert leaves() == [0, 0, 0, 0]
    assert tenancy.know(Source.CLUSTER, {"batch", "wide"})
    assert leaves() == [1, 0, 3, 0]  # the operator's own sessions leave nothing
    tenancy.update(Source.MACHINE, {"acme": Limits(leave=2)})
    assert leaves() == [2, 0, 3, 0]
    assert tenancy.know(Source.CLUSTER, set())
    assert Counter(leaves()) == {0: 4}


def test_chance_finds_no_crowd_that_takes_all() -> None:
    rng = random.Random(1)
    for _ in range(200):
        server = Server(gpus=rng.randint(1, 3), seats=rng.randint(2, 5))
        for _ in range(rng.randint(1, 40)):
            server.arrive("attacker", rng.randint(1, 120), rng.choice([0.1, 1e9]))
            server.until(server.now + rng.random())
        server.until(server.now + 1.0)
        assert server.waited(server.arrive("bystander", 100 // len(server.cards[0].home))) == 0.0
