"""What others measured, and deployed, as it comes out of a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

from gpuferry.monitor.functions.shared import MODELS, Shared
from gpuferry.monitor.store.interface import Entry


class Store:
    """Each state has other keys, whose values make no sense."""

    async def watch(self, prefix: str) -> AsyncIterator[Mapping[str, bytes]]:
        for number in range(50):
            yield {f"{prefix}{number}/{which}": b"soon" for which in range(3)}


def test_complaints_are_remembered_as_long_as_their_cause_lasts() -> None:
    store: Any = Store()
    schedule: Any = SimpleNamespace(models=None)
    shared = Shared(store, "node", schedule)
    asyncio.run(shared.learn())
    assert shared._odd == {f"{MODELS}49/{which}" for which in range(3)}


class Late:
    """Writes what it is to put once it may."""

    def __init__(self) -> None:
        self.kept: dict[str, Entry] = {"function/f": Entry(b"", 1)}
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, value: bytes, _: float | None) -> None:
        self.asked.set()
        await self.may.wait()
        self.kept[key] = Entry(value, 2)

    async def get(self, key: str) -> Entry | None:
        return self.kept.get(key)

    async def read(self, prefix: str) -> dict[str, Entry]:
        return {key: entry for key, entry in self.kept.items() if key.startswith(prefix)}

    async def swap(self, key: str, value: bytes | None, _: int) -> bool:
        assert value is None
        del self.kept[key]
        return True


def test_what_is_on_its_way_to_the_store_is_forgotten_too() -> None:
    """It came there after the function was gone, and stayed for good."""

    async def main() -> None:
        late = Late()
        store: Any = late
        told = iter([{"model/f/load": "1.0"}])
        schedule: Any = SimpleNamespace(models=None, published=lambda _: next(told, {}))
        shared = Shared(store, "node", schedule)
        telling = asyncio.ensure_future(shared.publish())
        await late.asked.wait()
        forgetting = asyncio.ensure_future(shared.forget("f"))
        for _ in range(10):
            await asyncio.sleep(0)
        late.may.set()
        await forgetting
        for _ in range(10):
            await asyncio.sleep(0)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        assert late.kept == {}

    asyncio.run(asyncio.wait_for(main(), 60))


class Changing:
    """Two functions, which change again and again."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def watch(self, prefix: str) -> AsyncIterator[Mapping[str, bytes]]:
        while True:
            yield {f"{prefix}slow": b"", f"{prefix}other": b""}
            await self.changed.wait()
            self.changed.clear()


class Catalogue:
    """One function takes for ever to start."""

    def __init__(self, store: Changing) -> None:
        self.followed: list[str] = []
        self._store = store
        self.twice = asyncio.Event()

    def names(self) -> list[str]:
        return ["slow"]

    async def follow(self, name: str) -> bool:
        self.followed.append(name)
        if name == "slow":
            await asyncio.Event().wait()
        self._store.changed.set()
        if self.followed.count(name) == 2:
            self.twice.set()
        return True


def test_a_function_that_starts_for_long_keeps_no_other_waiting() -> None:
    """What another server removed was still invoked here for as long as that took."""

    async def main() -> None:
        store: Any = Changing()
        schedule: Any = SimpleNamespace(models=None)
        catalogue = Catalogue(store)
        following = asyncio.ensure_future(Shared(store, "node", schedule).follow(catalogue))
        await asyncio.wait_for(catalogue.twice.wait(), 60)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert catalogue.followed.count("slow") == 1
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
