"""A monitor whose API server was taken over by its guest: no other session notices what it says."""

from __future__ import annotations

import pytest

from tests.fuzz import control


def test_few_messages() -> None:
    assert control.run(3000, seed=1) >= 3000


def test_few_that_come_back() -> None:
    """To another monitor, with orders that were changed."""
    assert control.run(1500, seed=1, back=True) >= 1500


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_messages() -> None:
    print(f"fuzz: control: {control.run(300_000, seed=2)} messages")
