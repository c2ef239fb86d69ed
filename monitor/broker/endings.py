"""Sessions that shall end before their guests do: by an operator, by a limit, with a tenant's token."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping

import structlog
from gpuferry.specs._generated import node_pb2

from ..door.guests import Guest
from ..door.handshake import Reason
from ..pool.api_server import ApiServer
from ..pool.channel import ChannelBroken
from ..sessions.session import Phase, Session
from .refusals import Refusals

OVERDUE_SECONDS = 30.0  # beyond its limit, until a session is ended that its API server did not end
REVOCATIONS_MOST = 8  # of a tenant that are known: no more than two of them are ever in force
REVOKE_SECONDS = 2.0  # then an API server that does not end its session is ended

log = structlog.get_logger()


class Endings:
    """Has sessions ended by whoever has them, each with a reason for its guest.

    `withdraw` takes a session out of the queue; `flush` hands over what was granted; `revocations` are the
    times at which each tenant's tokens were revoked: they end who comes back, too.
    """

    def __init__(
        self,
        sessions: Mapping[int, Session],
        refusals: Refusals,
        withdraw: Callable[[Session], Guest],
        flush: Callable[[], None],
        revocations: dict[str, deque[float]],
    ) -> None:
        self._sessions = sessions
        self._refusals = refusals
        self._withdraw = withdraw
        self._flush = flush
        self._revocations = revocations

    def end(self, session: Session, reason: str) -> None:
        """Tell the session's guest why it ends. An API server that does not let go is ended."""
        self._flush()
        log.info("session revoked", session=session.id, reason=reason)
        if session.phase is Phase.WAITING or not session.server:
            self._refusals.refuse(self._withdraw(session), Reason.DENIED, reason)
            return
        session.revoked = reason
        revoke = node_pb2.Revoke(session=session.id, reason=reason)
        with contextlib.suppress(ChannelBroken):
            session.server.send(node_pb2.ToServer(revoke=revoke))
        asyncio.get_running_loop().call_later(REVOKE_SECONDS, self._insist, session, session.server)

    def _insist(self, session: Session, server: ApiServer) -> None:
        if session.server is server and server.session == session.id and session.id in self._sessions:
            server.kill()

    def by_number(self, number: int, reason: str, tenant: str | None = None) -> bool:
        """End the session with this number, and all of its program; with `tenant`, only if it is that
        tenant's. Returns False if there is none.
        """
        session = self._sessions.get(number)
        if session is None or tenant not in (None, session.hello.tenant):
            return False
        lease = session.lease
        for member in [*lease.joining, *lease.members]:
            if member in self._sessions:
                self.end(self._sessions[member], reason)
        return True

    def of_tenant(self, tenant: str, moment: float) -> None:
        """End all sessions of a tenant whose token was revoked then, and those which are adopted later; but
        none that came once an earlier monitor had done so.
        """
        self._revocations.setdefault(tenant, deque(maxlen=REVOCATIONS_MOST)).append(moment)
        for session in [one for one in self._sessions.values() if one.hello.tenant == tenant]:
            self._end_if_revoked(session, moment)

    def adopted(self, session: Session) -> None:
        """An earlier monitor's session is back: its limit holds, and what was revoked meanwhile."""
        self.mind_limit(session)
        for moment in self._revocations.get(session.hello.tenant, ()):
            self._end_if_revoked(session, moment)

    def _end_if_revoked(self, session: Session, moment: float) -> None:
        if not session.grant or moment not in session.grant.revocations:
            self.end(session, f"the token of {session.hello.tenant} was revoked")

    def mind_limit(self, session: Session) -> None:
        """API servers end sessions whose time is over; one that was taken over need not."""
        if not session.wall_limit or session.id not in self._sessions:
            return
        left = session.wall_limit + OVERDUE_SECONDS - session.age
        if left <= 0 and not session.remote:
            self.end(session, f"its limit of {session.wall_limit:g} s is over")
            return
        session.stop_minding()
        left = max(left, OVERDUE_SECONDS)  # it may be elsewhere
        session.minding = asyncio.get_running_loop().call_later(left, self.mind_limit, session)
