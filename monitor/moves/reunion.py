"""Sessions that were on their way when an earlier monitor ended: their API servers come back one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog
from gpuferry.specs._generated import node_pb2

from ..pool.api_server import ApiServer
from ..sessions.placement import Placer
from ..sessions.session import Session
from .custody import Custody, place_of
from .migration import Gang, Migration, Target, ToDevice, ToDevices, ToFile, ToServer

log = structlog.get_logger()


class Reunion:
    """Brings source and destination together again, in whichever order they come."""

    def __init__(self, placer: Placer, custody: Custody) -> None:
        self._placer = placer
        self._custody = custody

    def first(self, session: Session, server: ApiServer, returned: node_pb2.Returned) -> None:
        """Enter the first API server that comes back with a session, which this monitor did not know."""
        self._enter(session, server, returned)
        if returned.grant.restore and returned.grant.welcomed:
            session.restoring = True  # another GPU server is handing it over: its source is none of ours
        elif returned.grant.restore:
            # Not its own yet. If the source does not come back either, this is all that is left of it.
            target = _target(returned, server)
            migration = self._custody.begin_migration(session, None, target, self._gang(session))
            migration.orders_given, migration.destination = True, server
            migration.gang.know_book(returned.grant.edition)
            migration.destination_holds = not server.is_keeper
            migration.remote = returned.migrating.remote if returned.migrating.HasField("remote") else None
            self._custody.await_verdict(migration)
        elif server.is_keeper:
            _note_away(session, server, returned)
        elif returned.HasField("migrating"):
            migration = self._custody.begin_migration(
                session, server, _target(returned, server), self._gang(session)
            )
            migration.orders_given = True
            if returned.migrating.HasField("remote"):
                migration.remote = returned.migrating.remote
        self._call_off_those_ahead(session)

    def _call_off_those_ahead(self, session: Session) -> None:
        """An earlier monitor that ended while it gave its orders may have reached some processes of a program
        only, which then wait for the others. Once all have come to the last stage nothing is called off.
        """
        lease = session.lease
        ahead = [one for one in self._custody.active if one.gang.lease is lease]
        if ahead and any(self._custody.migration_of(number) is None for number in lease.members):
            for one in ahead:  # of which the source may come back later, and is told then
                self._custody.cancel(one, "the monitor ended before it had told all processes of the program")

    def another(self, session: Session, server: ApiServer, returned: node_pb2.Returned) -> None:
        """Enter another API server that comes back with a session that one has come back with already."""
        migration = self._custody.migration_of(session.id)
        if migration and returned.migrating.HasField("remote"):
            migration.remote = returned.migrating.remote
        if migration and returned.grant.restore:
            migration.gang.know_book(returned.grant.edition)
        restoring, leaving = returned.grant.restore, returned.HasField("migrating") and not server.is_keeper
        if migration is None and (restoring or (session.file and not leaving)):
            # The source has told of its end already, or it is a keeper that plays, or has played.
            migration = self._custody.begin_migration(
                session, session.server, _target(returned, server), self._gang(session)
            )
            migration.orders_given = True
            self._add_destination(migration, server, returned)
            if not restoring:
                self._custody.take_over(migration)
            elif migration.source_holds:
                self._custody.fail(migration, "the monitor was restarted meanwhile")
        elif migration is None and leaving:
            migration = self._custody.begin_migration(
                session, server, _target(returned, server), self._gang(session)
            )
            migration.orders_given = migration.taken_over = True
            destination = migration.destination = session.server
            assert destination
            server.release_session()
            self._enter_source(migration, server, returned)
            self._custody.complete(migration)
        elif migration and migration.destination is None:
            self._add_destination(migration, server, returned)
            if not restoring:
                self._custody.take_over(migration)
        elif migration and migration.source is None:
            migration.source = session.server = server
            self._custody.verdict_is_known(migration)
            self._enter_source(migration, server, returned)
            session.placement = place_of(session, server)
            if server.is_keeper:  # which plays
                _note_away(session, server, returned)
            elif not leaving:
                self._custody.fail(migration, "the monitor was restarted meanwhile")
        else:
            log.error("two API servers have the same session", session=session.id, server=server.pid)
            server.kill()
        self._call_off_those_ahead(session)

    def _gang(self, session: Session) -> Gang | None:
        """Of the other processes of its program that are on their way, if there are any."""
        for one in self._custody.active:
            if one.gang.lease is session.lease:
                return one.gang
        return None

    def _add_destination(self, migration: Migration, server: ApiServer, returned: node_pb2.Returned) -> None:
        migration.destination = server
        migration.destination_holds = not server.is_keeper
        self._enter(migration.session, server, returned)

    def _enter_source(self, migration: Migration, source: ApiServer, returned: node_pb2.Returned) -> None:
        assert migration.destination
        migration.source_holds = not source.is_keeper
        migration.destination_holds = not migration.destination.is_keeper
        self._enter(migration.session, source, returned)

    def _enter(self, session: Session, server: ApiServer, returned: node_pb2.Returned) -> None:
        """Tell the policy what this API server holds, unless others of the program have shown it. It knows
        one lease for all of them, which is where they come from, and on its way to where they go.
        """
        if server.is_keeper:
            return
        lease, devices = session.lease.number, server.devices
        home, going = self._placer.whereabouts(lease)
        if devices in (home, going):
            return
        if home and (returned.grant.restore or self._leaves(session, home)):
            self._placer.adopt_move(lease, devices)
            return
        if home:  # those who came before are where it goes
            self._placer.on_complete(lease, time.monotonic())
        self._placer.adopt(lease, devices, session.quota, session.labels, **session.names)
        if home:
            self._placer.adopt_move(lease, home)

    def _leaves(self, session: Session, devices: Sequence[int]) -> bool:
        """Whether a process of the session's program is on its way from these devices."""
        mine = (one for one in self._custody.active if one.gang.lease is session.lease)
        return any(one.source_holds and one.source and one.source.devices == devices for one in mine)


def _note_away(session: Session, keeper: ApiServer, returned: node_pb2.Returned) -> None:
    """The session is in a file, or on another GPU server: this keeper has its guest."""
    target = _target(returned, keeper)
    session.placement = None
    if isinstance(target, ToFile):
        session.suspend(target.path, target.head)
    else:
        session.remote = returned.migrating.remote


def _target(returned: node_pb2.Returned, server: ApiServer) -> Target:
    kind = returned.migrating.WhichOneof("target")
    if kind == "file":
        return ToFile(returned.migrating.file.path, returned.migrating.file.head)
    if kind == "remote":
        return ToServer(returned.migrating.remote.address)
    if server.several:
        return ToDevices(tuple(returned.migrating.local.devices) if kind == "local" else server.devices)
    return ToDevice(returned.migrating.local.device if kind == "local" else server.device)
