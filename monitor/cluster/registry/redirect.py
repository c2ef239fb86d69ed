"""Takes guests from the listener and sends each to a GPU server."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from gpuferry.guest.endpoint import TLS_SCHEME, split_address
from gpuferry.native.tls.stream import Connection
from gpuferry.specs._generated import registry_pb2
from gpuferry.specs._generated.frames import MAGIC, Header

from ...broker.admission import all_places_taken
from ...door import handshake, tickets
from ...door.guests import Farewells, Guest, address_of
from ...door.handshake import CudaError, Reason, Refusal, Resume
from ...policy.holdings import Holdings
from ...policy.interface import Request
from ...policy.portion import FULL
from ...service.rates import Sparing
from ...service.tls import NEW, Identity
from ...service.waiting import within
from ...tenants.tenancy import Tenancy
from .choose import Wish, choose, eligible, none_ever, why_none
from .directory import Directory, way_to
from .programs import Programs

WAITING_MOST = 1000
PROBE_SECONDS = 1.0
DEFECT = "the registry failed to choose a GPU server, by a defect: its log has more"
BEATS_TO_COME = 2  # heartbeats after which a guest that none of them knows will not come

log = structlog.get_logger()
_errors = Sparing(lambda event, **fields: log.error(event, **fields))


async def _greets(way: str, identity: Identity | None) -> bool:
    """Whether a monitor answers there: one that hangs still accepts connections, in its backlog."""
    target = split_address(way.removeprefix(TLS_SCHEME))
    context = None
    if way.startswith(TLS_SCHEME):
        if identity is None:
            _errors.say("server has TLS, and this registry has no certificate", way, address=way, hint=NEW)
            return False
        context = identity.client_context()
    opening = (
        asyncio.open_unix_connection(target)
        if isinstance(target, str)
        else asyncio.open_connection(*target, ssl=context)
    )

    async def greet() -> bytes:
        reader, writer = await opening
        try:
            return await reader.readexactly(Header.SIZE + len(MAGIC))
        finally:
            writer.close()

    try:
        greeting = await within(PROBE_SECONDS, greet())
    except (OSError, EOFError, asyncio.TimeoutError):
        return False
    return greeting.endswith(MAGIC)


@dataclass(frozen=True)
class Sent:
    """A guest that was sent to a server, and that no heartbeat counts yet."""

    address: str
    incarnation: bytes
    sequence: int  # of the heartbeat that it was sent at
    tenant: str
    wish: Wish
    program: bytes = b""  # that it is a process of; empty: it has one only


class Has(NamedTuple):
    """What a tenant has, or waits for, on all servers together."""

    sessions: int = 0
    gpus: int = 0
    memory: int = 0
    share: float = 0.0


def _totals(servers: Sequence[registry_pb2.Server]) -> dict[str, Has]:
    """By tenant, as the newest heartbeats say."""
    found: dict[str, Has] = {}
    for server in servers:
        for one in server.load.tenants:
            had = found.get(one.tenant, NOTHING)
            found[one.tenant] = Has(
                had.sessions + one.sessions + one.waiting,
                had.gpus + one.gpus,
                had.memory + one.memory,
                had.share + one.share,
            )
    return found


NOTHING = Has()


@dataclass(eq=False)
class Waiting:
    """A guest that has no server yet."""

    guest: Guest
    waits: bool = False  # there was none for it when it came
    refusal: Refusal | None = None  # its place is another's

    @property
    def tenant(self) -> str:
        """The tenant whose token the guest showed."""
        return self.guest.hello.tenant


class Redirector:
    """Takes guests from the registry's listener, chooses a GPU server for each, and sends them there."""

    def __init__(
        self,
        directory: Directory,
        cluster_key: bytes,
        policy: str,
        max_wait: float,
        tenancy: Tenancy,
        identity: Identity | None = None,
    ) -> None:
        self._directory = directory
        self._tenancy = tenancy
        self._identity = identity
        self._key = cluster_key
        self._policy = policy
        self._max_wait = max_wait
        self._farewells = Farewells()
        self._lines = Sparing(log.info)  # of what a guest may do all the time
        self._complaints = Sparing(log.warning)  # of what all who wait find out
        self._waiting: dict[asyncio.Task[None], Waiting] = {}  # oldest first
        self._sent: dict[bytes, Sent] = {}  # by the number of its ticket
        self._dead: set[tuple[str, int]] = set()  # by heartbeat: the next one knows better
        self._seen: list[registry_pb2.Server] | None = None  # the view by which these are right
        self._programs = Programs()  # of that view
        # Of that view, too: a thousand guests wait for the next one, and all of them look then.
        self._has: dict[str, Has] | None = None  # by tenant; None: nobody has asked
        self._nowhere: set[Wish] = set()  # which no server could ever fulfil

    def arrive(self, guests: Sequence[Guest]) -> None:
        """Choose a server for each guest, in the background."""
        for guest in guests:
            self._arrive(guest)

    def _arrive(self, guest: Guest) -> None:
        waiting = Waiting(guest)
        if len(self._waiting) >= WAITING_MOST and not self._make_room(waiting.tenant):
            self.turn_away(guest.connection, guest.peer, _no_place())
            return
        task = asyncio.ensure_future(self._place(waiting))
        self._waiting[task] = waiting
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        """The guest of one that was cancelled is told here: it may have been cancelled before it began. So is
        the guest of one that failed by a defect.
        """
        waiting = self._waiting.pop(task)
        refusal = waiting.refusal if task.cancelled() else None
        if not task.cancelled() and (error := task.exception()):
            log.error("a guest could not be placed, for a reason that nobody thought of", exc_info=error)
            refusal = Refusal(Reason.NO_CAPACITY, DEFECT, CudaError.SYSTEM_NOT_READY)
        if refusal:
            self.turn_away(waiting.guest.connection, waiting.guest.peer, refusal)

    def _make_room(self, tenant: str) -> bool:
        """Let the last guest go of the tenant that has most of them here, if this one has fewer."""
        staying = {task: one for task, one in self._waiting.items() if one.refusal is None}
        each = Counter(one.tenant for one in staying.values())
        crowd = max(each, key=each.__getitem__, default=tenant)
        if each[crowd] <= each[tenant] + 1:
            return False
        last = next(task for task, one in reversed(staying.items()) if one.tenant == crowd)
        staying[last].refusal = _no_place()
        last.cancel()
        return True

    def quiet(self) -> None:
        """Do nothing: a registry places each guest at once, and waits for no crowd."""

    def resume(self, connection: Connection, peer: str, _: Resume) -> None:
        """Refuse: sessions are at the GPU servers, and their guests know which."""
        self.turn_away(connection, peer, Refusal(Reason.NO_SESSION, "a registry has no sessions"))

    def turn_away(self, connection: Connection, peer: str, refusal: Refusal) -> None:
        """Tell a guest why not, in the background."""
        reason = refusal.reason.name
        self._lines.say("refused", (reason, address_of(peer)), reason=reason, text=refusal.text, peer=peer)
        self._farewells.send(connection, refusal.frame())

    async def _place(self, waiting: Waiting) -> None:
        guest = waiting.guest
        try:
            self._check_possible(guest)
            most = min(self._max_wait, guest.hello.max_wait or self._max_wait)
            server, ticket = await within(most, self._find(waiting))
        except asyncio.TimeoutError:
            self.turn_away(guest.connection, guest.peer, self._refusal(guest))
            return
        except Refusal as refusal:
            self.turn_away(guest.connection, guest.peer, refusal)
            return
        except ConnectionError:
            guest.connection.close()
            return
        address, hello = way_to(server), guest.hello
        session_key = tickets.session_key(self._key, ticket)
        frame = handshake.redirect(guest.key, guest.nonces, session_key, ticket, address)
        told = {"peer": guest.peer, "program": hello.program, "function": hello.function, "to": address}
        self._lines.say("redirected", address_of(guest.peer), **told)
        self._farewells.send(guest.connection, frame)

    def _check_possible(self, guest: Guest) -> None:
        """Raise Refusal if no GPU server has what the guest asks for, or its tenant's limits forbid it."""
        if self._home(guest):
            return
        share, hello = self._tenancy.share(guest.hello.tenant), guest.hello
        request = Request(0, hello.memory, devices=hello.devices, tenant=hello.tenant, portion=hello.portion)
        if never := Holdings(lambda _: share).never(request):
            text, memory = never
            raise Refusal(Reason.NO_CAPACITY, text, CudaError.OUT_OF_MEMORY if memory else None)
        if self._directory.known and none_ever(self._directory.servers, wish := _wish(guest)):
            raise self._none_has(wish)

    def _why_not(self, guest: Guest) -> str:
        """Which limit the tenant has reached in the whole cluster; empty: none, or its program is here."""
        if self._home(guest):
            return ""
        tenant = guest.hello.tenant
        share = self._tenancy.share(tenant)
        if self._has is None:
            self._has = _totals(self._servers())
        has = self._has.get(tenant, NOTHING)
        sent = [one for one in self._sent.values() if one.tenant == tenant]
        sessions = has.sessions + len(sent)
        if sessions >= share.sessions:
            most = f"{share.sessions:.0f} sessions in the cluster (limit sessions)"
            return f"tenant {tenant} has {sessions} of {most}"
        gpus = has.gpus + sum(one.wish.devices for one in sent)
        if gpus + guest.hello.devices > share.gpus:
            most = f"{share.gpus:.0f} GPUs in the cluster (limit gpus)"
            return f"tenant {tenant} has {gpus} of {most}"
        memory = has.memory + sum(one.wish.memory * one.wish.devices for one in sent)
        if memory + guest.hello.memory * guest.hello.devices > share.memory or memory >= share.memory:
            return (
                f"tenant {tenant} was granted {memory} of {share.memory:.0f} bytes of device memory in the "
                "cluster (limit memory)"
            )
        time = has.share * FULL + sum(one.wish.portion.request * one.wish.devices for one in sent)
        if time + guest.hello.portion.request * guest.hello.devices > share.time:
            return (
                f"tenant {tenant} is promised {time / FULL:g} of {share.time / FULL:g} GPUs' time in the "
                "cluster (limit share)"
            )
        return ""

    def _refusal(self, guest: Guest) -> Refusal:
        if not self._directory.known:
            text = "the registry cannot read its store at the moment: its log says more"
            return Refusal(Reason.NO_CAPACITY, text, CudaError.SYSTEM_NOT_READY)
        servers, wish = self._directory.servers, _wish(guest)
        if why_not := self._why_not(guest):
            text = f"{why_not}: end some, or ask the operator for more (`gpuferry tenant set --registry …`)"
            return Refusal(Reason.NO_CAPACITY, text)
        if silent := sum(eligible(server, wish) for server in servers):
            text = (
                f"GPU servers that could take it ({silent}) do not answer the registry, whose log says more"
            )
            return Refusal(Reason.NO_CAPACITY, text)
        return self._none_has(wish)

    def _none_has(self, wish: Wish) -> Refusal:
        servers = self._directory.servers
        enough = any(eligible(server, Wish(0, wish.labels, wish.devices)) for server in servers)
        error = CudaError.OUT_OF_MEMORY if enough and wish.memory else None
        return Refusal(Reason.NO_CAPACITY, why_none(servers, wish), error)

    def _note_that_waits(self, waiting: Waiting) -> None:
        """Raise Refusal if its tenant's limits let no more of its guests wait."""
        if waiting.waits:
            return
        waiting.waits, tenant = True, waiting.tenant
        limit = self._tenancy.limits(tenant).queue
        many = sum(one.waits and one.tenant == tenant for one in self._waiting.values())
        if limit is not None and many > limit:
            text = f"tenant {tenant} has {many - 1} of {limit:.0f} queue places (limit queue)"
            raise Refusal(Reason.NO_CAPACITY, f"{text}: try again later")

    async def _find(self, waiting: Waiting) -> tuple[registry_pb2.Server, bytes]:
        """The chosen server, which has just greeted, and a ticket for it. Raises Refusal."""
        guest = waiting.guest
        wish = _wish(guest)
        while True:
            change = self._directory.next_change()
            while not self._why_not(guest) and (server := self._choose(wish, guest)):
                ticket = self._ticket(server, guest.hello.tenant)
                if await self._take(server, tickets.number_of(ticket), guest):
                    return server, ticket
                address = server.registration.address
                self._complaints.say("server does not answer", address, address=address)
                self._dead.add(_beat(server))
            self._note_that_waits(waiting)
            await change.wait()
            _check_waits_still(guest.connection)

    def _ticket(self, server: registry_pb2.Server, tenant: str) -> bytes:
        now = self._directory.clocks.of(server)
        return tickets.issue(self._key, server.load.incarnation, tenant, now)

    async def _take(self, server: registry_pb2.Server, number: bytes, guest: Guest) -> bool:
        """Whether the guest is on its way there; from here on it counts."""
        load, address = server.load, server.registration.address
        tenant = guest.hello.tenant
        self._sent[number] = Sent(
            address, load.incarnation, load.sequence, tenant, _wish(guest), guest.hello.program_id
        )
        greeted = False
        try:
            greeted = await _greets(way_to(server), self._identity)
        finally:
            if not greeted:
                self._sent.pop(number, None)
        return greeted

    def _servers(self) -> list[registry_pb2.Server]:
        """The servers as they are known now; whom their heartbeats count is not on the way any more."""
        servers = self._directory.servers
        if servers is not self._seen:
            self._look(servers)
        return servers

    def _home(self, guest: Guest) -> str | None:
        """Where other processes of the guest's program are, or go: whatever it asks for, it shares what they
        have. None: it is the first.
        """
        self._servers()
        program = guest.hello.program_id
        if not program:
            return None
        on_its_way = (one.address for one in self._sent.values() if one.program == program)
        return self._programs.home(program) or next(on_its_way, None)

    def _choose(self, wish: Wish, guest: Guest) -> registry_pb2.Server | None:
        home = self._home(guest)
        if not home and wish in self._nowhere:
            return None
        candidates = [server for server in self._servers() if _beat(server) not in self._dead]
        if home:
            return next((one for one in candidates if one.registration.address == home), None)
        pending = Counter(sent.address for sent in self._sent.values())
        wishes: defaultdict[str, list[Wish]] = defaultdict(list)
        for sent in self._sent.values():
            wishes[sent.address].append(sent.wish)
        holders = self._programs.holders(guest.hello.tenant, guest.hello.function)
        address = choose(self._policy, candidates, wish, pending, wishes, holders)
        if address is None:
            self._nowhere.add(wish)
        return next((one for one in candidates if one.registration.address == address), None)

    def _look(self, servers: list[registry_pb2.Server]) -> None:
        """A heartbeat may be older than the arrival of a guest, and still be read later: it says who came."""
        self._seen = servers
        self._programs = Programs(servers)
        self._has = None
        self._nowhere.clear()
        self._dead &= {_beat(server) for server in servers}
        loads = {server.registration.address: server.load for server in servers}
        came = {number for load in loads.values() for number in load.tickets}
        self._sent = {
            number: sent
            for number, sent in self._sent.items()
            if number not in came and _may_come(sent, loads.get(sent.address))
        }

    async def close(self) -> None:
        """Refuse guests that still wait for a server."""
        tasks = list(self._waiting)
        for task, waiting in self._waiting.items():
            waiting.refusal = Refusal(Reason.SHUTTING_DOWN, "the registry is shutting down: try again")
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._farewells.finish()


def _no_place() -> Refusal:
    return Refusal(Reason.NO_CAPACITY, all_places_taken(WAITING_MOST))


def _check_waits_still(connection: Connection) -> None:
    """Raise ConnectionError for a guest that hung up: a place is no more for it to have. Raises Refusal if it
    said anything.
    """
    try:
        said = connection.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    if not said:
        raise ConnectionResetError
    raise Refusal(Reason.MALFORMED, "bytes between HELLO and REDIRECT")


def _wish(guest: Guest) -> Wish:
    hello = guest.hello
    portion = hello.portion._replace(scope=hello.tenant)
    return Wish(hello.memory, hello.labels, hello.devices, portion)


def _may_come(sent: Sent, load: registry_pb2.Load | None) -> bool:
    """Whether a guest that has not come is still waited for."""
    return (
        load is not None
        and load.incarnation == sent.incarnation
        and load.sequence < sent.sequence + BEATS_TO_COME
    )


def _beat(server: registry_pb2.Server) -> tuple[str, int]:
    return server.registration.address, server.load.sequence
