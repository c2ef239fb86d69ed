"""A lease is for a program: its first process waits for it, all others join it and never queue."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog
from gpuferry.specs._generated import node_pb2

from ..moves.custody import Custody
from ..pool.api_server import State
from ..pool.channel import ChannelBroken
from ..pool.pool import Pool
from ..sessions.book import Book
from ..sessions.decision import Placement
from ..sessions.lease import Lease
from ..sessions.placement import Placer
from ..sessions.session import Session
from ..tenants.tenancy import Tenancy

TO_BE_STARTED = -1  # in place of an API server

log = structlog.get_logger()


class Programs:
    """The programs that have, or wait for, a lease, and the processes that join one. `most`: processes of one
    program.
    """

    def __init__(
        self,
        sessions: Mapping[int, Session],
        placer: Placer,
        pool: Pool,
        custody: Custody,
        tenancy: Tenancy,
        folder: Path,
        most: int,
    ) -> None:
        self._sessions = sessions
        self._placer = placer
        self._pool = pool
        self._custody = custody
        self._tenancy = tenancy
        self._folder = folder
        self._most = most
        self._leases: dict[bytes, Lease] = {}  # by program
        self._joining: dict[int, Session] = {}
        self._wished = Counter[int]()  # API servers that were asked for, by device
        self._more = Counter[str]()  # sessions that share a lease with an older one, by tenant

    def more(self, tenant: str) -> int:
        """How many sessions the tenant has beside those that founded a lease."""
        return self._more[tenant]

    # -- who comes

    def why_not(self, session: Session) -> str | None:
        """Why this process may not come, of a program that is here or of a new one; None: it may."""
        lease = self._lease(session.hello.program_id)
        if lease is None:
            return self.why_no_more(session.hello.tenant)
        devices = self._devices(lease)
        if session.hello.devices > devices:
            return (
                f"the program has {devices} GPU{'s' * (devices > 1)}, which its first process asked for, and "
                f"this process wants {session.hello.devices}: start the program with as many"
            )
        if lease.processes >= self._most:
            return (
                f"the program has {lease.processes} processes that use CUDA, of {self._most} that it may "
                "have at once: end some, or ask the operator for more (`gpuferry monitor --processes`)"
            )
        return self.why_no_more(session.hello.tenant)

    def why_no_more(self, tenant: str, counted: int = 0) -> str | None:
        """Why the tenant may have no other process with a session; None: it may. `counted`: those that are in
        the books already, and are asked about.
        """
        limit = self._tenancy.limits(tenant).processes
        if limit is None or limit == math.inf:
            return None
        has = self._placer.standing(tenant).sessions + self._more[tenant] - counted
        if has < limit:
            return None
        return (
            f"tenant {tenant} has {has} of {limit:.0f} processes (limit processes): end some, or ask the "
            f"operator for more (`gpuferry tenant set {tenant} --processes`)"
        )

    def _devices(self, lease: Lease) -> int:
        """How many devices the lease has, or waits for: as many as its first process asked for."""
        members = [self._sessions[one] for one in lease.members if one in self._sessions]
        return max(
            (len(one.server.devices) if one.server else one.hello.devices for one in members), default=1
        )

    def enter(self, session: Session) -> bool:
        """Whether the session joins a lease; else it founds one, for which it has to queue."""
        program = session.hello.program_id
        lease = self._lease(program)
        if lease is None:
            if program:
                self._leases[program] = session.lease = Lease(session.id, program)
            session.lease.portion, session.lease.labels = session.hello.portion, session.hello.labels
            return False
        session.lease = lease
        session.hello = session.hello._replace(portion=lease.portion, labels=lease.labels)
        self._join(session)
        return True

    def _lease(self, program: bytes) -> Lease | None:
        """The lease of a program that is here. Nobody joins one that has gone to another GPU server."""
        lease = self._leases.get(program) if program else None
        return None if lease is None or self._has_left(lease) else lease

    def _has_left(self, lease: Lease) -> bool:
        """Whether all of the program has gone to another GPU server; its guests may yet have to follow."""
        members = [self._sessions[one] for one in lease.members if one in self._sessions]
        return bool(members) and all(one.moved_to for one in members)

    def _join(self, session: Session) -> None:
        session.lease.joining.append(session.id)
        self._joining[session.id] = session
        self._more[session.hello.tenant] += 1

    @property
    def joining(self) -> list[Session]:
        """Sessions that wait for their API server, in the order in which they came."""
        return list(self._joining.values())

    def returned(self, session: Session, grant: node_pb2.Grant) -> None:
        """A session of an earlier monitor is back."""
        number = grant.lease or session.id
        lease = self._known(session, number, grant.program_id)
        if first := lease is None:
            lease = Lease(number, grant.program_id)
            lease.members.clear()
            lease.seats.clear()
            lease.portion, lease.labels = session.hello.portion, session.hello.labels
            lease.limit(session.age, session.wall_limit, session.idle_limit)
            if grant.program_id:
                self._leases[grant.program_id] = lease
        assert lease
        session.lease = lease
        lease.members.append(session.id)
        lease.seats[session.id] = grant.seat
        if grant.seat or grant.edition:
            edition = max(grant.edition - grant.restore, 0)  # that of who has it yet is the one before
            if lease.book is None or lease.book.edition < edition:
                lease.book = Book(self._folder, lease.number, edition)
            lease.asked.add(session.id)
            lease.sharing.add(session.id)
        if not first:
            self._more[session.hello.tenant] += 1

    def _known(self, session: Session, number: int, program: bytes) -> Lease | None:
        """The lease with this number, if another process of the program is back with it. A process that came
        before them may have founded another.
        """
        found = self._leases.get(program) if program else None
        if found is None or found.number == number:
            return found
        others = (one.lease for one in self._sessions.values() if one is not session)
        return next((one for one in others if one.number == number), None)

    # -- who gets an API server

    def next(self) -> tuple[Session, Placement] | None:
        """A session that gets this API server now, or one on these devices that is to be started; None: none
        does.
        """
        wanted = Counter[int]()
        found = None
        for session in self._joining.values():
            host = self._host(session.lease)
            if host is None or not self._shares(session.lease):
                continue
            assert host.server
            device = host.server.device
            tenant = session.hello.tenant
            if host.server.own:
                found = found or (
                    session,
                    Placement(session.id, device, TO_BE_STARTED, host.quota, host.server.devices),
                )
            elif found is None and (server := self._placer.on_join(device, tenant)) is not None:
                found = session, Placement(session.id, device, server, host.quota)
            else:
                wanted[device] += 1
        self._wish(wanted)
        if found:
            session = found[0]
            del self._joining[session.id]
            session.lease.take_seat(session.id)
        return found

    def hopeless(self) -> Iterator[tuple[Session, str]]:
        """Sessions that join where no further API server can be, and why."""
        for session in self.joining:
            host = self._host(session.lease)
            if host is None or host.server is None or host.server.own:
                continue
            device = host.server.device
            here = [one for one in self._pool.servers.values() if one.device == device]
            starting = any(one.state in (State.STARTING, State.IDLE) for one in here)
            if not starting and not self._pool.can_start(device):
                yield (
                    session,
                    f"GPU {device} has no memory for another API server, and a process of a program "
                    "needs its own: end other sessions, or use fewer processes",
                )

    def _host(self, lease: Lease) -> Session | None:
        """A member whose place the others share; None while there is none, or it is on its way elsewhere."""
        for number in lease.members:
            one = self._sessions.get(number)
            if one is None or self._custody.migration_of(number) or one.file or one.moved_to:
                return None
            if one.running and one.server and not one.server.is_keeper:
                return one
        return None

    def _shares(self, lease: Lease) -> bool:
        """Whether all members claim their memory in the lease's book. Those that were not asked to, are."""
        for number in lease.members:
            if number not in lease.asked:
                self._ask(lease, self._sessions[number])
        return set(lease.members) <= lease.sharing

    def _ask(self, lease: Lease, session: Session) -> None:
        if not session.running or session.server is None:
            return
        lease.book = lease.book or Book(self._folder, lease.number)
        try:
            lease.book.make()
            share = node_pb2.Share(session=session.id, seat=lease.seats[session.id])
            with lease.book.open() as book:
                session.server.send(node_pb2.ToServer(share=share), book)
        except ChannelBroken:
            return  # its end is on its way
        except OSError as error:
            log.error("a lease cannot be shared", lease=lease.number, error=str(error))
            return
        lease.asked.add(session.id)

    def shared(self, number: int) -> None:
        """The session claims its memory in the book from now on."""
        if session := self._sessions.get(number):
            session.lease.sharing.add(number)

    def _wish(self, wanted: Counter[int]) -> None:
        for device in {*wanted, *self._wished}:
            while self._wished[device] < wanted[device]:
                self._wished[device] += 1
                self._pool.want_server(device)
            while self._wished[device] > wanted[device]:
                self._wished[device] -= 1
                self._pool.want_no_server(device)

    # -- who goes

    def again(self, session: Session) -> None:
        """A session that had joined lost its API server before that began: it gets another."""
        session.lease.leave(session.id)
        session.lease.joining.insert(0, session.id)
        self._joining[session.id] = session

    def leave(self, session: Session) -> tuple[bool, list[Session]]:
        """The session is over. Whether its lease is too, and who was about to join it: the first of them
        founds another, which the others join.
        """
        lease = session.lease
        self._joining.pop(session.id, None)
        before = lease.processes
        lease.leave(session.id)
        self._lessen(session.hello.tenant, 1 if lease.members else before - 1)
        if lease.members:
            return False, []
        if lease.book:
            lease.book.remove()
        if self._leases.get(lease.program) is lease:
            del self._leases[lease.program]
        orphans = [self._joining.pop(number) for number in lease.joining]
        return True, orphans

    def left_behind(self) -> list[Session]:
        """Those that were about to join a program which has gone to another GPU server: they found another
        lease.
        """
        behind = [one for one in self._joining.values() if self._has_left(one.lease)]
        for each in behind:
            self.leave(each)
        return behind

    def _lessen(self, tenant: str, count: int) -> None:
        self._more[tenant] -= count
        if self._more[tenant] <= 0:
            del self._more[tenant]
