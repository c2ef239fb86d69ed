"""Turns between tenants: each has a queue of its own, and none waits for what another one piles up."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from .fit import Room
from .holdings import Holdings
from .interface import Request
from .queues import Queue

LATER = 1 << 62  # than any turn that was
FRESH_MOST = 64  # no decision has to line up more


class Turns:
    """A queue of queues. Whose turn it is follows start-time fair queueing with the tenants' weights.

    Each tenant has a due time that grows by 1/weight with each of its sessions; the earliest has its turn,
    among equals the one that waited longest for one. A tenant that begins to wait is not due before those
    that wait, so what it did not use yesterday gives it nothing today; when nobody waits, all is forgotten.
    `patience`: how often the tenant whose turn it is may be passed over because its request finds no room;
    then others wait for it. Who waits for sessions of its own to end, or for its limits, holds nobody up, and
    nobody holds up the first session of a tenant to which places are left.

    Most requests come when nobody waits, and find room. As long as that is so, those of one tenant stand in
    the order in which they came, and neither turns nor queues are kept for them.
    """

    def __init__(self, make: Callable[[], Queue], holdings: Holdings, patience: int) -> None:
        self._make = make
        self._holdings = holdings
        self._patience = patience
        self._fresh: deque[Request] = deque()  # of one tenant; nobody else waits then
        self._queues: dict[str, Queue] = {}  # of tenants that have somebody waiting
        self._tenant_of: dict[int, str] = {}
        self._due: dict[str, float] = {}
        self._turned: dict[str, int] = {}  # when each had its last turn, or, before all of these, joined
        self._line: list[tuple[float, int, str]] = []  # tenants that wait, by both
        self._count = itertools.count(1)
        self._now = 0.0  # due time of the latest turn
        self._passed_over = 0
        self._holder: str | None = None  # who was passed over so often

    def __len__(self) -> int:
        return len(self._tenant_of) + len(self._fresh)

    def waiting_of(self, tenant: str) -> int:
        """How many of this tenant wait."""
        if self._fresh and self._fresh[0].tenant == tenant:
            return len(self._fresh)
        return len(self._queues.get(tenant, ()))

    def longest(self) -> tuple[str, int]:
        """The tenant with the most waiting, and how many those are."""
        self._line_up()
        return max(((name, len(queue)) for name, queue in self._queues.items()), key=lambda one: one[1])

    def newest(self, tenant: str) -> int:
        """The request of this tenant that would be the last to have its turn."""
        self._line_up()
        *_, last = self._queues[tenant]
        return last.id

    def _enter(self, tenant: str) -> None:
        insort(self._line, (self._due[tenant], self._turned[tenant], tenant))

    def _leave(self, tenant: str) -> None:
        if len(self._line) == 1:  # as most often: then it need not be sought
            self._line.clear()
            return
        del self._line[bisect_left(self._line, (self._due[tenant], self._turned[tenant], tenant))]

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the waiting requests in the order of their turns, if all found room."""
        self._line_up()
        if len(self._queues) == 1:
            yield from next(iter(self._queues.values()))
            return
        lines = {tenant: iter(queue) for tenant, queue in self._queues.items()}
        heap = list(self._line)  # sorted, and so a heap
        turn = itertools.count(LATER)
        while heap:
            due, _, tenant = heappop(heap)
            request = next(lines[tenant], None)
            if request:
                yield request
                heappush(heap, (due + self._price(tenant), next(turn), tenant))

    def _price(self, tenant: str) -> float:
        return 1.0 / self._holdings.share(tenant).weight

    def push(self, request: Request, first: bool = False, overtaken: int = 0) -> None:
        fresh = self._fresh
        alone = not self._queues and (not fresh or fresh[0].tenant == request.tenant)
        if alone and not first and len(fresh) < FRESH_MOST:
            fresh.append(request)
            return
        self._line_up()
        self._push(request, first, overtaken)

    def _line_up(self) -> None:
        """Those that came when nobody waited stand in their tenant's queue from now on."""
        while self._fresh:
            self._push(self._fresh.popleft())

    def _push(self, request: Request, first: bool = False, overtaken: int = 0) -> None:
        tenant = request.tenant
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = self._make()
            self._due[tenant] = max(self._due.get(tenant, 0.0), self._now)
            self._turned.setdefault(tenant, next(self._count) - LATER)
            self._enter(tenant)
        queue.push(request, first, overtaken)
        self._tenant_of[request.id] = tenant
        if first:  # its turn came to nothing: it has it again
            self._leave(tenant)
            self._due[tenant] -= self._price(tenant)
            self._turned[tenant] = -next(self._count) - LATER
            self._enter(tenant)

    def pick(self, room: Room) -> tuple[Request, Room, int] | None:
        """Return the guest whose turn it is, the part of the room that its tenant may have, and the first of
        that room's changes that can have made room for it; -1: not known.
        """
        if not room.open:
            return None
        if self._fresh:
            if found := self._first_fresh(room):
                return found
            self._line_up()
        holder, held_up = None, False
        for _, _, tenant in self._line:
            left = self._holdings.left(tenant)
            if left < 0 or (held_up and not self._holdings.finds_a_place_left(tenant, room)):
                continue
            queue = self._queues[tenant]
            mine = self._holdings.room_of(tenant, room)
            picked = queue.pick(mine.usual() if held_up else mine)
            if picked:
                self._hold(holder)
                return picked, mine, queue.since(picked, mine)
            if len(self._line) == 1:
                return None  # there is nobody whom it could hold up
            head = next(iter(queue))
            if holder or not self._holdings.lets_have(head):
                continue
            if not self._holdings.waits_for_itself(head, room):
                holder = tenant
                held_up = holder == self._holder and self._passed_over >= self._patience
        return None

    def _first_fresh(self, room: Room) -> tuple[Request, Room, int] | None:
        """What `pick` returns if the first that came when nobody waited finds room."""
        request = self._fresh[0]
        if self._holdings.left(request.tenant) < 0:
            return None
        mine = self._holdings.room_of(request.tenant, room)
        return (request, mine, -1) if mine.holds(request) else None

    def _hold(self, holder: str | None) -> None:
        """Count that another tenant goes before `holder`, whose turn it is and whose request finds no room;
        None: nobody was passed over.
        """
        if holder != self._holder:
            self._holder, self._passed_over = holder, 0
        if holder:
            self._passed_over += 1

    def take(self, request: Request) -> int:
        if self._fresh:  # then it is the first of them
            self._fresh.popleft()
            return 0
        tenant = self._tenant_of.pop(request.id)
        queue = self._queues[tenant]
        overtaken = queue.take(request)
        self._leave(tenant)
        due = self._due[tenant]
        self._now = max(self._now, due)
        self._due[tenant] = due + self._price(tenant)
        self._turned[tenant] = next(self._count)
        if queue:
            self._enter(tenant)
        else:
            self._emptied(tenant)
        return overtaken

    def drop(self, request: int) -> Request | None:
        self._line_up()
        tenant = self._tenant_of.pop(request, None)
        if tenant is None:
            return None
        queue = self._queues[tenant]
        dropped = queue.drop(request)
        if not queue:
            self._leave(tenant)
            self._emptied(tenant)
        return dropped

    def find(self, request: int) -> Request | None:
        self._line_up()
        tenant = self._tenant_of.get(request)
        return None if tenant is None else self._queues[tenant].find(request)

    def _emptied(self, tenant: str) -> None:
        """Forget a tenant of which nothing waits; the caller has taken it out of the line."""
        del self._queues[tenant]
        if self._holder == tenant:
            self._holder = None  # who comes again is passed over as often again
        if not self._queues:
            self._due.clear()
            self._turned.clear()
            self._now, self._holder = 0.0, None
