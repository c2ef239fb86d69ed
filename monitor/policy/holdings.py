"""What each tenant holds of a server, and what it may hold."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .company import allows, homes, leave, sit
from .fit import Room
from .gpu import Gpu
from .interface import Request
from .portion import FULL, shown_time


class Share(NamedTuple):
    """What a tenant may hold at once, and how often it has its turn against others."""

    sessions: float = math.inf
    memory: float = math.inf  # in the unit of `Request.memory`, over all GPUs
    weight: float = 1.0
    leave: int = 0  # places to those that have none
    gpus: float = math.inf  # of all its sessions: one that several have counts with each
    time: float = math.inf  # thousandths of a GPU's time promised to its sessions, over all GPUs


Shares = Callable[[str], Share]
EVERYTHING = Share()


def unlimited(_: str) -> Share:
    """The share of every tenant where nobody has set limits."""
    return EVERYTHING


@dataclass(slots=True)
class Holding:
    """What one tenant holds. A session that moves is counted once, but sits on both of its GPUs."""

    sessions: int = 0
    memory: int = 0
    gpus: int = 0
    seats: dict[int, int] = field(default_factory=dict)  # workers that are its, by index of the GPU
    memory_on: dict[int, int] = field(default_factory=dict)
    time: int = 0
    time_on: dict[int, int] = field(default_factory=dict)

    def count(self, request: Request, gpu: int, by: int) -> None:
        """Add (`by` 1) or remove (-1) one such session on this GPU."""
        if request.devices == 1:  # for one of several an API server is started
            self.seats[gpu] = self.seats.get(gpu, 0) + by
        self.memory_on[gpu] = self.memory_on.get(gpu, 0) + by * request.memory
        self.time_on[gpu] = self.time_on.get(gpu, 0) + by * request.portion.request


class Holdings:
    """The books of what all tenants hold, for whoever decides whose turn it is."""

    def __init__(self, shares: Shares = unlimited) -> None:
        self._shares = shares
        self._held: defaultdict[str, Holding] = defaultdict(Holding)

    def share(self, tenant: str) -> Share:
        """What the tenant may hold at this moment."""
        return self._shares(tenant)

    def of(self, tenant: str) -> Holding:
        """Return what the tenant holds: its sessions, memory, time and GPUs."""
        return self._held.get(tenant) or Holding()

    def begin(self, request: Request, gpus: Iterable[Gpu]) -> None:
        """A request becomes a session on these GPUs."""
        held = self._held[request.tenant]
        held.sessions += 1
        for gpu in gpus:
            held.memory += request.memory
            held.time += request.portion.request
            held.gpus += 1
            self.sit(request, gpu)

    def end(self, request: Request, gpus: Iterable[Gpu]) -> None:
        """The session on these GPUs ended."""
        held = self._held[request.tenant]
        held.sessions -= 1
        for gpu in gpus:
            held.memory -= request.memory
            held.time -= request.portion.request
            held.gpus -= 1
            self.leave(request, gpu)
        if not held.sessions:
            del self._held[request.tenant]

    def sit(self, request: Request, gpu: Gpu) -> None:
        """The session takes memory and time of this GPU too."""
        sit(request, gpu)
        self._held[request.tenant].count(request, gpu.index, 1)

    def leave(self, request: Request, gpu: Gpu) -> None:
        """The session's memory and time on this GPU are free."""
        leave(request, gpu)
        self._held[request.tenant].count(request, gpu.index, -1)

    def left(self, tenant: str) -> float:
        """Memory that the tenant may still be granted; below 0 if it may have no session more."""
        share, held = self._shares(tenant), self.of(tenant)
        if held.sessions >= share.sessions or held.gpus >= share.gpus:
            return -1.0
        return share.memory - held.memory

    def lets_have(self, request: Request) -> bool:
        """Whether the tenant's limits let it have the request now, if there is room."""
        share, held = self._shares(request.tenant), self.of(request.tenant)
        return (
            request.memory * request.devices <= self.left(request.tenant)
            and request.devices <= share.gpus - held.gpus
            and held.time + request.portion.request * request.devices <= share.time
        )

    def room_of(self, tenant: str, room: Room) -> Room:
        """The part of the room that the tenant may have."""
        share = self._shares(tenant)
        if share.memory < math.inf or share.gpus < math.inf or share.time < math.inf:
            held = self.of(tenant)
            room = room.within(self.left(tenant), share.gpus - held.gpus, share.time - held.time)
        return room.leaving(share.leave, newcomer=self._is_new(tenant, room)) if share.leave else room

    def finds_a_place_left(self, tenant: str, room: Room) -> bool:
        """Whether this is a tenant without a session, to which others leave places."""
        return self._shares(tenant).leave > 0 and self._is_new(tenant, room)

    def _is_new(self, tenant: str, room: Room) -> bool:
        """Whether it has no session, nor had several whose workers are not replaced yet."""
        return not self.of(tenant).sessions and sum(gpu.replaced.count(tenant) for gpu in room.gpus) <= 1

    def waits_for_itself(self, request: Request, room: Room) -> bool:
        """Whether the request would find no room even if all other tenants' sessions ended, or labels keep it
        from it, or its tenant has sessions, and has to leave the room that there is.
        """
        held = self.of(request.tenant)
        if held.sessions and self._shares(request.tenant).leave and room.holds(request):
            return True
        missing, memory, portion = request.devices, request.memory, request.portion
        labels, seats, memory_on, time_on = request.labels, held.seats, held.memory_on, held.time_on
        at_home = homes(portion, room.gpus) if portion.affinity else None
        for gpu in room.gpus:
            index = gpu.index
            if (
                gpu.memory - memory_on.get(index, 0) >= memory
                and seats.get(index, 0) < max(len(gpu.home), gpu.seats)  # some are just being replaced
                and labels <= gpu.labels
                and time_on.get(index, 0) + portion.request <= FULL
                and (at_home is None or gpu in at_home)
                and allows(portion, gpu)
            ):
                missing -= 1
                if not missing:
                    return False
        return True

    def why_no_more(self, tenant: str) -> str:
        """Why the tenant may not have all that there is; empty if it may."""
        leave = self._shares(tenant).leave
        return f", because something is left to other tenants (limit leave={leave})" if leave else ""

    def never(self, request: Request) -> tuple[str, bool] | None:
        """Why the tenant may never have such a session, and whether asking for less memory would help."""
        share = self._shares(request.tenant)
        if share is EVERYTHING:
            return None
        advice = f"`gpuferry tenant set {request.tenant} --"
        if share.sessions < 1:
            return (
                f"tenant {request.tenant} may have no sessions (limit sessions=0): {advice}sessions`",
                False,
            )
        if request.devices > share.gpus:
            return (
                f"{request.devices} GPUs asked for, tenant {request.tenant} may have {share.gpus:.0f} (limit "
                f"gpus): {advice}gpus`",
                False,
            )
        asked = request.memory * request.devices
        if asked > share.memory:
            return (
                f"{asked} bytes of device memory asked for, tenant {request.tenant} may have "
                f"{share.memory:.0f} (limit memory): ask for less (GPUFERRY_MEMORY), or {advice}memory`",
                True,
            )
        time = request.portion.request * request.devices
        if time > share.time:
            return (
                f"{shown_time(time)} of GPU time asked for, tenant {request.tenant} may have "
                f"{share.time / FULL:g} (limit share): ask for less (GPUFERRY_GPU_REQUEST), or "
                f"{advice}share`",
                False,
            )
        return None
