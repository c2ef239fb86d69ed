"""Sessions that an earlier monitor granted: this one takes them over when their API servers come back."""

from __future__ import annotations

import time

import structlog
from gpuferry.specs._generated import node_pb2

from ..door.agreement import agree
from ..door.handshake import Hello
from ..moves.custody import Custody, place_of
from ..moves.reunion import Reunion
from ..pool.api_server import ApiServer
from ..sessions.events import Announcer, Event, Kind
from ..sessions.placement import Placer
from ..sessions.session import Phase, Session
from .portions import portion_of, scoped
from .programs import Programs

log = structlog.get_logger()


class Adoption:
    """Enters sessions into the broker's `sessions` as their API servers and keepers tell of them.

    `scope`: of labels, as for guests that arrive (`portions.scoped`).
    """

    def __init__(
        self,
        sessions: dict[int, Session],
        programs: Programs,
        placer: Placer,
        custody: Custody,
        announcer: Announcer,
        scope: str,
    ) -> None:
        self._sessions = sessions
        self._programs = programs
        self._reunion = Reunion(placer, custody)
        self._announcer = announcer
        self._scope = scope

    def adopt(self, server: ApiServer, returned: node_pb2.Returned) -> Session | None:
        """Take over the session that an API server or a keeper came back with. Returns it; None if another
        server came back with it before, as the two ends of a migration do.
        """
        grant = returned.grant
        if known := self._sessions.get(grant.session):
            self._reunion.another(known, server, returned)
            return None
        hello = Hello(
            nonce=grant.guest_nonce,
            pid=grant.guest_pid,
            memory=grant.memory_quota,
            tenant=grant.tenant,
            function=grant.function,
            program=grant.program,
            devices=len(server.devices),
            labels=tuple(
                (name, value) for name, _, value in (label.partition("=") for label in grant.labels)
            ),
            portion=portion_of(grant),
        )
        session = Session(grant.session, scoped(hello, self._scope), grant.peer, None)
        session.server = server
        session.wall_limit, session.idle_limit = grant.wall_seconds, grant.idle_seconds
        session.grant = _limited(grant, returned.spec_hash)
        session.enter_phase(Phase.RUNNING)
        session.arrived = session.phase_began = time.monotonic() - returned.session_seconds
        self._sessions[session.id] = session
        self._programs.returned(session, grant)
        if not server.is_keeper:
            session.placement = place_of(session, server)
        self._reunion.first(session, server, returned)
        log.info("session adopted", session=session.id, gpu=server.device, server=server.pid)
        self._announcer.tell(Event(Kind.ADOPTED, session.id, server.device, server.pid))
        return session


def _limited(grant: node_pb2.Grant, spec_hash: bytes) -> node_pb2.Grant:
    """The grant with the operations that its guest may use. Release 0.1 granted all that the guest's spec
    has, and did not list them.
    """
    agreement = agree(spec_hash, {})
    if agreement is None or agreement.spoken is None or grant.limited:
        return grant
    found = node_pb2.Grant()
    found.CopyFrom(grant)
    found.limited, found.guest_version = True, agreement.version
    found.operations.extend(sorted(agreement.spoken))
    return found
