"""Guests that lost their connection come back to the API servers of their sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import structlog
from gpuferry.native.tls.stream import Connection
from gpuferry.specs._generated import node_pb2

from ..door.handshake import Reason, Refusal, Resume, resumed
from ..moves.forwarding import Forwarding
from ..pool.channel import ChannelBroken
from ..service.rates import Sparing
from ..sessions.session import Session
from .refusals import Refusals

log = structlog.get_logger()


class Returning:
    """Passes on connections that ask for a session they had.

    `complete`: whether no session of an earlier monitor is unknown any more; `flush` hands over what was
    granted; `watch` a connection, until its guest is gone.
    """

    def __init__(
        self,
        sessions: Mapping[int, Session],
        refusals: Refusals,
        complete: Callable[[], bool],
        flush: Callable[[], None],
        watch: Callable[[int, Connection], None],
    ) -> None:
        self._sessions = sessions
        self._refusals = refusals
        self._complete = complete
        self._flush = flush
        self._watch = watch
        self._forwarding = Forwarding()
        self._notes = Sparing(log.info)  # of what a guest may do all the time

    def ended(self, session: Session) -> None:
        """The session is over here. Where it went, if it moved, is told to a guest that comes back later."""
        self._forwarding.ended(session)

    def come(self, connection: Connection, peer: str, resume: Resume) -> None:
        """A guest that lost its connection is passed on to the API server of its session.

        A wrong key and a session that does not exist are refused alike.
        """
        session = self._sessions.get(resume.session)
        if frame := self._forwarding.frame(session, resume):
            self._refusals.answer(connection, frame)
            return
        if session and session.welcome and not session.grant:
            self._flush()  # it is back before its API server knows of it
        server = session.server if session else None
        proof = resume.answer(session.resume_key) if session and session.resume_key else None
        if resume.asks and session and proof:
            self._tell_whether(connection, peer, session, proof)
            return
        if session.welcome and not server if session else not self._complete():
            text = "no API server has the session yet"
            self._refusals.turn_away(connection, peer, Refusal(Reason.SHUTTING_DOWN, text))
            return
        if not server or not proof:
            text = "there is no such session any more"
            self._refusals.turn_away(connection, peer, Refusal(Reason.NO_SESSION, text))
            return
        connection.setblocking(True)
        again = node_pb2.Resume(session=resume.session, proof=proof, received=resume.received)
        with contextlib.closing(connection), contextlib.suppress(ChannelBroken):
            server.send(node_pb2.ToServer(resume=again), connection)
            self._watch(resume.session, connection)
            self._notes.say("guest came back", resume.session, session=resume.session, peer=peer)

    def _tell_whether(self, connection: Connection, peer: str, session: Session, proof: bytes) -> None:
        """Somebody who handed a session over wants to know whether it arrived."""
        if session.running:
            self._refusals.answer(connection, resumed(proof))
        else:
            refusal = Refusal(Reason.NO_CAPACITY, "it is being restored")
            self._refusals.turn_away(connection, peer, refusal)
