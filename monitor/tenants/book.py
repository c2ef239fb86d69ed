"""The limits that were set for tenants, in a Store: `tenant/NAME`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from gpuferry.specs._generated import tenants_pb2

from ..settings.limits import Limits
from ..store.interface import ABSENT, Store
from ..store.records import record, records
from .messages import from_message, only_newer, to_message

OURS, CLUSTERS = "tenant/", "cluster-tenant/"  # set here; as the registry told it last


class LimitBook:
    """Limits by tenant. `prefix`: under which keys."""

    def __init__(self, store: Store, prefix: str = OURS) -> None:
        self._store = store
        self._prefix = prefix

    async def all(self) -> dict[str, Limits]:
        """All limits that are set, by tenant."""
        return {one.tenant: from_message(one) for one in await self.messages()}

    async def messages(self) -> list[tenants_pb2.Limits]:
        """All limits that are set, with those that only a newer gpuferry knows."""
        return records(tenants_pb2.Limits, await self._store.read(self._prefix))

    async def set(self, tenant: str, limits: Limits, unset: Iterable[str] = ()) -> Limits:
        """Set these limits; others stay, and those named by `unset` are as if never set. Returns what
        is set.
        """
        nothing = dict.fromkeys(unset)
        return await self._change(tenant, lambda before: dataclasses.replace(limits.over(before), **nothing))

    async def _change(
        self, tenant: str, change: Callable[[Limits], Limits], *, keep_newer: bool = True
    ) -> Limits:
        key = self._prefix + tenant
        while True:
            entry = await self._store.get(key)
            said = record(tenants_pb2.Limits, key, entry) if entry else tenants_pb2.Limits()
            after = change(from_message(said))
            newer = only_newer(said) if keep_newer else b""
            value = None
            if newer or after != Limits():
                value = to_message(tenant, after).SerializeToString() + newer
            if value is None and entry is None:
                return after
            if await self._store.swap(key, value, entry.version if entry else ABSENT):
                return after

    async def replace(self, limits: Mapping[str, Limits]) -> None:
        """Let exactly these be set: what somebody else's book says."""
        for tenant in (await self.all()).keys() - limits.keys():
            await self._change(tenant, lambda _: Limits(), keep_newer=False)
        for tenant, wanted in limits.items():
            await self._change(tenant, lambda _, wanted=wanted: wanted, keep_newer=False)  # type: ignore[misc]
