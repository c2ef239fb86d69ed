"""Who a guest is: each Authority knows one kind of proof; a claim is shown to those that a server has."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..store.sqlite import SqliteStore
from .handshake import Claim, CudaError, Extension, Proven, Reason, Refusal, mac
from .tickets import TicketDesk
from .tokens import proof
from .tokens.book import TokenBook


class Authority(Protocol):
    """Says who made a claim, or None. How long a No takes tells nothing about what it knows."""

    def at_once(self, claim: Claim) -> Proven | None:
        """What it can say without looking anything up; None may still become a Yes."""

    async def judge(self, claim: Claim) -> Proven | None:
        """StoreError if it cannot find out now; Refusal if it knows why not, and the guest shall too."""


class OwnToken:
    """The one token of this monitor or registry, for which the tenant is only a name."""

    def __init__(self, token: bytes) -> None:
        self._owner = Proven(None, token)

    async def judge(self, claim: Claim) -> Proven | None:
        """The same."""
        return self.at_once(claim)

    def at_once(self, claim: Claim) -> Proven | None:
        """The proof is an HMAC with the token itself."""
        return self._owner if _holds(claim, self._owner.key) else None


class Tenants:
    """Tokens per tenant."""

    def __init__(self, book: TokenBook) -> None:
        self._book = book

    def at_once(self, claim: Claim) -> Proven | None:
        """They are in a store."""
        return None

    async def judge(self, claim: Claim) -> Proven | None:
        """As many checks for an unknown tenant as for a known one."""
        if not claim.tenant:
            return None
        name = claim.tenant.decode(errors="replace")
        verifiers = await self._book.verifiers(name if proof.is_tenant(name) else "-")
        matching = [known for known in verifiers if proof.check(known, claim.message, claim.proof)]
        return Proven(name, matching[0].server_key) if matching else None


class LocalTenants:
    """The tokens in this machine's state folder, where there may be none until somebody makes the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store: SqliteStore | None = None

    @property
    def book(self) -> TokenBook | None:
        """None as long as there is no file."""
        if self._store is None and self._path.exists():
            self._store = SqliteStore(self._path)
        return TokenBook(self._store) if self._store else None

    def at_once(self, claim: Claim) -> Proven | None:
        """They are in a file."""
        return None

    async def judge(self, claim: Claim) -> Proven | None:
        """As `Tenants`."""
        return await Tenants(self.book).judge(claim) if self.book else None

    async def close(self) -> None:
        """Close the file."""
        if self._store:
            await self._store.close()


class Tickets:
    """Guests that a registry sent."""

    def __init__(self, desk: TicketDesk) -> None:
        self._desk = desk

    async def judge(self, claim: Claim) -> Proven | None:
        """The same; one that came too late is told so, and not that its token is wrong."""
        if proven := self.at_once(claim):
            return proven
        ticket = _ticket(claim)
        if self._desk.outdated(ticket) and _holds(claim, self._desk.key(ticket, _restores(claim))):
            text = "the GPU server was started anew since the registry chose it: try again"
            raise Refusal(Reason.NO_CAPACITY, text, CudaError.SYSTEM_NOT_READY)
        return None

    def at_once(self, claim: Claim) -> Proven | None:
        """The tenant is the one that the registry wrote down."""
        ticket = _ticket(claim)
        if (found := self._desk.read(ticket, _restores(claim))) is None:
            return None
        tenant, key = found
        if not _holds(claim, key):
            return None
        self._desk.use(ticket)
        return Proven(tenant, key, invited=True)


def _ticket(claim: Claim) -> bytes:
    return claim.extensions.get(Extension.TICKET, b"")


def _restores(claim: Claim) -> bool:
    return Extension.RESTORE in claim.extensions


def _holds(claim: Claim, key: bytes) -> bool:
    return hmac.compare_digest(claim.proof, mac(key, claim.message))


class AnyOf:
    """The first yes of several."""

    def __init__(self, authorities: Sequence[Authority]) -> None:
        self._authorities = authorities

    def at_once(self, claim: Claim) -> Proven | None:
        """Without looking anything up."""
        for authority in self._authorities:
            if proven := authority.at_once(claim):
                return proven
        return None

    async def judge(self, claim: Claim) -> Proven | None:
        """One after another; a No needs all of them."""
        for authority in self._authorities:
            if proven := await authority.judge(claim):
                return proven
        return None
