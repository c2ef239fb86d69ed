"""What others measured, and deployed, as it comes out of a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

from gpuferry.monitor.functions.shared import MODELS, Shared


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
