"""Parsers in Python: nothing but their own errors, whatever comes."""

from __future__ import annotations

import pytest

from tests.fuzz import native, parsers

FEW = {
    "hello": 4000,
    "snapshot": 800,
    "records": 500,
    "plain": 800,
    "simulated": 1500,
    "machine_code": 1500,
    "variables": 1500,
    "settings": 800,
}


def kept(target: str) -> list[bytes]:
    """Inputs that something was wrong with once."""
    folder = native.CORPUS / target
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []


@pytest.mark.parametrize("target", parsers.TARGETS)
def test_few_inputs(target: str) -> None:
    """Some are sound, or what they were changed from was not."""
    assert 0 < parsers.run(target, FEW[target], kept=kept(target)) < FEW[target]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", parsers.TARGETS)
def test_many_inputs(target: str) -> None:
    inputs = 50 * FEW[target]
    parsers.run(target, inputs, seed=2)
    print(f"fuzz: {target}: {inputs} inputs")
