"""What is known of all tokens, in a Store: `token/TENANT/ID` and, when sessions shall end, `kill/TENANT`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuferry.specs._generated import registry_pb2

from ...store.interface import ABSENT, Store
from ...store.records import records
from . import proof

TOKENS_MOST = 4  # of one tenant, so that a check is the same work for everybody
KILL_SECONDS = 600.0  # a GPU server that was away for longer has no sessions of before
TOKENS, KILLS = "token/", "kill/"


class TooMany(Exception):
    """The tenant has as many tokens as it may have."""


def new_record(token: str) -> registry_pb2.Token:
    """What is stored of a token."""
    known = proof.verifier(token)
    return registry_pb2.Token(
        tenant=proof.tenant_of(token),
        id=proof.token_id(known),
        stored_key=known.stored_key,
        server_key=known.server_key,
        created=time.time(),
    )


class TokenBook:
    """Reads the store at every question: a token that was revoked is unknown from that moment on."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, record: registry_pb2.Token) -> None:
        """Store a token's record. Raises TooMany if the tenant has as many as it may."""
        prefix = f"{TOKENS}{record.tenant}/"
        key = f"{prefix}{record.id}"
        too_many = TooMany(f"{record.tenant} has {TOKENS_MOST} tokens already: revoke one first")
        if len(await self._store.read(prefix)) >= TOKENS_MOST:
            raise too_many
        await self._store.swap(key, record.SerializeToString(), ABSENT)
        # Somebody else may have added one meanwhile, and of more than can be checked any may be left out.
        there = await self._store.read(prefix)
        if len(there) > TOKENS_MOST and (mine := there.get(key)):
            await self._store.swap(key, None, mine.version)
            raise too_many

    async def all(self) -> list[registry_pb2.Token]:
        """The records of all tokens, by tenant and id."""
        return records(registry_pb2.Token, await self._store.read(TOKENS))

    async def tenants(self) -> set[str]:
        """The names of all tenants that have a token."""
        return {key.split("/")[1] for key in await self._store.read(TOKENS)}

    async def verifiers(self, tenant: str) -> Sequence[proof.Verifier]:
        """What checks the tenant's tokens: always TOKENS_MOST of them, nobody's where it has none."""
        entries = await self._store.read(f"{TOKENS}{tenant}/")
        found = records(registry_pb2.Token, entries)[:TOKENS_MOST]
        known = [proof.Verifier(token.stored_key, token.server_key) for token in found]
        return known + [proof.NOBODY] * (TOKENS_MOST - len(known))

    async def revoke(self, tenant: str, token: str, kill: bool) -> int:
        """Revoke one token of the tenant, or all (`token` empty). With `kill` its sessions end.

        Returns how many were revoked.
        """
        entries = await self._store.read(f"{TOKENS}{tenant}/")
        revoked = 0
        for key, entry in entries.items():
            if not token or key.rpartition("/")[2] == token:
                revoked += await self._store.swap(key, None, entry.version)
        if kill and (revoked or not token):  # the tokens may have been revoked before
            order = registry_pb2.Kill(tenant=tenant, time=time.time())
            await self._store.put(f"{KILLS}{tenant}", order.SerializeToString(), KILL_SECONDS)
        return revoked

    async def kills(self) -> list[registry_pb2.Kill]:
        """The tenants whose sessions shall end, and since when."""
        return records(registry_pb2.Kill, await self._store.read(KILLS))
