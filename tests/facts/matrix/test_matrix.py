"""Every carried function, with wrong arguments and in wrong situations: the same code on both sides."""

from __future__ import annotations

import functools
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.monitor import Monitor
from tests.helpers.running import Outcome, native_environment, real_gpu, run

from ..children import DIED
from .cases import cases
from .known import KNOWN
from .situations import SITUATIONS

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(real_gpu(), reason="NVIDIA's driver does not survive handles that name nothing"),
]
EACH = pytest.mark.parametrize("situation", SITUATIONS)
# What every call that needs as much gives, in these situations.
RULES = {
    "before cuInit": ("driver", 3),
    "in a forked child": ("driver", 3),
    "without a context": ("context", 201),
    "after a sticky error": ("context", 719),
}


@functools.cache
def calls() -> list[dict[str, Any]]:
    return cases()


@functools.cache
def file() -> Path:
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as made:
        json.dump(calls(), made)
    return Path(made.name)


def named(case: dict[str, Any]) -> str:
    return f"{case['symbol']} {case['wrong']}".strip()


def command(situation: str) -> list[str | Path]:
    return [sys.executable, Path(__file__).parent / "run.py", file(), situation]


def results(outcome: Outcome) -> dict[str, Any]:
    """What each case gave, by what it is."""
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    _, found = json.loads(outcome.stdout)
    return {named(calls()[int(n)]): r for n, r in found.items()}


@functools.cache
def natively(situation: str) -> dict[str, Any]:
    return results(run(command(situation), native_environment()))


def reasons(situation: str, case: str) -> Iterator[str]:
    return (k.reason for k in KNOWN if re.search(k.situations, situation) and re.fullmatch(k.calls, case))


@pytest.mark.some(1)
@EACH
def test_codes_are_the_same_remotely(situation: str, shared_monitor: Monitor) -> None:
    here, there = natively(situation), results(shared_monitor.run(command(situation)))
    assert len(here) > 400
    assert here.keys() == there.keys()
    differ = {case: (here[case], there[case]) for case in here if here[case] != there[case]}
    assert not {case: codes for case, codes in differ.items() if not any(reasons(situation, case))}
    for known in KNOWN:
        if re.search(known.situations, situation):
            assert any(re.fullmatch(known.calls, case) for case in differ), f"it is the same by now: {known}"


@pytest.mark.some(4)
@EACH
def test_the_process_lives(situation: str) -> None:
    died = [case for case, result in natively(situation).items() if result == DIED]
    assert not [case for case in died if not any(reasons(situation, case))]


@pytest.mark.parametrize("situation", RULES)
def test_what_is_missing_comes_first(situation: str) -> None:
    """Before any argument is looked at."""
    needs, code = RULES[situation]
    required = ("context",) if needs == "context" else ("driver", "context")
    found = natively(situation)
    for case in calls():
        if named(case) in found and case["needs"] in required:
            assert found[named(case)] == code, named(case)


def test_calls_succeed_where_nothing_is_wrong() -> None:
    """Else nothing would be told by those that fail."""
    found = natively("with a context")
    right = [case["symbol"] for case in calls() if not case["wrong"]]
    assert sum(found[symbol] == 0 for symbol in right if symbol in found) > 200
