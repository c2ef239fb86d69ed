"""A monitor that cannot read what is set for tenants in its state folder."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import structlog.testing
from gpuferry.monitor.cluster.membership import Membership
from gpuferry.monitor.store.interface import StoreError


class Local:
    """The state folder, which has no file, or one that cannot be read."""

    trouble = ""

    @property
    def book(self) -> None:
        if self.trouble:
            raise StoreError(self.trouble)

    store = book


def test_a_store_that_cannot_be_read_is_told_of_once() -> None:
    """Limits and orders to end sessions were not heeded, and nobody was told."""
    local = Local()
    member = Membership.__new__(Membership)
    member._local, member._trouble = cast(Any, local), ""

    async def look() -> list[str]:
        with structlog.testing.capture_logs() as logs:
            for local.trouble in ("", "disk I/O error", "disk I/O error", "unable to open", "", ""):
                await member._look_local()
        return [str(one.get("error", one["log_level"])) for one in logs]

    assert asyncio.run(look()) == ["disk I/O error", "unable to open", "info"]
