"""Who a guest is: each Authority knows one kind of proof; a claim is shown to those that a server has."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

from ..service.rates import Sparing
from ..store.interface import StoreError
from ..store.sqlite import SqliteStore
from .handshake import Claim, CudaError, Extension, Proven, Reason, Refusal
from .mac import mac
from .tickets import TicketDesk
from .tokens import proof
from .tokens.book import TokenBook

log = structlog.get_logger()
_complaints = Sparing(lambda event, **fields: log.error(event, **fields))  # for anybody may ask


class Authority(Protocol):
    """Knows one kind of proof. How long a No takes tells nothing about which tokens exist."""

    def at_once(self, claim: Claim) -> Proven | None:
        """Return who made the claim, if that can be told without looking anything up; None: ask `judge`."""

    async def judge(self, claim: Claim) -> Proven | None:
        """Return who made the claim, or None. Raises StoreError (cannot be told now) or Refusal (why)."""


class OwnToken:
    """The one token of this monitor or registry, for which the tenant is only a name. `vouched`: a GPU server
    that its guests are sent to takes that name for proven.
    """

    def __init__(self, token: bytes, vouched: bool = False) -> None:
        self._owner = Proven(None, token, vouched=vouched)

    async def judge(self, claim: Claim) -> Proven | None:
        """Return who made the claim. Nothing has to be looked up."""
        return self.at_once(claim)

    def at_once(self, claim: Claim) -> Proven | None:
        """The token's owner, if the proof is an HMAC with the token itself."""
        return self._owner if _holds(claim, self._owner.key) else None


class Tenants:
    """Tokens of tenants, in a store."""

    def __init__(self, book: TokenBook) -> None:
        self._book = book

    def at_once(self, claim: Claim) -> Proven | None:
        """Always None: tokens are in a store, and looking there takes time."""
        return None

    async def judge(self, claim: Claim) -> Proven | None:
        """The tenant, if the proof fits one of its tokens. An unknown one costs as many checks."""
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
        self._opening = asyncio.Lock()

    async def store(self) -> SqliteStore | None:
        """The file's store; None as long as there is no file, or an empty one: whoever was to make it had no
        room on its disk. Raises StoreError.
        """
        try:
            there = bool(self._store or self._path.stat().st_size)
        except (FileNotFoundError, NotADirectoryError):
            there = False
        except OSError as error:  # the folder is another user's, or its disk is gone
            raise StoreError(f"{self._path}: {error.strerror}") from None
        return await self.made() if there else None

    async def made(self) -> SqliteStore:
        """The file's store; the file is made if need be. Raises StoreError."""
        async with self._opening:
            if self._store is None:  # SQLite may wait for another process, or for the disk
                self._store = await asyncio.to_thread(SqliteStore, self._path)
        return self._store

    async def book(self) -> TokenBook | None:
        """The tokens; None as long as there is no file. Raises StoreError."""
        store = await self.store()
        return TokenBook(store) if store else None

    def at_once(self, claim: Claim) -> Proven | None:
        """Always None: tokens are in a file, and looking there takes time."""
        return None

    async def judge(self, claim: Claim) -> Proven | None:
        """The tenant, if the proof fits one of its tokens."""
        book = await self.book()
        return await Tenants(book).judge(claim) if book else None

    async def close(self) -> None:
        """Close the file, if it was opened."""
        if self._store:
            await self._store.close()


class Tickets:
    """Guests that a registry sent, with a ticket."""

    def __init__(self, desk: TicketDesk) -> None:
        self._desk = desk

    async def judge(self, claim: Claim) -> Proven | None:
        """Return who made the claim. Raises Refusal for a genuine ticket that came too late."""
        if proven := self.at_once(claim):
            return proven
        ticket = _ticket(claim)
        if self._desk.outdated(ticket) and _holds(claim, self._desk.key(ticket, _restores(claim))):
            text = "the GPU server was started anew since the registry chose it: try again"
            raise Refusal(Reason.NO_CAPACITY, text, CudaError.SYSTEM_NOT_READY)
        return None

    def at_once(self, claim: Claim) -> Proven | None:
        """The tenant that the registry wrote into the ticket, which is then used up."""
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
    """Several authorities as one: the first that knows who made a claim decides."""

    def __init__(self, authorities: Sequence[Authority]) -> None:
        self._authorities = authorities

    def at_once(self, claim: Claim) -> Proven | None:
        """The first answer for which nothing has to be looked up."""
        for authority in self._authorities:
            if proven := authority.at_once(claim):
                return proven
        return None

    async def judge(self, claim: Claim) -> Proven | None:
        """The first answer; the authorities are asked one after another, and a No needs all of them."""
        for authority in self._authorities:
            if proven := await authority.judge(claim):
                return proven
        return None


async def look_up(authority: Authority, claim: Claim) -> Proven | None:
    """Who made the claim, where that must be looked up. Raises Refusal if nobody knows, or it cannot be
    found out now.
    """
    try:
        return await authority.judge(claim)
    except StoreError as error:
        _complaints.say("tokens cannot be checked", "tokens", error=str(error))
        raise Refusal(
            Reason.NO_CAPACITY, "tokens cannot be checked at the moment", CudaError.SYSTEM_NOT_READY
        ) from None
