"""Room for one more context: what nobody was promised and, by NVML, nobody uses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.monitor.broker.spare import SpareMemory

GIB = 1 << 30
UUID = bytes(range(16))


@pytest.mark.parametrize(
    ("promised", "used", "spare"),
    [(0, 0, 8), (6, 1, 2), (1, 6, 2), (9, 0, 0), (2, None, 6)],
)
def test_the_smaller_of_the_two_counts(promised: int, used: int | None, spare: int) -> None:
    room = SimpleNamespace(gpu=SimpleNamespace(free=(8 - promised) * GIB))
    figures = SimpleNamespace(memory_used=None if used is None else used * GIB, memory_total=8 * GIB)
    placer: Any = SimpleNamespace(devices={0: room})
    gpus: Any = {UUID: figures}
    assert SpareMemory(placer, gpus).of(0, UUID) == spare * GIB


def test_what_is_not_known_is_not_there() -> None:
    placer: Any = SimpleNamespace(devices={})
    gpus: Any = {}
    assert SpareMemory(placer, gpus).of(0, b"") == 0
