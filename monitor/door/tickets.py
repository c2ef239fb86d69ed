"""Tickets: a registry's word to one GPU server that a guest may come, once and soon (specs/WIRE.md §2)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from heapq import heappop, heappush

from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Ticket

MAC_SIZE = frames.HASH_SIZE
LIFETIME = 30  # seconds, for the guest's way and for what a registry knows late of a server's clock


def _mac(cluster_key: bytes, ticket: bytes) -> bytes:
    message = frames.MAC_TICKET + ticket[:-MAC_SIZE]
    return hmac.digest(cluster_key, message, hashlib.sha256)


def session_key(cluster_key: bytes, ticket: bytes) -> bytes:
    """The key that a guest must hold to use this ticket, 32 bytes: whoever only saw the ticket cannot make
    it.
    """
    return hmac.digest(cluster_key, frames.KEY_TICKET + ticket, hashlib.sha256)


def restore_key(cluster_key: bytes, ticket: bytes) -> bytes:
    """The key with which a GPU server, not a guest, uses this ticket to hand a session over; 32 bytes."""
    return hmac.digest(cluster_key, frames.KEY_RESTORE + ticket, hashlib.sha256)


def number_of(ticket: bytes) -> bytes:
    """The ticket's number, 16 random bytes that no other ticket has."""
    return Ticket.unpack(ticket).id


def issue(cluster_key: bytes, incarnation: bytes, tenant: str, now: float) -> bytes:
    """Make a ticket that is good for 30 s, for the monitor that called itself `incarnation` at its start.
    `now`: what that monitor's clock shows, in seconds.
    """
    unsigned = Ticket(secrets.token_bytes(16), incarnation, int(now) + LIFETIME, tenant.encode(), b"").pack()
    return unsigned[:-MAC_SIZE] + _mac(cluster_key, unsigned)


class TicketDesk:
    """Takes the tickets that were issued for this start of one monitor, each once. `steady`: seconds of a
    clock that nobody sets.
    """

    def __init__(self, cluster_key: bytes, steady: Callable[[], float] = time.monotonic) -> None:
        self.incarnation = secrets.token_bytes(16)
        self._key = cluster_key
        self._steady = steady
        self._used: set[bytes] = set()
        self._expiring: list[tuple[int, bytes]] = []  # when, and which of them; a heap

    def clock(self) -> float:
        """Seconds, by which tickets expire; heartbeats tell it to whoever issues them."""
        return self._steady()

    def outdated(self, ticket: bytes) -> bool:
        """Whether the ticket is genuine, but expired, or for an earlier start of this monitor."""
        if not self._genuine(ticket):
            return False
        said = Ticket.unpack(ticket)
        return said.incarnation != self.incarnation or said.expires < self.clock()

    def _genuine(self, ticket: bytes) -> bool:
        return len(ticket) == Ticket.SIZE and hmac.compare_digest(ticket[-MAC_SIZE:], _mac(self._key, ticket))

    def read(self, ticket: bytes, restore: bool = False) -> tuple[str, bytes] | None:
        """The tenant and the session key of a ticket that may be used; None if it is not genuine, for
        another monitor, expired or used up. With `restore` the key is that of a GPU server.
        """
        if not self._genuine(ticket):
            return None
        said = Ticket.unpack(ticket)
        if said.incarnation != self.incarnation or said.expires < self.clock() or said.id in self._used:
            return None
        return said.tenant.partition(b"\0")[0].decode(), self.key(ticket, restore)

    def key(self, ticket: bytes, restore: bool = False) -> bytes:
        """The session key of a genuine ticket; with `restore`, a GPU server's."""
        return (restore_key if restore else session_key)(self._key, ticket)

    def use(self, ticket: bytes) -> None:
        """Note that the ticket was used with a right proof: nobody can use it again."""
        self._forget_expired()
        said = Ticket.unpack(ticket)
        self._used.add(said.id)
        heappush(self._expiring, (said.expires, said.id))

    def used(self) -> list[bytes]:
        """The numbers of the tickets that were used, for the next heartbeat, until they expire."""
        self._forget_expired()
        return list(self._used)

    def _forget_expired(self) -> None:
        now = self.clock()
        while self._expiring and self._expiring[0][0] < now:
            self._used.discard(heappop(self._expiring)[1])
