"""What a decision of KaaS's Exclusive looks at."""

from __future__ import annotations

import pytest
from gpuferry.monitor.policy.invocations import Function, Invocation
from gpuferry.monitor.policy.invocations.exclusive import Exclusive
from gpuferry.monitor.policy.invocations.state import Card, Flow


def test_who_is_robbed_is_looked_for_once_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Exclusive()
    for name in ("rich", "poor"):
        policy.on_function(Function(name, 1), 0.0)
    for gpu in range(3):
        policy.on_gpu(gpu, 10, 0.0)
    for number in range(3):
        policy.on_arrival(Invocation(number, "rich", 0.0), 0.0)
    while policy.next():
        pass
    assert policy.pool("rich") == 3
    looks: list[str] = []
    look = Exclusive._prey_of

    def counted(self: Exclusive, thief: Flow) -> Card | None:
        looks.append(thief.function.name)
        return look(self, thief)

    monkeypatch.setattr(Exclusive, "_prey_of", counted)
    policy.on_arrival(Invocation(3, "poor", 1.0), 1.0)
    while policy.next():
        pass
    assert policy.pool("poor") == 1
    assert looks == ["poor"]
