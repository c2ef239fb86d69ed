"""Which GPU servers there are, where a record of the store is damaged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog.testing
from gpuferry.monitor.cluster.registry.directory import ALIVE, REGISTERED, Directory
from gpuferry.monitor.store.interface import StoreError
from gpuferry.monitor.store.sqlite import SqliteStore
from gpuferry.specs._generated import registry_pb2

RUBBISH = b"\xff"


def test_one_whose_record_is_damaged_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    """It ended every replica, and the next one at once."""

    async def main() -> None:
        store = SqliteStore(tmp_path / "store.db")
        directory = Directory(store, 60.0)
        for address in ("a:1", "b:1", "c:1"):
            await directory.register(address, [])
            await directory.beat(registry_pb2.Load(address=address))
        await store.put(REGISTERED + "a:1", RUBBISH)
        await store.put(ALIVE + "b:1", RUBBISH)
        with structlog.testing.capture_logs() as logs:
            found = [(one.registration.address, one.alive) for one in await directory.read()]
            assert await directory.read()
        assert found == [("b:1", False), ("c:1", True)]
        assert [one["key"] for one in logs] == [ALIVE + "b:1", REGISTERED + "a:1"]  # each once
        damaged = pytest.raises(StoreError, match="the record cluster/server/a:1 is damaged")
        for changing in (directory.set_drained("a:1", True), directory.remove("a:1")):
            with damaged:
                await changing
        with damaged:
            await directory.beat(registry_pb2.Load(address="a:1"))
        await directory.register("a:1", [registry_pb2.Label(name="zone", value="x")])
        assert (await directory.show("a:1")).registration.labels[0].value == "x"
        await store.close()

    asyncio.run(main())


def test_the_view_follows_what_is_sound(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "store.db")
        directory = Directory(store, 60.0)
        await store.put(REGISTERED + "a:1", RUBBISH)
        following = asyncio.ensure_future(directory.follow())
        await directory.register("b:1", [])
        while not following.done() and not directory.servers:
            await asyncio.sleep(0.01)
        assert [one.registration.address for one in directory.servers] == ["b:1"]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await store.close()

    asyncio.run(main())
