"""The last step of a lease: an API server gets the socket of the guest that it was granted.

Waking an API server takes the core from the monitor, or from another guest of a crowd. So a guest that is
alone is handed over at once; those of a crowd are when it hushes (monitor/DESIGN.md, "A crowd").
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping

import structlog
from gpuferry.specs._generated import node_pb2

from ..door.guests import Guest
from ..door.handshake import LIFE_MOST
from ..pool.api_server import ApiServer
from ..pool.channel import ChannelBroken
from ..service.patience import HEARD_SECONDS, Patience
from ..sessions.book import opened
from ..sessions.session import Session
from ..settings.monitor import Config
from ..tenants.tenancy import Tenancy
from .portions import said

HUSH_SECONDS = 0.002  # without another guest: then a crowd is handed over
WAIT_SECONDS = 0.05  # for which a granted session waits at most for a hush

log = structlog.get_logger()


class HandOver:
    """Sessions that were granted, until their guests have WELCOME and their API servers have the sockets."""

    def __init__(
        self,
        config: Config,
        tenancy: Tenancy,
        begin: Callable[[ApiServer, node_pb2.Grant], None],
        revocations: Mapping[str, Iterable[float]],
    ) -> None:
        """`revocations`: those that were carried out, by tenant."""
        self._config = config
        self._tenancy = tenancy
        self._revocations = revocations
        self._begin = begin  # enters how much of a session may be on its device
        self._granted: dict[int, Session] = {}  # by API server, which does not have the guest's socket yet
        self._welcomes: list[tuple[Guest, bytes]] = []  # of those granted that were not told yet
        self._timer: asyncio.TimerHandle | None = None
        self._latest_arrival = 0.0

    def grant(self, session: Session) -> None:
        """The session has its API server and its Grant: hand it over with the next `flush`."""
        assert session.server
        self._granted[session.server.key] = session

    def welcome(self, guest: Guest, frame: bytes) -> None:
        """Send the guest this WELCOME frame with the next `send_welcomes`."""
        self._welcomes.append((guest, frame))

    def send_welcomes(self) -> None:
        """Send the WELCOME frames that are due, one after the other."""
        welcomes, self._welcomes = self._welcomes, []
        for guest, frame in welcomes:
            guest.welcome(frame)

    def forget(self, server: int) -> None:
        """The API server with this key is gone: what it was granted must be granted anew."""
        self._granted.pop(server, None)

    def arrived(self, moment: float) -> None:
        """Another guest came, at this time of the monotonic clock: where one comes, more may follow."""
        self._latest_arrival = moment

    def quiet(self) -> None:
        """No guest is at the door: one that was alone is handed over; after several, more may come."""
        if len(self._granted) == 1:
            self.flush()

    def flush_in_a_hush(self) -> None:
        """See that everything granted is handed over soon: in a hush, or when it has waited long enough."""
        if self._granted and not self._timer:
            self._timer = asyncio.get_running_loop().call_later(HUSH_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        since = min((session.phase_began for session in self._granted.values()), default=now)
        if now < self._latest_arrival + HUSH_SECONDS and now < since + WAIT_SECONDS:
            self.flush_in_a_hush()
        else:
            self.flush()

    def flush(self) -> None:
        """Hand over everything that was granted, first come first."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._granted:
            self._hand(self._granted.pop(next(iter(self._granted))))

    def _hand(self, session: Session) -> None:
        guest, server = session.guest, session.server
        assert guest
        assert server
        grant = session.grant = self._grant_of(session, guest)
        self._begin(server, grant)
        session.restoring = grant.restore
        guest.connection.setblocking(True)  # a property of the open file, so the API server inherits it
        try:
            message = node_pb2.ToServer(grant=grant)
            message.grant.welcomed = True
            with opened(session.lease.book if session.id in session.lease.sharing else None) as beside:
                server.send(message, guest.connection, *beside)
        except (ChannelBroken, OSError):
            server.kill()  # its end brings the session back into the queue
            return
        self._mind_start(session, Patience(server.pid, self._config.start_timeout))

    def _grant_of(self, session: Session, guest: Guest) -> node_pb2.Grant:
        hello, placement = session.hello, session.placement
        assert placement
        wall = self._tenancy.limits(hello.tenant).wall
        ours = _shorter(
            self._config.wall_limit, 0.0 if wall in (None, math.inf) else min(wall or 0.0, LIFE_MOST)
        )
        session.wall_limit = _shorter(ours, hello.wall_limit)
        session.idle_limit = _shorter(self._config.idle_limit, hello.idle_limit)
        lease, age = session.lease, hello.restore.age if hello.restore else 0.0
        if session.founds:
            lease.limit(age, session.wall_limit, session.idle_limit)
        else:
            left = lease.wall_left()
            session.wall_limit, session.idle_limit = left and age + left, lease.idle_limit
        return node_pb2.Grant(
            session=session.id,
            memory_quota=placement.quota,
            welcome_proof=guest.welcome_proof,
            tenant=hello.tenant,
            function=hello.function,
            program=hello.program,
            guest_pid=hello.pid,
            guest_nonce=hello.nonce,
            peer=session.peer,
            wall_seconds=session.wall_limit,
            idle_seconds=session.idle_limit,
            resume_seconds=self._config.resume_grace if hello.resumable else 0,
            resume_key=guest.resume_key,
            restore=hello.restore is not None,
            age_seconds=age,
            limited=hello.agreement.spoken is not None,
            operations=sorted(hello.agreement.spoken or ()),
            guest_version=hello.agreement.version,
            revocations=self._revocations.get(hello.tenant, ()),
            host_memory=self._config.host_memory,
            program_id=lease.program,
            lease=lease.number,
            seat=lease.seats[session.id],
            edition=lease.book.edition if lease.book else 0,
            portion=said(hello.portion, node_pb2.Portion),
            labels=sorted(session.labels),
        )

    def _mind_start(self, session: Session, patience: Patience) -> None:
        """Look again when the API server may be late. What it may have said while this process had no
        processor is heard first.
        """
        left = patience.left()
        call = self._mind_start if left > HEARD_SECONDS else self._never_started
        session.timer = asyncio.get_running_loop().call_later(
            max(left, HEARD_SECONDS), call, session, patience
        )

    def _never_started(self, session: Session, patience: Patience) -> None:
        if patience.left() > 0:
            self._mind_start(session, patience)
        elif session.server:
            log.error(
                "grant not taken in time",
                session=session.id,
                server=session.server.pid,
                seconds=round(patience.passed(), 1),
                waited_for_processor=round(patience.starved(), 1),
            )
            session.server.kill("it did not take a session that it was granted in time (--start-timeout)")


def _shorter(ours: float, theirs: float) -> float:
    """Of two limits, of which 0 is none."""
    return min(ours, theirs) if ours and theirs else ours or theirs
