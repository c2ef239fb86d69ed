"""What tenants have and have used in the whole cluster, from what the GPU servers say: `usage/ADDRESS`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from gpuferry.specs._generated import registry_pb2, tenants_pb2

from ...settings.limits import BUILT_IN, DEFAULT, Limits
from ...store.interface import Store
from ...tenants.book import OURS
from ...tenants.messages import USED, add_usage, from_message, to_message
from ...tenants.tenancy import Source, Tenancy
from ...tenants.usage import DAYS_MOST, TENANTS_MOST

USAGE = "usage/"
WRITE_SECONDS = 15.0  # what is lost of a server that dies together with this replica

Counted = dict[tuple[str, str], tenants_pb2.Usage]  # by tenant and day; no day: ever


async def follow_limits(store: Store, tenancy: Tenancy) -> None:
    """Let the limits hold that are set in the store, until cancelled."""
    async for state in store.watch(OURS):
        said = [tenants_pb2.Limits.FromString(value) for value in state.values()]
        tenancy.update(Source.CLUSTER, {one.tenant: from_message(one) for one in said})


def _counted(reports: Sequence[tenants_pb2.Report]) -> Counted:
    return {(one.tenant, one.day): one for report in reports for one in (report.usage, *report.days)}


def merge(kept: Counted, said: Counted) -> Counted:
    """Counters only grow: what was kept stays where a server that lost its state folder says less."""
    for key, usage in said.items():
        known = kept.get(key)
        if known is None:
            kept[key] = usage
        else:
            for name in USED:
                setattr(known, name, max(getattr(known, name), getattr(usage, name)))
    return kept


def _packed(counted: Counted) -> bytes:
    latest = sorted({day for _, day in counted if day})[-DAYS_MOST:]
    days: dict[str, list[tenants_pb2.Usage]] = {}
    for (tenant, day), usage in sorted(counted.items()):
        if day in latest:
            days.setdefault(tenant, []).append(usage)
    totals = [(tenant, usage) for (tenant, day), usage in sorted(counted.items()) if not day]
    reports = [
        tenants_pb2.Report(tenant=tenant, usage=usage, days=days.get(tenant, ()))
        for tenant, usage in totals[: TENANTS_MOST + 1]
    ]
    return tenants_pb2.ListReply(reports=reports).SerializeToString()


class ClusterUsage:
    """Keeps what each server says of its tenants beyond the server's life, and adds it up."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._written: dict[str, float] = {}  # when, by address

    async def note(self, load: registry_pb2.Load) -> None:
        """Keep what a heartbeat says, if that was not done lately."""
        if (
            not load.tenants
            or self._clock() < self._written.get(load.address, -WRITE_SECONDS) + WRITE_SECONDS
        ):
            return
        self._written[load.address] = self._clock()
        entry = await self._store.get(USAGE + load.address)
        kept = _counted(tenants_pb2.ListReply.FromString(entry.value).reports) if entry else {}
        packed = _packed(merge(kept, _counted(load.tenants)))
        if not entry or packed != entry.value:
            await self._store.put(USAGE + load.address, packed)

    async def reports(
        self, servers: Sequence[registry_pb2.Server], limits: Mapping[str, Limits]
    ) -> list[tenants_pb2.Report]:
        """What each tenant may have, has, and has used."""
        entries = await self._store.read(USAGE)
        counted = {
            key.removeprefix(USAGE): _counted(tenants_pb2.ListReply.FromString(entry.value).reports)
            for key, entry in entries.items()
        }
        found: dict[str, tenants_pb2.Report] = {}

        def report(tenant: str) -> tenants_pb2.Report:
            return found.setdefault(tenant, tenants_pb2.Report(tenant=tenant))

        for server in servers:
            address = server.registration.address
            counted[address] = merge(counted.get(address, {}), _counted(server.load.tenants))
            for one in server.load.tenants:
                total = report(one.tenant)
                total.sessions += one.sessions
                total.waiting += one.waiting
                total.memory += one.memory
                total.gpus += one.gpus
                total.share += one.share
        days: Counted = {}
        for usages in counted.values():
            for (tenant, day), usage in usages.items():
                if day:
                    add_usage(
                        days.setdefault((tenant, day), tenants_pb2.Usage(tenant=tenant, day=day)), usage
                    )
                else:
                    report(tenant).usage.tenant = tenant
                    add_usage(report(tenant).usage, usage)
        for (tenant, _), usage in sorted(days.items()):
            report(tenant).days.append(usage)
        for tenant in limits.keys() - {DEFAULT}:
            report(tenant)
        for tenant, one in found.items():
            said = limits.get(tenant, Limits())
            one.set.CopyFrom(to_message(tenant, said))
            one.limits.CopyFrom(to_message(tenant, said.over(limits.get(DEFAULT, Limits())).over(BUILT_IN)))
        return [found[tenant] for tenant in sorted(found)]
