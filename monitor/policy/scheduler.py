"""The policy of DGSF and its relatives: a queue, a fit, if wanted a migration trigger, and their books."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop, heappush

from . import company
from .fit import Fit, Room
from .gpu import Gpu
from .holdings import Holdings, Shares, unlimited
from .interface import Decision, Declined, Migrate, Place, Refuse, Request, Seat, Standing
from .leaving import ever_leaving, time_ever_obtainable
from .mover import Mover
from .portion import shown_time
from .queues import OVERTAKERS, Queue
from .session import Session
from .turns import Turns

KINDS = 256  # of requests, of which it is remembered what they could ever have
GPU_LABEL = "gpu="  # before an index, of the label that only this GPU has


class Scheduler:
    """The policy that queues, a fit and, if wanted, a mover make together. Each tenant gets a queue of its
    own.
    """

    def __init__(
        self,
        queue: Callable[[], Queue],
        fit: Fit,
        mover: Mover | None = None,
        shares: Shares = unlimited,
    ) -> None:
        self._holdings = Holdings(shares)
        self._queue = Turns(queue, self._holdings, OVERTAKERS)
        self._fit = fit
        self._mover = mover
        self._gpus: dict[int, Gpu] = {}  # by ascending index
        self._sessions: dict[int, Session] = {}
        self._over: Session | None = None  # that ended last: it may come back
        self._deadlines: list[tuple[float, int]] = []
        self._decided: deque[Decision] = deque()
        self._now = -math.inf
        self._room: Room | None = None  # as it was before these changed
        self._changed: list[Gpu] = []
        self._possible: dict[tuple[frozenset[str], int, int], tuple[int, int]] = {}

    @property
    def gpus(self) -> Mapping[int, Gpu]:
        """The GPUs in service, by index."""
        return self._gpus

    @property
    def sessions(self) -> Collection[Session]:
        """The sessions that were placed and have not ended."""
        return self._sessions.values()

    def waiting(self) -> Sequence[Request]:
        return list(self._queue)

    def find(self, request: int) -> Request | None:
        return self._queue.find(request)

    def obstacle(self, request: Request) -> str:
        if not self._holdings.lets_have(request):
            return f"tenant {request.tenant} has all that its limits allow"
        if why := company.obstacle(request, self._gpus.values(), self._fit.apart, self._fit.alone):
            return why
        leave = self._holdings.share(request.tenant).leave
        if leave and not self._holdings.room_of(request.tenant, self._room_now()).holds(request):
            return f"what is free is left to tenants that have no session (limit leave={leave})"
        return ""

    def standing(self, tenant: str) -> Standing:
        held = self._holdings.of(tenant)
        return Standing(self._queue.waiting_of(tenant), held.sessions, held.memory, held.gpus, held.time)

    def crowd(self) -> tuple[str, int, int]:
        tenant, count = self._queue.longest()
        return tenant, count, self._queue.newest(tenant)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._queue)

    # -- the server

    def add_gpu(self, gpu: Gpu) -> None:
        self._gpus[gpu.index] = gpu
        self._gpus = dict(sorted(self._gpus.items()))
        self._other_gpus()

    def remove_gpu(self, gpu: int) -> None:
        gone = self._gpus.pop(gpu)
        self._other_gpus()
        if self._mover:
            self._mover.gone(gone)
        for request in self.waiting():
            self._refuse_if_hopeless(request)

    def _other_gpus(self) -> None:
        self._room = None
        self._possible.clear()

    def on_idle(self, gpu: int, worker: int) -> None:
        if found := self._gpus.get(gpu):
            found.welcome(worker)
            self._changed.append(found)

    def on_worker_lost(self, gpu: int, worker: int) -> None:
        if found := self._gpus.get(gpu):
            found.forget(worker)
            self._changed.append(found)

    def withhold(self, gpu: int, size: int) -> None:
        if found := self._gpus.get(gpu):
            found.withhold(size)
            self._changed.append(found)

    # -- requests and sessions

    def on_arrival(self, request: Request, now: float, *, first: bool = False) -> None:
        self._now = now
        over = self._over
        overtaken = over.overtaken if first and over and over.request.id == request.id else 0
        self._queue.push(request, first, overtaken)
        if request.deadline < math.inf:
            heappush(self._deadlines, (request.deadline, request.id))
        self._refuse_if_hopeless(request)

    def adopt(self, request: Request, *gpus: int) -> None:
        homes = [self._gpus[gpu] for gpu in gpus]
        for home in homes:
            home.busy += 1
        self._changed += homes
        self._holdings.begin(request, homes)
        self._sessions[request.id] = Session(request, homes, self._now)

    def on_leave(self, request: int) -> None:
        self._queue.drop(request)

    def on_complete(self, session: int, now: float) -> None:
        self._now = now
        over = self._over = self._sessions.pop(session)
        for gpu in over.gpus:
            gpu.busy -= 1
            gpu.replaced.append(over.request.tenant)
        for gpu in over.leaving:
            company.set_out(over.request, gpu, -1)
            self._holdings.leave(over.request, gpu)
        self._changed += over.gpus
        self._changed += over.leaving
        self._holdings.end(over.request, over.gpus)
        if self._mover:
            self._mover.on_complete(over, now)

    def on_tick(self, now: float, utilisation: Mapping[int, float]) -> None:
        self._now = now
        for index, sample in utilisation.items():
            if index in self._gpus:
                self._gpus[index].samples.append(sample)
        if self._mover:
            head = next(iter(self._queue), None)
            while found := self._mover.on_tick(now, self._gpus.values(), self._sessions.values(), head):
                self._move(*found)

    # -- migration

    def imbalance(self) -> tuple[int, int] | None:
        pending = self._mover.pending if self._mover else None
        return (pending[0].index, pending[1].index) if pending else None

    def on_launch(self, session: int, now: float) -> None:
        self._now = now
        found = self._sessions.get(session)
        target = self._mover.on_launch(found, now) if self._mover and found else None
        if found and target:
            self._move(found, target)

    def rehome(self, session: int, target: int) -> None:
        found = self._sessions.get(session)
        if found and any(label.startswith(GPU_LABEL) for label in found.request.labels):
            others = {label for label in found.request.labels if not label.startswith(GPU_LABEL)}
            labels = frozenset(others | {f"{GPU_LABEL}{target}"})
            found.request = found.request._replace(labels=labels)

    def request_migration(self, session: int, target: int) -> None:
        """Move the session to this GPU, as an operator wants: the decision is among the next ones. Raises
        Declined.
        """
        found, gpu = self._sessions.get(session), self._gpus.get(target)
        if not found:
            raise Declined(f"there is no session {session}")
        if not gpu:
            raise Declined(f"there is no GPU {target} in service")
        if len(found.gpus) > 1:
            raise Declined("a session of several devices moves to as many")
        if found.leaving:
            raise Declined("it is moving already")
        if gpu in found.gpus:
            raise Declined(f"it is on GPU {target} already")
        self._check_can_go(found.request, gpu)
        if company.rooted(found.request, found.gpus):
            raise Declined(company.why_rooted(found.request, found.gpus))
        if not gpu.idle:
            raise Declined(f"no API server is idle on GPU {target}")
        self._move(found, gpu)

    def _check_can_go(self, request: Request, gpu: Gpu, is_there: bool = False) -> None:
        """Raise Declined unless the GPU has the memory, time and labels for one more session. Who is there
        already needs the memory alone.
        """
        if not request.labels <= gpu.labels:
            raise Declined(f"GPU {gpu.index} lacks a label that it asked for")
        if gpu.free < request.memory:
            raise Declined(f"GPU {gpu.index} has {gpu.free} bytes to give, and {request.memory} are needed")
        if not is_there and (why_not := company.why_not_here(request.portion, gpu)):
            raise Declined(f"GPU {gpu.index}: {why_not}")

    def move_several(self, session: int, targets: Sequence[int]) -> None:
        """Move the session of several devices to these, as an operator wants, at once. Raises Declined."""
        found = self._sessions.get(session)
        if not found:
            raise Declined(f"there is no session {session}")
        if found.leaving:
            raise Declined("it is moving already")
        if len(set(targets)) != len(found.gpus):
            raise Declined(f"it has {len(found.gpus)} GPUs, and needs as many")
        for target in targets:
            gpu = self._gpus.get(target)
            if not gpu:
                raise Declined(f"there is no GPU {target} in service")
            self._check_can_go(found.request, gpu, is_there=gpu in found.gpus)
        gpus = [self._gpus[target] for target in targets]
        if set(gpus) == set(found.gpus):
            raise Declined("it is on these GPUs already")
        self._sit_on_both(found, gpus)

    def _sit_on_both(self, session: Session, targets: list[Gpu]) -> None:
        """Book a moving session on its sources and targets, until `on_migrated`."""
        self._changed += session.gpus
        self._changed += targets
        for source in session.gpus:
            source.busy -= 1
            company.set_out(session.request, source)
        for target in targets:
            target.busy += 1
            self._holdings.sit(session.request, target)
        session.gpus, session.leaving = targets, session.gpus

    def _move(self, session: Session, target: Gpu) -> None:
        (source,) = session.gpus
        self._sit_on_both(session, [target])
        session.moves += 1
        session.moved_at = self._now
        self._decided.append(Migrate(session.request.id, source.index, target.index, target.idle.pop(0)))

    def on_migrated(self, session: int, done: bool, seconds: float = 0.0) -> None:
        found = self._sessions.get(session)
        if not found or not found.leaving:
            return  # it ended on the way
        sources, found.leaving = found.leaving, []
        self._changed += sources
        self._changed += found.gpus
        for gpu in sources:
            company.set_out(found.request, gpu, -1)
        given_up = sources if done else found.gpus
        for gpu in given_up:
            self._holdings.leave(found.request, gpu)
        if not done:
            for target in found.gpus:
                target.busy -= 1
            for source in sources:
                source.busy += 1
            found.gpus = sources
        elif self._mover:
            self._mover.on_moved(found, seconds)

    def whereabouts(self, session: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if not (found := self._sessions.get(session)):
            return (), ()
        home, going = (found.leaving, found.gpus) if found.leaving else (found.gpus, [])
        return tuple(gpu.index for gpu in home), tuple(gpu.index for gpu in going)

    def adopt_move(self, session: int, *gpus: int) -> None:
        """Enter a move that an earlier monitor let begin, whether there is room or not."""
        self._sit_on_both(self._sessions[session], [self._gpus[gpu] for gpu in gpus])

    def on_return(self, request: Request, gpu: int) -> int:
        """Place a suspended session on this GPU again. Returns its worker there. Raises Declined."""
        home = self._gpus.get(gpu)
        if not home:
            raise Declined(f"there is no GPU {gpu} in service")
        self._check_can_go(request, home)
        if elsewhere := company.why_no_home(request.portion, home, self._gpus.values()):
            raise Declined(elsewhere)
        if not home.idle:
            raise Declined(f"no API server is idle on GPU {gpu}")
        if not self._holdings.lets_have(request):
            raise Declined(f"tenant {request.tenant} has all that its limits allow")
        self.adopt(request, gpu)
        return home.idle.pop(0)

    def on_join(self, gpu: int, tenant: str) -> int | None:
        home = self._gpus.get(gpu)
        if not home or not home.idle:
            return None
        room = self._holdings.room_of(tenant, self._room_now())
        if not self._fit.alone and home not in room.open:
            return None
        self._changed.append(home)
        return home.idle.pop(0)

    # -- decisions

    def next(self) -> Decision | None:
        while self._deadlines and self._deadlines[0][0] < self._now:
            self._refuse_late()
        if self._decided:
            return self._decided.popleft()
        if len(self._queue) and (picked := self._queue.pick(self._room_now())):
            request, room, since = picked
            return self._place(request, room.choose(request, since), self._queue.take(request))
        # Not before: who is not to wait at all may have been placed.
        while self._deadlines and self._deadlines[0][0] <= self._now:
            self._refuse_late()
        return self._decided.popleft() if self._decided else None

    def _refuse_late(self) -> None:
        self._refuse(heappop(self._deadlines)[1], "no GPU had room in the time it may wait")

    def _room_now(self) -> Room:
        if self._room is None:
            self._room = Room(self._gpus.values(), self._fit)
        elif self._changed:
            self._room.renew(self._changed)
        self._changed.clear()
        return self._room

    def _place(self, request: Request, gpus: list[Gpu], overtaken: int) -> Place:
        for gpu in gpus:
            gpu.busy += 1
        self._changed += gpus
        self._holdings.begin(request, gpus)
        self._sessions[request.id] = Session(request, gpus, self._now, overtaken)
        return Place(request, tuple([Seat(gpu.index, gpu.idle.pop(0)) for gpu in gpus]))

    def _refuse(self, request: int, reason: str, memory: bool = False) -> None:
        dropped = self._queue.drop(request)
        if dropped:
            self._decided.append(Refuse(dropped, reason, memory))

    def _refuse_if_hopeless(self, request: Request) -> None:
        """What no release could ever make possible; before the first GPU is known, nothing is."""
        if never := self._holdings.never(request):
            self._refuse(request.id, *never)
            return
        if not self._gpus:
            return
        leave = self._holdings.share(request.tenant).leave
        time = request.portion.request * request.devices
        if leave and time > (longest := time_ever_obtainable(self._gpus.values(), leave)):
            self._refuse(
                request.id,
                f"{shown_time(time)} of GPU time asked for, at most {shown_time(longest)} can be promised"
                + self._holdings.why_no_more(request.tenant),
            )
            return
        gpus_there, most = self._ever_possible(request.labels, request.devices, leave)
        if gpus_there < request.devices:
            wanted = f" with {', '.join(sorted(request.labels))}" if request.labels else ""
            gpus = "1 GPU" if request.devices == 1 else f"{request.devices} GPUs"
            self._refuse(request.id, f"{gpus}{wanted} asked for, there are {gpus_there}")
            return
        if request.memory > most:
            self._refuse(
                request.id,
                f"{request.memory} bytes of device memory asked for, at most {most} can be granted"
                + self._holdings.why_no_more(request.tenant),
                memory=True,
            )

    def _ever_possible(self, labels: frozenset[str], devices: int, leave: int) -> tuple[int, int]:
        """How many GPUs have these labels, and the most memory that a session could ever have on each of so
        many of them.
        """
        known = self._possible.get((labels, devices, leave))
        if known is None:
            able = [gpu for gpu in self._gpus.values() if labels <= gpu.labels]
            most = self._most_ever(able, devices, leave) if len(able) >= devices else 0
            if len(self._possible) >= KINDS:  # labels are what guests say
                self._possible.clear()
            known = self._possible[labels, devices, leave] = len(able), most
        return known

    def _most_ever(self, gpus: Sequence[Gpu], devices: int, leave: int) -> int:
        if not leave:
            return sorted((gpu.most for gpu in gpus), reverse=True)[devices - 1]
        left = ever_leaving(self._gpus.values(), leave, self._fit.alone)
        each = sorted((min(left.most.get(gpu, gpu.most), gpu.most) for gpu in gpus), reverse=True)
        return min(each[devices - 1], left.most_on_each(gpus, devices)) if devices > 1 else each[0]
