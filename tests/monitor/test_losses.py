"""Devices that NVML says are lost: the pool is told once per loss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gpuferry.monitor.pool.losses import LostDevices


def test_the_pool_is_told_once_and_again_when_the_device_was_back() -> None:
    told: list[int] = []
    figures = {b"one": SimpleNamespace(lost=False), b"two": SimpleNamespace(lost=False)}
    pool: Any = SimpleNamespace(
        uuids=lambda: {0: b"one", 1: b"two", 2: b"not known to NVML"},
        lose=lambda device, reason: told.append(device),
    )
    gpus: Any = figures
    losses = LostDevices(pool, gpus)
    losses.look()
    assert told == []
    figures[b"two"].lost = True
    losses.look()
    losses.look()
    assert told == [1]
    figures[b"two"].lost = False
    losses.look()
    figures[b"two"].lost = True
    losses.look()
    assert told == [1, 1]
