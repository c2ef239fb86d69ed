"""One guest process's use of a device, as the monitor knows it."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Mapping
from typing import TypedDict

from gpuferry.specs._generated import migration_pb2, node_pb2

from ..door.guests import Guest
from ..door.handshake import Hello
from ..policy.portion import Portion
from ..pool.api_server import ApiServer
from .decision import Placement
from .lease import Lease

NO_LABELS: frozenset[str] = frozenset()


class Phase(enum.Enum):
    """How far a session is on its way to an API server."""

    WAITING = "waiting"
    GRANTED = "granted"  # the API server was told, and did not confirm yet
    RUNNING = "running"


class Names(TypedDict):
    """What policies know a session by."""

    function: str
    tenant: str
    portion: Portion


class Session:
    """One guest process's use of a device: who it is, where it is, and since when."""

    def __init__(self, number: int, hello: Hello, peer: str, guest: Guest | None) -> None:
        self.id = number
        self.hello = hello
        self.peer = peer
        self.guest = guest  # none: an earlier monitor let it in
        self.lease = Lease(number)  # its own, unless it joins that of its program
        self.phase = Phase.WAITING
        self.arrived = self.phase_began = time.monotonic()
        self.placement: Placement | None = None
        self.server: ApiServer | None = None
        self.grant: node_pb2.Grant | None = None
        self.welcome = b""  # that its guest was sent
        self.losses = 0  # API servers that ended before they served it
        self.timer: asyncio.TimerHandle | None = None
        self.minding: asyncio.TimerHandle | None = None  # until it is ended, if its API server does not
        self.wall_limit = self.idle_limit = 0.0  # seconds; 0: none
        self.told_place = (0, 0)  # place in the queue, and how many looks ago
        self.revoked: str | None = None  # why it was told to end; none: it was not
        self.restoring = False  # another GPU server hands it over, and did not finish yet
        self.file = ""  # where it is suspended
        self.file_head = b""  # how that file begins; empty: nobody said
        self.remote: migration_pb2.RemoteTarget | None = None  # the GPU server where its guest will follow
        self.watched = False  # its API server will say when it launches a kernel
        self._suspended_at: float | None = None
        self._suspended = 0.0  # seconds in all

    @property
    def running(self) -> bool:
        """Whether an API server, or a keeper, said that it has the session."""
        return self.phase is Phase.RUNNING and not self.restoring

    @property
    def founds(self) -> bool:
        """Whether it is the first session of its lease, by which policies know that."""
        return self.lease.number == self.id

    @property
    def moved_to(self) -> str:
        """HOST:PORT of the GPU server that the guest will follow it to; empty: it is here."""
        return self.remote.address if self.remote else ""

    @property
    def names(self) -> Names:
        """What policies know it by, and what it has of a device beside memory."""
        return Names(function=self.hello.function, tenant=self.hello.tenant, portion=self.hello.portion)

    @property
    def labels(self) -> frozenset[str]:
        """Those that each of its devices must have, NAME=VALUE."""
        if not self.hello.labels:  # as nearly always
            return NO_LABELS
        return frozenset(f"{name}={value}" for name, value in self.hello.labels)

    @property
    def resume_key(self) -> bytes:
        """The key with which the guest proves that the session is its own; empty: it has none yet."""
        return self.grant.resume_key if self.grant else b""

    @property
    def quota(self) -> int:
        """Bytes of device memory that were granted; 0: none yet."""
        return self.grant.memory_quota if self.grant else 0

    @property
    def age(self) -> float:
        """Seconds since the session began, without those in a file."""
        return (self._suspended_at or time.monotonic()) - self.phase_began - self._suspended

    def suspend(self, path: str, head: bytes) -> None:
        """The session is in this file now, which begins with this head, and on no device."""
        self.file, self.file_head, self._suspended_at = path, head, time.monotonic()

    def unsuspend(self) -> None:
        """The session is on a device again."""
        assert self._suspended_at is not None
        away = time.monotonic() - self._suspended_at
        self._suspended += away
        if self.id == self.lease.members[0]:  # once for a program, which is suspended as a whole
            self.lease.began += away
        self.file, self.file_head, self._suspended_at = "", b"", None

    def enter_phase(self, phase: Phase) -> None:
        """Begin a phase, which may have a time limit of its own: the timer of the one before is stopped."""
        self.phase = phase
        self.phase_began = time.monotonic()
        self.stop_timer()

    def stop_minding(self) -> None:
        """Nobody need look any more whether its time is over."""
        if self.minding:
            self.minding.cancel()

    def stop_timer(self) -> None:
        """Cancel what was to happen at the end of the present phase's time."""
        if self.timer:
            self.timer.cancel()
            self.timer = None


def holder(sessions: Mapping[int, Session], lease: int) -> Session:
    """The session that waits for the lease with this number, or has it: the first one of its program, or the
    one that is left of it.
    """
    return sessions.get(lease) or next(one for one in sessions.values() if one.lease.number == lease)
