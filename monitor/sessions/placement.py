"""Between the broker's sessions and devices and the policy's requests and GPUs. No I/O, no clock."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..policy.gpu import Gpu
from ..policy.interface import Migrate, Place, Policy, Request, Standing
from ..policy.portion import PLAIN, Portion
from .decision import Impossible, Placement


@dataclass
class DeviceRoom:
    """What one device has to give, in bytes."""

    gpu: Gpu
    default_quota: int
    out: bool = False  # taken out of service

    @property
    def ordinal(self) -> int:
        """The device's number on this machine."""
        return self.gpu.index

    @property
    def grantable(self) -> int:
        """Bytes that may be granted in all: the device's memory less headroom."""
        return self.gpu.memory

    @property
    def granted(self) -> int:
        """Bytes granted to sessions on this device, those still moving here included."""
        return self.gpu.promised


class Placer:
    """The devices and the queue, driven by events; `next` is asked until it has nothing."""

    def __init__(self, policy: Policy, expected: int = 0) -> None:
        """`expected`: how many devices this machine has, known or not yet."""
        self._policy = policy
        self._expected = expected
        self._absent: set[int] = set()  # devices that failed before they were known
        self._early: dict[int, Request] = {}  # came before as many devices were known as they ask for
        self._usual = 0  # the smallest of the devices' default quotas
        self.devices: dict[int, DeviceRoom] = {}

    # -- devices and API servers

    def add_device(
        self,
        ordinal: int,
        grantable: int,
        default_quota: int,
        labels: frozenset[str],
        seats: int = 0,
        largest: int = 0,
    ) -> bool:
        """An API server is ready on the device, which is to have `seats` of them. `largest`: what one session
        may have; 0: all. Returns whether the device was not known, or was out.
        """
        room = self.devices.get(ordinal)
        if room and not room.out:
            return False
        if not room:
            gpu = Gpu(ordinal, grantable, labels, default_quota, seats, largest)
            room = self.devices[ordinal] = DeviceRoom(gpu, default_quota)
            self._usual = min(one.default_quota for one in self.devices.values())
        room.out = False
        self._absent.discard(ordinal)
        self._policy.add_gpu(room.gpu)
        return True

    def remove_device(self, ordinal: int) -> bool:
        """The device failed: nothing is placed there any more. Returns whether it was in service."""
        room = self.devices.get(ordinal)
        if not room:
            self._absent.add(ordinal)
        if not room or room.out:
            return False
        room.out = True
        self._policy.remove_gpu(ordinal)
        room.gpu.home.clear()
        room.gpu.idle.clear()
        return True

    def on_idle(self, device: int, server: int) -> None:
        """An API server is ready for a session."""
        self._policy.on_idle(device, server)

    def on_server_lost(self, device: int, server: int) -> None:
        """An API server is gone; it may have been idle."""
        self._policy.on_worker_lost(device, server)

    def withhold(self, device: int, size: int) -> None:
        """Let so many bytes of the device not be granted for now."""
        if device in self.devices:
            self._policy.withhold(device, size)

    # -- sessions

    def arrive(
        self,
        session: int,
        memory: int,
        labels: frozenset[str],
        now: float,
        *,
        first: bool = False,
        function: str = "",
        tenant: str = "",
        devices: int = 1,
        portion: Portion = PLAIN,
    ) -> None:
        """A session joins the queue; `first` if it was placed before and lost its API server at once."""
        early = self._is_early(devices)
        wanted = memory if early else memory or self._usual
        request = Request(session, wanted, function, devices, labels, now, math.inf, tenant, portion)
        if early:
            self._early[session] = request
        else:
            self._policy.on_arrival(request, now, first=first)

    def _is_early(self, devices: int) -> bool:
        """Whether so many devices are needed, more than are known, and more may be known soon."""
        known = len(self.devices)
        return not known or (devices > known and self._expected - known - len(self._absent) > 0)

    def let_in_early(self, now: float) -> None:
        """One more device is known, or will not be: enter those for whom that is enough."""
        for request in [one for one in self._early.values() if not self._is_early(one.devices)]:
            del self._early[request.id]
            usual = request._replace(memory=request.memory or self._usual, arrival=now)
            self._policy.on_arrival(usual, now)

    def adopt(
        self,
        session: int,
        devices: Sequence[int],
        quota: int,
        labels: frozenset[str] = frozenset(),
        function: str = "",
        tenant: str = "",
        portion: Portion = PLAIN,
    ) -> None:
        """Enter a session that an earlier monitor granted, whether there is room or not."""
        request = Request(session, quota, function, len(devices), labels, tenant=tenant, portion=portion)
        self._policy.adopt(request, *devices)
        if len(devices) == 1:  # which need not be the one that it asked for at first
            self._policy.rehome(session, devices[0])

    def standing(self, tenant: str) -> Standing:
        """What the tenant has here: waiting, sessions, memory."""
        found = self._policy.standing(tenant)
        early = sum(request.tenant == tenant for request in self._early.values())
        return found._replace(waiting=found.waiting + early) if early else found

    def crowd(self) -> tuple[str, int, int] | None:
        """The tenant with the most waiting sessions, how many, and which has its turn last; None before any
        device is known.
        """
        return self._policy.crowd() if len(self._policy) else None

    def on_leave(self, session: int) -> None:
        """The session does not want to wait any more."""
        if self._early.pop(session, None) is None:
            self._policy.on_leave(session)

    def on_complete(self, session: int, now: float) -> None:
        """The session ended and its memory is free; its API server comes back by `on_idle`."""
        self._policy.on_complete(session, now)

    def on_join(self, device: int, tenant: str = "") -> int | None:
        """Give one more process of a session's program an idle API server of its device. None: there is
        none, or it is left to other tenants.
        """
        return self._policy.on_join(device, tenant)

    # -- migration

    def rehome(self, session: int, device: int) -> None:
        """This device is the one that it wants, if it asked for one."""
        self._policy.rehome(session, device)

    def request_migration(self, session: int, device: int) -> None:
        """Move the session to this device, as an operator wants: the decision is among the next ones.
        Raises Declined.
        """
        self._policy.request_migration(session, device)

    def move_several(self, session: int, devices: Sequence[int]) -> None:
        """Move the session of several devices to these; it is in the books at once. Raises Declined."""
        self._policy.move_several(session, devices)

    def whereabouts(self, session: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The devices where the session is, and those to which it is moving, as the policy knows it."""
        return self._policy.whereabouts(session)

    def adopt_move(self, session: int, devices: Sequence[int]) -> None:
        """Enter a move that an earlier monitor let begin: the session holds memory on these devices too."""
        self._policy.adopt_move(session, *devices)

    def on_return(
        self,
        session: int,
        device: int,
        quota: int,
        labels: frozenset[str] = frozenset(),
        function: str = "",
        tenant: str = "",
        portion: Portion = PLAIN,
    ) -> int:
        """Place a suspended session on this device again. Returns its API server there. Raises Declined."""
        request = Request(session, quota, function, labels=labels, tenant=tenant, portion=portion)
        return self._policy.on_return(request, device)

    def on_migrated(self, session: int, done: bool, seconds: float = 0.0) -> None:
        """A migration ended: the session's memory is on the new device only, or on the old one if not `done`.

        `seconds`: how long the program stood still.
        """
        self._policy.on_migrated(session, done, seconds)

    def on_launch(self, session: int, now: float) -> None:
        """The session is about to launch a kernel."""
        self._policy.on_launch(session, now)

    def on_tick(self, now: float, utilisation: Mapping[int, float]) -> None:
        """Time passed. `utilisation`: share of time, 0 to 1, for which each device was busy."""
        self._policy.on_tick(now, utilisation)

    def imbalance(self) -> tuple[int, int] | None:
        """(from, to), while the next launch on the first may bring a migration to the second; else None."""
        return self._policy.imbalance()

    def waiting(self) -> Sequence[int]:
        """Sessions in the order in which they stand in the queue."""
        return [*self._early, *(request.id for request in self._policy.waiting())]

    def obstacle(self, session: int) -> str:
        """Why no device takes the waiting session at this moment; empty: only others are before it."""
        request = self._policy.find(session)
        return self._policy.obstacle(request) if request else ""

    def obstacles(self, most: int) -> Mapping[int, str]:
        """Why no device takes them: of the first so many that wait, those for whom that is so. Of others,
        only those before them are in the way.
        """
        found = dict.fromkeys(itertools.islice(self._early, most), "no device is ready yet")
        for request in self._policy.waiting()[: max(most - len(found), 0)]:
            if why := self._policy.obstacle(request):
                found[request.id] = why
        return found

    def __len__(self) -> int:
        """How many wait."""
        return len(self._early) + len(self._policy)

    def next(self) -> Placement | Impossible | Migrate | None:
        """The next decision, entered in the policy's books already; None: there is none now."""
        decision = self._policy.next()
        if isinstance(decision, Place):
            request, seats = decision.request, sorted(decision.seats)
            if len(seats) == 1:
                return Placement(request.id, decision.gpu, decision.worker, request.memory)
            devices, servers = zip(*seats, strict=True)
            return Placement(request.id, devices[0], servers[0], request.memory, devices, servers)
        if decision is None or isinstance(decision, Migrate):
            return decision
        return Impossible(decision.request.id, decision.reason, decision.memory)
