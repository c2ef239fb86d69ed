"""A tenant's program beside each attack of another tenant: its answers are right, and not late."""

from __future__ import annotations

import pytest

from tests.adversity import attacks, bystander


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("attack", attacks.ATTACKS)
def test_a_program_beside_an_attack(attack: str) -> None:
    assert bystander.main([attack, "--seconds", "4"]) == 0
