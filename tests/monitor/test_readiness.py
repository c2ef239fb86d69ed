"""Who started a monitor hears that it is ready once it can be found, and not before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.monitor import readiness


@pytest.mark.parametrize(
    ("events", "heard"),
    [
        (("ready", "published", "ready"), [0, 1, 1]),
        (("published", "ready", "ready"), [0, 1, 1]),
    ],
)
def test_it_is_told_once_it_is_published(
    monkeypatch: pytest.MonkeyPatch, events: tuple[str, ...], heard: list[int]
) -> None:
    told: list[str] = []
    monkeypatch.setattr(readiness, "Parent", lambda *_: SimpleNamespace(tell=told.append))
    server: Any = SimpleNamespace()
    pool: Any = SimpleNamespace(devices=1, takes_guests=lambda device: True, failures=0)
    stopping: Any = SimpleNamespace(ask=None)
    watched = readiness.Readiness(pool, 0, stopping)
    counts = []
    for event in events:
        if event == "published":
            watched.published()
        else:
            watched.server_ready(server)
        counts.append(len(told))
    assert counts == heard
    assert told == ["ready"]
