"""Who gets which API server: first come first served, any idle one with room. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class DeviceRoom:
    """What one device has to give. All sizes in bytes."""

    ordinal: int
    grantable: int  # total less headroom
    default_quota: int
    granted: int = 0
    idle: deque[int] = field(default_factory=deque)  # API servers by their key, longest idle first

    def quota(self, memory: int) -> int:
        """What a request for `memory` (0: whatever is usual) would be granted here."""
        return memory or self.default_quota

    def has_room(self, memory: int) -> bool:
        """Whether a request can be placed now."""
        return bool(self.idle) and self.quota(memory) <= self.grantable - self.granted


@dataclass(frozen=True)
class Request:
    """A session that waits."""

    session: int
    memory: int


@dataclass(frozen=True)
class Placement:
    """A decision."""

    session: int
    device: int
    server: int
    quota: int


class FirstCome:
    """The queue and the devices, driven by events; `next` is asked until it has nothing."""

    def __init__(self) -> None:
        self.devices: dict[int, DeviceRoom] = {}
        self._queue: deque[Request] = deque()

    def add_device(self, room: DeviceRoom) -> None:
        """A device is known once its first API server is ready."""
        self.devices.setdefault(room.ordinal, room)

    def on_idle(self, device: int, server: int) -> None:
        """An API server is ready for a session."""
        self.devices[device].idle.append(server)

    def on_server_lost(self, device: int, server: int) -> None:
        """An API server is gone; it may have been idle."""
        room = self.devices.get(device)
        if room and server in room.idle:
            room.idle.remove(server)

    def refusal(self, memory: int) -> str | None:
        """Why a request could never be placed, else None."""
        most = max((room.grantable for room in self.devices.values()), default=None)
        if most is None or memory <= most:
            return None
        return f"{memory} bytes of device memory asked for, at most {most} can be granted"

    def on_arrival(self, request: Request, first: bool = False) -> None:
        """A request joins the queue; `first` if it was placed before and lost its API server at once."""
        (self._queue.appendleft if first else self._queue.append)(request)

    def on_leave(self, session: int) -> None:
        """A request was withdrawn."""
        self._queue = deque(request for request in self._queue if request.session != session)

    def on_complete(self, placement: Placement) -> None:
        """A session ended: its memory is there again (its API server comes back by `on_idle`)."""
        self.devices[placement.device].granted -= placement.quota

    def waiting(self) -> Sequence[int]:
        """Sessions in the order in which they will be served."""
        return [request.session for request in self._queue]

    def next(self) -> Placement | None:
        """Place the head of the queue, if it can be."""
        if not self._queue:
            return None
        request = self._queue[0]
        for room in self.devices.values():
            if room.has_room(request.memory):
                self._queue.popleft()
                quota = room.quota(request.memory)
                room.granted += quota
                return Placement(request.session, room.ordinal, room.idle.popleft(), quota)
        return None
