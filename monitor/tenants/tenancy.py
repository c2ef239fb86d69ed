"""The limits of every tenant as they hold now, from all who may set them."""

from __future__ import annotations

import enum
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set

from ..policy.holdings import EVERYTHING, Share
from ..policy.portion import FULL
from ..service.rates import Buckets
from ..settings.limits import BUILT_IN, DEFAULT, UNLIMITED, Limits, limits_of

REMEMBERED = 4096  # tenants whose limits were worked out


class Source(enum.IntEnum):
    """Where limits come from; of two sources, the later one holds."""

    SETTINGS = 0
    CLUSTER = 1
    MACHINE = 2  # `gpuferry tenant set` here


class Tenancy:
    """Limits by tenant. Who named no tenant holds the operator's own token, and has none."""

    def __init__(self, setting: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._said: dict[Source, Mapping[str, Limits]] = {source: {} for source in Source}
        self._said[Source.SETTINGS] = limits_of(setting)
        self._known: dict[str, Limits] = {}
        self._shares: dict[str, Share] = {}
        self._calls = Buckets(clock)
        self._starts = Buckets(clock)
        self.starts_refused = Counter[str]()  # by tenant
        self._tenants: dict[Source, Set[str]] = {}

    def know(self, source: Source, tenants: Set[str]) -> bool:
        """Which tenants this source has tokens of. Where only one may come, it leaves nothing to others.
        Returns whether anything changed.
        """
        if self._tenants.get(source) == tenants:
            return False
        self._tenants[source] = frozenset(tenants)
        self._shares.clear()
        return True

    @property
    def several(self) -> bool:
        """Whether tokens of several tenants exist."""
        return len(frozenset().union(*self._tenants.values())) > 1

    def update(self, source: Source, limits: Mapping[str, Limits]) -> bool:
        """What this source says from now on. Returns whether anything changed."""
        if self._said[source] == limits:
            return False
        self._said[source] = dict(limits)
        self._known.clear()
        self._shares.clear()
        return True

    def said(self, tenant: str) -> Limits:
        """What was set for this very tenant."""
        found = Limits()
        for source in reversed(Source):
            found = found.over(self._said[source].get(tenant, Limits()))
        return found

    def named(self) -> set[str]:
        """Tenants for which limits were set."""
        return {name for said in self._said.values() for name in said} - {DEFAULT}

    def limits(self, tenant: str) -> Limits:
        """The limits that hold for the tenant; each of them is said."""
        if not tenant:
            return UNLIMITED
        found = self._known.get(tenant)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
                self._shares.clear()
            found = self._known[tenant] = self.said(tenant).over(self.said(DEFAULT)).over(BUILT_IN)
        return found

    def share(self, tenant: str) -> Share:
        """The part of the limits that decides who has a turn."""
        if not tenant:
            return EVERYTHING
        found = self._shares.get(tenant)
        if found is None:
            limits = self.limits(tenant)
            assert limits.sessions is not None
            assert limits.memory is not None
            assert limits.weight is not None
            assert limits.gpus is not None
            assert limits.share is not None
            leave = int(limits.leave or 0) if self.several else 0
            share = Share(
                limits.sessions, limits.memory, limits.weight, leave, limits.gpus, limits.share * FULL
            )
            found = self._shares[tenant] = share
        return found

    def why_no_call(self, tenant: str) -> str | None:
        """Why the tenant may not make another call of the control plane now; None: it may, and it counts."""
        limits = self.limits(tenant)
        rate = limits.calls
        if rate is None or rate == math.inf or (rate > 0 and self._calls.take(tenant, rate, max(rate, 1.0))):
            return None
        return (
            f"tenant {tenant} may make {limits.shown()['calls']} calls (limit calls): wait, or ask the "
            f"operator for more (`gpuferry tenant set {tenant} --calls`)"
        )

    def why_no_start(self, tenant: str) -> str | None:
        """Why no session of the tenant may begin now, and when one may; None: one may, and it counts."""
        limits = self.limits(tenant)
        rate, burst = limits.starts, limits.burst
        if rate is None or burst is None or rate == math.inf:
            return None
        if rate and not (lack := self._starts.lack(tenant, rate, burst)):
            return None
        self.starts_refused[tenant] += 1
        again = f"try again in {math.ceil(lack / rate)} s" if rate else "none may begin"
        return (
            f"sessions of tenant {tenant} may begin at {limits.shown()['starts']}, {burst:.0f} at once "
            f"(limits starts, burst): {again}, or ask the operator for more "
            f"(`gpuferry tenant set {tenant} --starts`)"
        )
