"""Who may come in and who may wait: the tenants' limits, and places in the queue when there are too many
guests.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..door.handshake import Hello
from ..policy.portion import FULL, shown_time
from ..sessions.placement import Placer
from ..settings.limits import KINDS
from ..tenants.tenancy import Tenancy


def _said(tenant: str, has: object, most: float, what: str, name: str) -> str:
    return (
        f"tenant {tenant} has {has} of {KINDS[name].show(most)} {what} (limit {name}): end some, try later, "
        f"or ask the operator for more (`gpuferry tenant set {tenant} --{name}`)"
    )


def all_places_taken(most: int) -> str:
    """What a guest is told that had to go because `most` wait already; a registry says the same."""
    return f"{most} guests wait already, and nobody has more of them waiting: try again later"


class Admission:
    """Says whom the limits keep out. `most`: guests that may wait in all, as many as there are descriptors
    for.
    """

    def __init__(
        self, placer: Placer, tenancy: Tenancy, most: int, more: Callable[[str], int] = lambda _: 0
    ) -> None:
        self._placer = placer
        self._tenancy = tenancy
        self.most = most
        self._more = more  # sessions of a tenant that share a lease with another

    def why_not_in(self, tenant: str) -> str | None:
        """Why one more guest of the tenant may not come in; None: it may."""
        limit = self._tenancy.limits(tenant).connections
        if limit is None or limit == math.inf:
            return None
        standing = self._placer.standing(tenant)
        has = standing.waiting + standing.sessions + self._more(tenant)
        return _said(tenant, has, limit, "connections", "connections") if has >= limit else None

    def why_not_wait(self, tenant: str) -> str | None:
        """Why the newest guest of the tenant, which found no room, may not wait; None: it may."""
        limit, waiting = self._tenancy.limits(tenant).queue, self._placer.standing(tenant).waiting
        if limit is None or waiting <= limit:
            return None
        return _said(tenant, waiting - 1, limit, "queue places", "queue")

    def displaced(self) -> tuple[int, str] | None:
        """The waiting session that must go because all places are taken, the last one of whoever has most of
        them, and why; None: there are enough.
        """
        if len(self._placer) <= self.most or not (crowd := self._placer.crowd()):
            return None
        return crowd[2], all_places_taken(self.most)

    def why_waiting(self, hello: Hello) -> str:
        """Return the tenant's limit that kept this guest waiting in vain; empty if it was none of them."""
        tenant, devices, request = hello.tenant, hello.devices, hello.portion.request
        limits, standing = self._tenancy.limits(tenant), self._placer.standing(tenant)
        if limits.sessions is not None and standing.sessions >= limits.sessions:
            return f"; {_said(tenant, standing.sessions, limits.sessions, 'sessions', 'sessions')}"
        if limits.gpus is not None and standing.gpus + devices > limits.gpus:
            return f"; {_said(tenant, standing.gpus, limits.gpus, 'GPUs', 'gpus')}"
        if limits.share is not None and standing.time + request * devices > limits.share * FULL:
            promised = shown_time(standing.time)
            return f"; {_said(tenant, promised, limits.share, 'GPUs of time promised', 'share')}"
        if limits.memory is not None and limits.memory > 0 and standing.memory * 2 > limits.memory:
            return (
                f"; tenant {tenant} was granted {standing.memory} of {limits.memory:.0f} bytes (limit memory)"
                f": ask for less (GPUFERRY_MEMORY), or the operator for more"
            )
        leave = self._tenancy.share(tenant).leave
        if leave and standing.sessions:
            return f"; what is free is left to tenants that have no session ({tenant}: limit leave={leave})"
        return ""
