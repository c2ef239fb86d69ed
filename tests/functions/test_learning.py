"""What is remembered of measurements that nobody can read."""

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
