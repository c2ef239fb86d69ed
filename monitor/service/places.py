"""Whose the connections of a control port are, and which of them goes when there are too many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from .rates import Buckets

UNPROVEN_SECONDS = 20.0  # for a connection to make a call with a token that is one
RATE, BURST = 50.0, 100.0  # connections of one address, a second


@dataclass(eq=False)
class Visitor:
    """A connection to a service, which has a place until it is cut or leaves."""

    address: str
    cut: Callable[[], None]  # ends it now
    deadline: float  # while it is unproven
    proven: bool = False
    tenant: str | None = None  # of a proven one; None: the operator's


class Places:
    """The connections of one port, `most` in all. Half may be of callers who have not proved themselves, half
    of those of one address; a quarter may be tenants', half of those one tenant's. So a quarter at least is
    the operator's alone. Of the unproven, the oldest goes first.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = max(most, 4)
        self._unproven_most = self._most // 2
        self._address_most = max(self._most // 4, 1)
        self._tenants_most = max(self._most // 4, 1)
        self._tenant_most = max(self._most // 8, 1)
        self._clock = clock
        self._rates = Buckets(clock)
        self._visitors: dict[Visitor, None] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._visitors)

    def arrive(self, address: str, cut: Callable[[], None]) -> Visitor | None:
        """Enter a connection, for which another may have to go. None: there is no place for it."""
        if not self._rates.take(address, RATE, BURST):
            return None
        unproven = [one for one in self._visitors if not one.proven]
        addresses = Counter(one.address for one in unproven)
        if addresses[address] >= self._address_most:
            self._cut_oldest(unproven, address)
        elif len(unproven) >= self._unproven_most or (unproven and len(self._visitors) >= self._most):
            ((crowd, _),) = addresses.most_common(1)
            self._cut_oldest(unproven, crowd)
        elif len(self._visitors) >= self._most:
            return None
        visitor = Visitor(address, cut, self._clock() + UNPROVEN_SECONDS)
        self._visitors[visitor] = None
        return visitor

    def _cut_oldest(self, unproven: list[Visitor], address: str) -> None:
        self._cut(next(one for one in unproven if one.address == address))

    def _cut(self, visitor: Visitor) -> None:
        self.leave(visitor)
        visitor.cut()

    def prove(self, visitor: Visitor, tenant: str | None) -> str | None:
        """The connection made a call of this tenant; None: of the operator. Returns why it may not go on."""
        if tenant is None:
            visitor.proven, visitor.tenant = True, None
        elif not visitor.proven:
            if refusal := self._why_not(tenant):
                return refusal
            visitor.proven, visitor.tenant = True, tenant
        return None

    def _why_not(self, tenant: str) -> str | None:
        held = [one for one in self._visitors if one.tenant is not None]
        tenants = Counter(one.tenant for one in held)
        has = tenants[tenant]
        if has >= self._tenant_most:
            return f"tenant {tenant} has {has} connections already: close some"
        if len(held) >= self._tenants_most:
            ((crowd, most),) = tenants.most_common(1)
            if most <= has + 1:
                return f"tenants have {len(held)} connections already: try again later"
            self._cut(next(one for one in held if one.tenant == crowd))
        return None

    def end(self, visitor: Visitor) -> None:
        """Its call is over, and what is left to say to it may take until its deadline, if nobody needs its
        place.
        """
        visitor.proven, visitor.tenant = False, None
        visitor.deadline = self._clock() + UNPROVEN_SECONDS

    def leave(self, visitor: Visitor) -> None:
        """The connection is gone: its place is free."""
        self._visitors.pop(visitor, None)

    def cut_late(self) -> None:
        """End connections that have not proved themselves in time."""
        now = self._clock()
        for visitor in [one for one in self._visitors if not one.proven and now > one.deadline]:
            self._cut(visitor)
