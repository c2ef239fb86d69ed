"""What tenants have and have used in the whole cluster, from what the GPU servers say: in
`usage/ADDRESS` what they have ever used there, in `usage/ADDRESS/DAY` what on that day. All days in one value
would be more than etcd takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from gpuferry.specs._generated import registry_pb2, tenants_pb2

from ...settings.limits import BUILT_IN, DEFAULT, Limits
from ...store.interface import Entry, Store
from ...store.records import View, record
from ...tenants.book import OURS
from ...tenants.messages import USED, add_usage, from_message, to_message
from ...tenants.tenancy import Source, Tenancy
from ...tenants.usage import DAYS_MOST, TENANTS_MOST

USAGE = "usage/"
WRITE_SECONDS = 15.0  # what is lost of a server that dies together with this replica

DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
Counted = dict[tuple[str, str], tenants_pb2.Usage]  # by tenant and day; no day: ever


async def follow_limits(store: Store, tenancy: Tenancy) -> None:
    """Let the limits hold that are set in the store, until cancelled."""
    view = View()
    async for state in store.watch(OURS):
        said = view.read(tenants_pb2.Limits, state).values()
        tenancy.update(Source.CLUSTER, {one.tenant: from_message(one) for one in said})


def _counted(reports: Sequence[tenants_pb2.Report]) -> Counted:
    usages = (usage for report in reports for usage in (report.usage, *report.days))
    return {
        (one.tenant, one.day): one for one in usages if one.tenant and (not one.day or DAY.fullmatch(one.day))
    }


def _address(key: str) -> str:
    """Whose account is below this key."""
    address, slash, day = key.removeprefix(USAGE).rpartition("/")
    return address if slash and DAY.fullmatch(day) else key.removeprefix(USAGE)


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


def _packed(counted: Counted, day: str) -> bytes:
    """The account of a day; no day: ever."""
    usages = [usage for (_, its_day), usage in sorted(counted.items()) if its_day == day]
    reports = [
        tenants_pb2.Report(tenant=one.tenant, **({"days": [one]} if day else {"usage": one}))
        for one in usages[: TENANTS_MOST + 1]
    ]
    return tenants_pb2.ListReply(reports=reports).SerializeToString()


class ClusterUsage:
    """Keeps what each server says of its tenants beyond the server's life, and adds it up."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._written: dict[str, float] = {}  # when, by address
        self._view = View()

    async def note(self, load: registry_pb2.Load) -> None:
        """Keep what a heartbeat says, if that was not done lately."""
        if (
            not load.tenants
            or self._clock() < self._written.get(load.address, -WRITE_SECONDS) + WRITE_SECONDS
        ):
            return
        self._written[load.address] = self._clock()
        said, key = _counted(load.tenants), USAGE + load.address
        ever = await self._store.get(key)
        kept = self._kept(key, ever)  # once with the days: they get their keys before they are left out here
        began = False
        for day in sorted({day for _, day in (*said, *kept) if day})[-DAYS_MOST:]:
            entry = await self._store.get(its := f"{key}/{day}")
            await self._write(its, day, entry, merge(merge(self._kept(its, entry), kept), said))
            began |= entry is None
        await self._write(key, "", ever, merge(kept, said))
        if began:
            await self._forget_days(key)

    def _kept(self, key: str, entry: Entry | None) -> Counted:
        """What was counted; of what is damaged nothing: it is written anew, with what its server says."""
        found = self._view.read(tenants_pb2.ListReply, {key: entry.value} if entry else {})
        return _counted(found[key].reports) if found else {}

    async def _write(self, key: str, day: str, entry: Entry | None, counted: Counted) -> None:
        packed = _packed(counted, day)
        if not entry or packed != entry.value:
            await self._store.put(key, packed)

    async def _forget_days(self, key: str) -> None:
        entries = await self._store.read(key + "/")
        days = sorted(day for day in entries if _address(day) == key.removeprefix(USAGE))
        for day in days[:-DAYS_MOST]:
            await self._store.swap(day, None, entries[day].version)

    async def reports(
        self, servers: Sequence[registry_pb2.Server], limits: Mapping[str, Limits]
    ) -> list[tenants_pb2.Report]:
        """What each tenant may have, has, and has used. Raises StoreError, also if a record is damaged: no
        bill is better than one that lacks something.
        """
        entries = await self._store.read(USAGE)
        counted: dict[str, Counted] = {}
        for key, entry in entries.items():
            said = _counted(record(tenants_pb2.ListReply, key, entry).reports)
            counted[_address(key)] = merge(counted.get(_address(key), {}), said)
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
        for tenant in limits:
            report(tenant)
        for tenant, one in found.items():
            own = limits.get(tenant, Limits())
            one.set.CopyFrom(to_message(tenant, own))
            one.limits.CopyFrom(to_message(tenant, own.over(limits.get(DEFAULT, Limits())).over(BUILT_IN)))
        return [found[tenant] for tenant in sorted(found)]
