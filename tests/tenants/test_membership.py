"""A monitor that cannot read what is set for tenants in its state folder."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest
import structlog.testing
from gpuferry.monitor.cluster.membership import Membership
from gpuferry.monitor.door import credentials
from gpuferry.monitor.door.credentials import LocalTenants
from gpuferry.monitor.store.interface import StoreError


class Local:
    """The state folder, which has no file, or one that cannot be read."""

    trouble = ""

    async def book(self) -> None:
        if self.trouble:
            raise StoreError(self.trouble)

    store = book


def test_nobody_waits_while_the_file_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another process may be writing it, for seconds, and the loop stood still. It is opened once."""
    goes_on, opened = threading.Event(), []

    def opening(path: Path) -> object:
        assert goes_on.wait(30)
        opened.append(path)
        return object()

    monkeypatch.setattr(credentials, "SqliteStore", opening)

    async def main() -> None:
        local = LocalTenants(tmp_path)
        asking = [asyncio.ensure_future(local.store()) for _ in range(2)]
        await asyncio.sleep(0)
        goes_on.set()
        one, other = await asyncio.gather(*asking)
        assert one is other is not None

    asyncio.run(main())
    assert opened == [tmp_path]


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
