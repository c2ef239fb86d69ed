"""Guests that lost their connection while their session went to another GPU server: they are told where."""

from __future__ import annotations

import asyncio

from gpuferry.migration.follow import moved_frame, session_of
from gpuferry.specs._generated import migration_pb2

from ..door.handshake import Resume, resumed
from ..sessions.session import Session

AWAY_SECONDS = 60.0  # in which a guest is still told of a session that is over here


class Forwarding:
    """Remembers for a minute where sessions went that are not here any more."""

    def __init__(self) -> None:
        self._away: dict[int, tuple[bytes, migration_pb2.RemoteTarget]] = {}

    def ended(self, session: Session) -> None:
        """The session is over here. If it went to another GPU server, remember where."""
        if session.remote:
            self._away[session.id] = session.resume_key, session.remote
            asyncio.get_running_loop().call_later(AWAY_SECONDS, self._away.pop, session.id)

    def frame(self, session: Session | None, resume: Resume) -> bytes | None:
        """The frame for a guest that comes back: MOVED, or RESUMED for one that only asks.

        None: the session did not go elsewhere, or the guest does not hold its key.
        """
        number = resume.session
        key, remote = (session.resume_key, session.remote) if session else self._away.get(number, (b"", None))
        proof = resume.answer(key) if remote else None
        if not remote or not proof:
            return None
        if resume.asks:
            return resumed(proof)
        return moved_frame(key, remote.key, session_of(remote.welcome), remote.address)
