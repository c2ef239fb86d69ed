"""What API servers tell reaches everybody who subscribed: an event that is forgotten is lost in silence."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from gpuferry.monitor.pool.api_server import PoolListener
from gpuferry.monitor.pool.events import PoolEvents

EVENTS = [name for name in vars(PoolListener) if not name.startswith("_")]


@pytest.mark.parametrize("name", EVENTS)
def test_each_event_reaches_all_in_the_order_in_which_they_subscribed(name: str) -> None:
    heard: list[tuple[str, tuple[Any, ...]]] = []

    def listener(who: str) -> PoolListener:
        made = PoolListener()
        setattr(made, name, lambda *arguments: heard.append((who, arguments)))
        return made

    events = PoolEvents()
    for who in ("first", "second"):
        events.subscribe(listener(who))
    arguments = tuple(object() for _ in list(inspect.signature(getattr(PoolListener, name)).parameters)[1:])
    getattr(events, name)(*arguments)
    assert heard == [("first", arguments), ("second", arguments)]


def test_there_are_events() -> None:
    assert "server_ready" in EVENTS
