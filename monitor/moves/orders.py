"""Sessions on their way: to another device, to another GPU server, into a file and out of it again.

The mechanism is the API servers' (../migration/DESIGN.md). Here it is arranged; custody.py knows who has the
session meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

import structlog
from gpuferry.migration import gate as gates
from gpuferry.native.tls.stream import Connection
from gpuferry.specs._generated import migration_pb2, node_pb2, operations

from ..door.agreement import agree
from ..policy.interface import Declined, Migrate
from ..pool.api_server import ApiServer
from ..pool.channel import ChannelBroken, Descriptor, HasFileno
from ..pool.pool import Pool
from ..sessions.decision import Placement
from ..sessions.placement import Placer
from ..sessions.session import Session
from .custody import Custody
from .filing import new_file, old_file
from .inquiry import inquiries
from .migration import (
    CannotMove,
    Gang,
    Migration,
    Strategy,
    Target,
    ToDevice,
    ToDevices,
    ToFile,
    ToServer,
    devices_of,
)
from .preparation import Preparations
from .snapshots import Snapshots

log = structlog.get_logger()

# Bytes that a session has beside its memory on devices: lasting calls; code; unread and unsent data.
HOST_MEMORY, BESIDE = 4 << 30, 2 << 30
DRAIN_SECONDS = 30.0  # for which a kernel may go on before the session is left where it is


@dataclass(frozen=True)
class Link:
    """A connection to an API server of another monitor, which waits for a session."""

    connection: Connection
    remote: migration_pb2.RemoteTarget


class Orders:
    """Begins migrations, and gives source and destination their orders."""

    def __init__(
        self,
        placer: Placer,
        sessions: Mapping[int, Session],
        custody: Custody,
        preparations: Preparations,
        snapshots: Snapshots,
        pool: Pool,
        connect: Callable[[Session, str], Coroutine[None, None, Link]],
        dispatch: Callable[[], None],
        begin: Callable[[ApiServer, node_pb2.Grant], None],
        variables_stay: bool,
    ) -> None:
        self._placer = placer
        self._sessions = sessions
        self._custody = custody
        self._preparations = preparations
        self._snapshots = snapshots
        self._pool = pool
        self._connect = connect  # to another GPU server, by name
        self._dispatch = dispatch  # carry out what the policy decides
        self._variables_stay = variables_stay  # none may lie elsewhere after a move
        self._begin = begin  # enters how much of a session may be on its device
        self.expected = set[int]()  # API servers of their own that are started for sessions that move

    def check_can_move(self, session: Session, target: Target) -> None:
        """Raise CannotMove if a migration of the session's program to this target could not even begin."""
        if self._may_have_more(session):
            raise CannotMove(
                f"session {session.id} may be one of several processes of a program, and not all API servers "
                "have come back since the monitor was restarted: try again in a moment"
            )
        members = self._members(session)
        if len(members) > 1 and not isinstance(target, ToDevice | ToDevices):
            raise CannotMove(
                f"session {session.id} is one of {len(members)} processes of a program, which move together, "
                "and only to another GPU of this server: end the others first"
            )
        for each in members if session in members else [session]:
            self._check_one(each, target)
        assert session.server
        if session.server.several:
            self._check_several(session, session.server, target)
        elif isinstance(target, ToDevices):
            raise CannotMove(f"session {session.id} has one GPU: name one")
        elif isinstance(target, ToDevice) and not session.file:
            device = self._choose(session, session.server)[0] if target.device is None else target.device
            self._check_device(session, device, len(members))

    def _check_several(self, session: Session, server: ApiServer, target: Target) -> None:
        count = len(server.devices)
        if isinstance(target, ToFile):
            raise CannotMove(
                f"session {session.id} has {count} GPUs, and only sessions of one go into a file"
            )
        if isinstance(target, ToServer):
            return
        named = devices_of(target)
        if named and len(set(named)) != count:
            raise CannotMove(
                f"session {session.id} has {count} GPUs: name as many, as in gpu:0,1, or gpu:any"
            )
        chosen = named or self._choose(session, server)
        for device in chosen:
            room = self._placer.devices.get(device)
            if not room or room.out:
                raise CannotMove(f"there is no GPU {device} in service here: see `gpuferry status`")
            if not self._pool.can_start(device):
                raise CannotMove(f"GPU {device} has no memory for another API server", room=True)

    def _choose(self, session: Session, server: ApiServer) -> tuple[int, ...]:
        """Other GPUs for a session of several: those with the most memory to give. Raises CannotMove."""
        quota, count = session.quota, len(server.devices)
        fitting = [
            room
            for number, room in self._placer.devices.items()
            if number not in server.devices and not room.out and room.gpu.free >= quota
        ]
        if len(fitting) < count:
            raise CannotMove(
                f"session {session.id} has {count} GPUs with {quota} bytes each, and {len(fitting)} others "
                "have as much to give: name some, as in gpu:0,1",
                room=True,
            )
        roomiest = sorted(fitting, key=lambda room: (-room.gpu.free, room.ordinal))[:count]
        return tuple(sorted(room.ordinal for room in roomiest))

    def _may_have_more(self, session: Session) -> bool:
        """Whether more processes of its program may be about to come back, which would be left behind."""
        return bool(session.lease.program) and not self._pool.all_back

    def _members(self, session: Session) -> list[Session]:
        """The sessions of its program; those that are just joining come after the others."""
        return [self._sessions[one] for one in session.lease.members if one in self._sessions] or [session]

    def _check_one(self, session: Session, target: Target) -> None:
        if self._custody.migration_of(session.id):
            raise CannotMove(f"session {session.id} is moving already")
        if session.moved_to:
            raise CannotMove(f"session {session.id} has moved to {session.moved_to}")
        if not session.server or not session.grant:
            raise CannotMove(f"session {session.id} waits for a GPU: there is nothing to move yet")
        if not session.running:
            raise CannotMove(f"session {session.id} is just beginning: try again")
        if agree(session.server.spec_hash, {}) is None:
            raise CannotMove(
                f"session {session.id} is served by a gpuferry that is no release this one "
                f"({operations.VERSION}) knows: nobody could tell what they understand alike"
            )
        if isinstance(target, ToFile) and session.file:
            raise CannotMove(f"session {session.id} is suspended already, in {session.file}")

    def _check_device(self, session: Session, device: int, processes: int) -> None:
        room = self._placer.devices.get(device)
        if not room or room.out:
            raise CannotMove(f"there is no GPU {device} in service here: see `gpuferry status`")
        assert session.server
        if session.server.device == device:
            raise CannotMove(f"session {session.id} is on GPU {device} already")
        quota = session.quota
        if room.gpu.free < quota:
            raise CannotMove(
                f"GPU {device} has {room.gpu.free} bytes to give, and session {session.id} has {quota}",
                room=True,
            )
        idle = len(room.gpu.idle)
        if idle < processes and not self._pool.can_start(device):
            of = (
                f"no API server is idle on GPU {device}"
                if not idle
                else f"GPU {device} has {idle} idle API servers"
            )
            raise CannotMove(f"{of}, and there is no memory for another", room=True)

    def begin(
        self,
        session: Session,
        target: Target,
        strategy: migration_pb2.Strategy,
        timeout: float,
        allow_unencrypted: bool = False,
    ) -> Migration:
        """Begin to move the session. `timeout` in seconds, 0: none. `allow_unencrypted`: out of a file of
        release 0.1. Raises CannotMove.
        """
        self.check_can_move(session, target)
        play = self._snapshots.play(session, allow_unencrypted) if session.file else None
        file = old_file(session.file) if session.file else None
        migration = self._begin_gang(self._members(session), session, target, strategy)
        migration.play, migration.file = play, file
        if isinstance(target, ToDevices | ToDevice) and session.server and session.server.several:
            devices = devices_of(target) or self._choose(session, session.server)
            migration.target = ToDevices(devices)
            migration.task = asyncio.ensure_future(
                self._attempt(migration, self._to_devices(migration, devices))
            )
        elif isinstance(target, ToDevice):
            if target.device is None and not session.file:
                assert session.server
                migration.target = ToDevice(self._choose(session, session.server)[0])
            if session.file:
                self._return(migration)
            else:
                self._request(migration)
        elif isinstance(target, ToFile):
            migration.task = asyncio.ensure_future(self._attempt(migration, self._suspend(migration, target)))
        elif isinstance(target, ToServer):
            migration.task = asyncio.ensure_future(self._attempt(migration, self._leave(migration, target)))
        if timeout:
            reason = f"not over within {timeout:g} s"
            asyncio.get_running_loop().call_later(timeout, self._custody.cancel, migration, reason)
        return migration

    def _begin_gang(
        self,
        members: Sequence[Session],
        asked: Session,
        target: Target,
        strategy: migration_pb2.Strategy = Strategy.STRATEGY_AUTO,
    ) -> Migration:
        """Begin the migrations of all processes of a program; returns that of the one that was asked for."""
        gang = Gang(asked.lease)
        for each in members:
            migration = self._custody.begin_migration(each, each.server, target, gang)
            migration.strategy = strategy or Strategy.STRATEGY_AUTO
        return next(each for each in gang.members if each.session is asked)

    def carry_out(self, decision: Migrate) -> None:
        """Carry out the policy's decision to move a program, which may be over by now, but for its memory."""
        members = [one for one in self._sessions.values() if one.lease.number == decision.session]
        members = self._members(members[0]) if members else []
        known = [one for one in map(self._custody.migration_of, [each.id for each in members]) if one]
        asked = next((each for each in known if each.decision_pending), None)
        if not members or not (asked or (not known and self._may_set_out(members))):
            self._decline(decision)
            return
        servers = [decision.worker]
        for each in members[1:]:
            server = self._placer.on_join(decision.target, each.hello.tenant)
            if server is not None:
                servers.append(server)
        if len(servers) < len(members):
            self._decline(decision, *servers[1:])
            if asked:
                self._custody.fail(asked, f"GPU {decision.target} has too few API servers for its processes")
            return
        first = asked or self._begin_gang(members, members[0], ToDevice(decision.target))
        first.decision_pending = False
        self._start(first.gang, servers, decision.target)

    def _may_set_out(self, members: Sequence[Session]) -> bool:
        """Whether a program whose move nobody has asked for can move now."""
        return all(each.running for each in members) and not self._may_have_more(members[0])

    def _decline(self, decision: Migrate, *servers: int) -> None:
        self._placer.on_migrated(decision.session, False)
        for server in (decision.worker, *servers):
            self._placer.on_idle(decision.target, server)

    def _start(self, gang: Gang, servers: Sequence[int], device: int) -> None:
        """The policy chose these idle API servers for a program's processes. Where it has a percentage of
        the device by MPS they are idle again, and others are started.
        """
        if not self._percentage(gang):
            self._give_orders(gang, servers, device)
            return
        for server in servers:
            self._placer.on_idle(device, server)
        first = gang.members[0]
        first.task = asyncio.ensure_future(self._attempt(first, self._start_own(gang, (device,))))

    def _percentage(self, gang: Gang) -> int:
        return self._pool.percentage(gang.members[0].session.hello.portion.limit)

    def _give_orders(self, gang: Gang, servers: Sequence[int], device: int) -> None:
        """Give all of a program's processes their orders."""
        for migration in gang.members:
            migration.destination_holds = True
        gate = [Descriptor(gates.make(len(gang.members)))] if len(gang.members) > 1 else []
        try:
            gang.make_book()
        except OSError as error:
            log.error("a book cannot be made", lease=gang.lease.number, error=str(error))
        for migration, server in zip(gang.members, servers, strict=True):
            self._to_device(migration, self._pool.servers[server], device, gate)
        for each in gate:
            each.close()

    def place_suspended(self, session: Session, placement: Placement) -> None:
        """Bring a suspended session back to the place that the queue, or the operator, gave it."""
        migration = self._custody.migration_of(session.id)
        assert migration
        self._start(migration.gang, [placement.server], placement.device)

    def cannot_be_placed(self, session: Session, reason: str) -> None:
        """A suspended session never will get a place: its migration fails, for this reason."""
        migration = self._custody.migration_of(session.id)
        assert migration
        self._custody.fail(migration, reason)

    # -- to a device

    def _request(self, migration: Migration) -> None:
        """By way of the policy, whose next decision it is; or when there is an API server for it."""
        assert isinstance(migration.target, ToDevice)
        assert migration.target.device is not None
        session, device = migration.session, migration.target.device
        if self._preparations.wait_for_server(migration, device):
            return
        migration.decision_pending = True
        try:
            self._placer.request_migration(session.lease.number, device)
        except Declined as error:
            self._custody.fail(migration, str(error))
        else:
            self._dispatch()

    def _return(self, migration: Migration) -> None:
        """A suspended session: to the device that was chosen, or through the queue."""
        assert isinstance(migration.target, ToDevice)
        session, device = migration.session, migration.target.device
        if device is None:
            lease = session.lease.number
            self._placer.arrive(lease, session.quota, session.labels, time.monotonic(), **session.names)
            self._dispatch()
            return
        if self._preparations.wait_for_server(migration, device):
            return
        try:
            server = self._placer.on_return(
                session.lease.number, device, session.quota, session.labels, **session.names
            )
        except Declined as error:
            self._custody.fail(migration, str(error))
        else:
            self.place_suspended(session, Placement(session.id, device, server, session.quota))

    async def _to_devices(self, migration: Migration, devices: Sequence[int]) -> None:
        try:
            self._placer.move_several(migration.session.lease.number, devices)
        except Declined as error:
            raise CannotMove(str(error)) from None
        await self._start_own(migration.gang, devices)

    async def _start_own(self, gang: Gang, devices: Sequence[int]) -> None:
        """For each process of a program an API server is started on all of these devices, which the policy's
        books say it has.
        """
        percentage = self._percentage(gang)
        servers = [self._pool.start_own(devices, percentage) for _ in gang.members]
        keys = [server.key for server in servers]
        self.expected.update(keys)
        try:
            for server in servers:
                await server.ready_or_gone.wait()
                if gone := next((one for one in servers if one.over.is_set()), None):
                    raise CannotMove(
                        f"no API server starts on GPUs {', '.join(map(str, devices))}: {gone.end_reason}"
                    )
        except BaseException:
            self._give_back(gang)
            for server in servers:
                server.kill()
            raise
        finally:
            self.expected.difference_update(keys)
        self._give_orders(gang, keys, devices[0])

    def _give_back(self, gang: Gang) -> None:
        """What the policy's books say the program has where it does not go."""
        if gang.members[0].session.file:
            self._placer.on_complete(gang.lease.number, time.monotonic())
        else:
            self._placer.on_migrated(gang.lease.number, False)

    def server_ready(self, device: int) -> None:
        """An API server is idle on the device: whoever moves there goes before who waits."""
        for migration in [one for one in self._custody.active if one.wished_device == device]:
            (self._return if migration.session.file else self._request)(migration)

    def _to_device(
        self, migration: Migration, destination: ApiServer, device: int, gate: Sequence[HasFileno]
    ) -> None:
        session, source = migration.session, migration.source
        assert session.grant
        assert source
        self._preparations.server_found(migration)
        several = destination.devices if destination.several else ()
        migration.destination, migration.orders_given = destination, True
        migration.target = ToDevices(several) if several else ToDevice(device)
        destination.expect(session.id)
        grant = node_pb2.Grant()
        grant.CopyFrom(session.grant)
        grant.restore, grant.welcomed, grant.age_seconds = True, False, session.age
        grant.edition = migration.gang.edition
        self._begin(destination, grant)
        local = migration_pb2.LocalTarget(device=device, devices=several)
        one, other = socket.socketpair()
        with one, other:
            try:
                with migration.gang.book() as book:
                    destination.send(node_pb2.ToServer(grant=grant), other, *book)
            except (ChannelBroken, OSError):
                destination.kill()  # its end says that there is no migration
            order = self._order(migration, local=local)
            beside = (migration.file,) if migration.file else ()
            with contextlib.suppress(ChannelBroken):  # its end is the session's
                source.send(order, one, *beside, *gate)
            migration.release_file()
        migration.changed()

    def _order(
        self,
        migration: Migration,
        *,
        local: migration_pb2.LocalTarget | None = None,
        remote: migration_pb2.RemoteTarget | None = None,
        file: migration_pb2.FileTarget | None = None,
    ) -> node_pb2.ToServer:
        session = migration.session
        if migration.play:
            order = node_pb2.ToServer(play=migration.play)
            order.play.MergeFrom(node_pb2.Play(local=local, remote=remote))
            return order
        return node_pb2.ToServer(
            migrate=migration_pb2.Migrate(
                session=session.id,
                strategy=migration.strategy,
                drain_seconds=DRAIN_SECONDS,
                local=local,
                remote=remote,
                file=file,
                members=migration.gang.named(),
                variables_stay=self._variables_stay,
            )
        )

    # -- to a file, or to another GPU server

    async def _attempt(self, migration: Migration, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except CannotMove as error:
            self._custody.fail(migration, error.reason)
        except ChannelBroken as error:
            self._custody.fail(migration, f"a process ended that was to take part: {error}")
        except OSError as error:  # no descriptor is free, say
            self._custody.fail(migration, error.strerror or str(error))
        except Exception:
            log.exception("a migration ends by a defect", session=migration.session.id)
            self._custody.fail(migration, "a defect of gpuferry's: see the monitor's log")

    async def _suspend(self, migration: Migration, target: ToFile) -> None:
        file = self._snapshots.target(migration.session, target.path)
        migration.target = ToFile(file.path, file.head)
        keeper = await self._keeper(migration)
        keep = node_pb2.Keep(file=migration_pb2.FileTarget(path=file.path, head=file.head))
        source = migration.source
        assert source
        with new_file(file.path, source, self._largest(migration.session, source)) as (desk, opened):
            order = self._order(migration, file=file)
            self._to_keeper(migration, keeper, keep, order, [], [], [desk, opened])

    def _largest(self, session: Session, source: ApiServer) -> int:
        """Bytes that a file of the session may have."""
        rooms = [self._placer.devices.get(device) for device in source.devices]
        lasting = max(session.grant.host_memory if session.grant else 0, HOST_MEMORY)
        return sum(room.gpu.memory for room in rooms if room) + lasting + BESIDE

    async def _leave(self, migration: Migration, target: ToServer) -> None:
        session = migration.session
        link = await self._connect(session, target.name)
        migration.remote = link.remote
        with link.connection:
            order = self._order(migration, remote=link.remote)
            if session.file:  # it has its keeper already, which plays
                assert migration.source
                migration.orders_given = True
                with inquiries(link.remote) as inquiry:
                    assert migration.file
                    migration.source.send(order, link.connection, inquiry, migration.file)
                migration.release_file()
                return
            keeper = await self._keeper(migration)
            keep = node_pb2.Keep(remote=link.remote)
            with inquiries(link.remote) as inquiry:
                self._to_keeper(migration, keeper, keep, order, [inquiry], [link.connection], [])

    async def _keeper(self, migration: Migration) -> ApiServer:
        keeper = migration.destination = self._pool.start_keeper()
        await keeper.ready_or_gone.wait()
        if not keeper.ready:
            raise CannotMove(f"no process for the program's connection: {keeper.end_reason or 'it ended'}")
        return keeper

    def _to_keeper(
        self,
        migration: Migration,
        keeper: ApiServer,
        keep: node_pb2.Keep,
        order: node_pb2.ToServer,
        beside_keep: Sequence[HasFileno],
        before_pair: Sequence[HasFileno],
        behind_pair: Sequence[HasFileno],
    ) -> None:
        session, source = migration.session, migration.source
        assert session.grant
        assert source
        migration.orders_given = True
        keeper.expect(session.id)
        keep.grant.CopyFrom(session.grant)
        keep.grant.restore = True
        keep.session_seconds = session.age
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with one, other:
            keeper.send(node_pb2.ToServer(keep=keep), other, *beside_keep)
            source.send(order, *before_pair, one, *behind_pair)
        migration.changed()
