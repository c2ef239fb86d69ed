"""Turns guests away, each with the reason."""

from __future__ import annotations

import structlog
from gpuferry.native.tls.stream import Connection

from ..door.guests import Farewells, Guest, address_of
from ..door.handshake import CudaError, Reason, Refusal
from ..service.rates import Sparing
from ..sessions.events import Announcer, Event, Kind

log = structlog.get_logger()


class Refusals:
    """Turns guests away: the guest hears the reason, in the background; so do the log and whoever listens."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._farewells = Farewells()
        self._log = Sparing(log.info)
        self.count = 0  # guests that were turned away

    def turn_away(self, connection: Connection, peer: str, refusal: Refusal) -> None:
        """Tell the guest at the other end of a connection, which is taken over, why not."""
        self.count += 1
        reason = refusal.reason.name
        self._log.say("refused", (reason, address_of(peer)), reason=reason, text=refusal.text, peer=peer)
        self._announcer.tell(Event(Kind.REFUSED, reason=refusal.text))
        self._farewells.send(connection, refusal.frame())

    def refuse(self, guest: Guest, reason: Reason, text: str, error: CudaError | None = None) -> None:
        """Tell a guest that proved itself why not. `error`: what its program gets, if not the usual error."""
        self.turn_away(guest.connection, guest.peer, Refusal(reason, text, error))

    def answer(self, connection: Connection, frame: bytes) -> None:
        """Send a last frame that is no refusal. Takes the connection over."""
        self._farewells.send(connection, frame)

    async def finish(self) -> None:
        """Wait until all have heard, or were given up."""
        await self._farewells.finish()
