"""API servers and keepers whose monitor orders what it likes: they do it, or end and say why."""

from __future__ import annotations

import pytest
from gpuferry.apiserver import orders as read

from tests.fuzz import orders


def test_each_kind_is_for_somebody() -> None:
    assert set(orders.KINDS) == read.SERVERS | read.KEEPERS


def test_few_orders() -> None:
    assert orders.run(300, seed=1) >= 300


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_orders() -> None:
    print(f"fuzz: orders: {orders.run(30_000, seed=2)} orders")
