"""What is an error: failures that nobody explains, and explanations of what passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .recorder import FAILED, PASSED
from .results import Outcomes, Summary, errors, stale
from .table import Known, clients, known

NATIVE: Outcomes = {"m.a": (PASSED, ""), "m.b": (FAILED, "801"), "m.c": (PASSED, ""), "": (PASSED, "")}
REMOTE: Outcomes = {"m.a": (PASSED, ""), "m.b": (FAILED, "801"), "m.c": (FAILED, "719"), "": (PASSED, "")}
SASS = Known("m.b", "native", "needs machine code")
REMOTELY = Known("m.c", "remote", "not carried")


def test_an_unexplained_failure_is_an_error() -> None:
    assert errors([], NATIVE, REMOTE) == [
        "m.b: fails (native): 801",
        "m.b: fails (remote): 801",
        "m.c: passes natively, fails remotely: 719",
    ]


def test_what_is_known_is_none() -> None:
    assert errors([SASS, REMOTELY], NATIVE, REMOTE) == []
    assert stale([SASS, REMOTELY], NATIVE, REMOTE) == []


def test_what_fails_remotely_only_does_not_excuse_a_native_failure() -> None:
    assert errors([Known("m.*", "remote", "why")], NATIVE, REMOTE) == ["m.b: fails (native): 801"]


def test_an_entry_that_passes_is_an_error() -> None:
    (line,) = stale([Known("m.[ab]", "remote", "not carried")], NATIVE, REMOTE)
    assert "m.a passes (remote)" in line
    assert len(stale([Known("m.c", "native", "needs machine code")], NATIVE, REMOTE)) == 1


def test_an_entry_by_what_a_failure_says() -> None:
    entry = Known("m.*", "native", "no such call", says="80?")
    assert errors([entry], NATIVE, REMOTE) == ["m.c: passes natively, fails remotely: 719"]
    assert stale([entry], NATIVE, REMOTE) == []


def test_a_mark_of_the_whole_module_is_no_test() -> None:
    summary = Summary()
    summary.add(NATIVE, REMOTE)
    assert (summary.tests, summary.passed) == (3, {"native": 2, "remote": 1})


def test_round_trips_are_added_up(tmp_path: Path) -> None:
    stats = tmp_path / "m.stats"
    stats.write_text('{"calls": {"local": 90, "sync": 10}, "round_trips": 12}')
    summary = Summary()
    for _ in range(2):
        summary.add_stats(stats)
    summary.add_stats(tmp_path / "never written")
    assert (summary.calls, summary.round_trips) == (200, 24)


def test_the_table_and_what_is_known_can_be_read() -> None:
    assert {"numba", "cupy", "warp", "cuda-core"} <= set(clients())
    assert set(known()) <= set(clients())


@pytest.mark.parametrize("row", ['tests="a"\nwhere="here"\nwhy="b"', 'tests="a"\nwhere="native"\nwhy=""'])
def test_an_entry_says_where_and_why(row: str) -> None:
    with pytest.raises(ValueError, match="where is native or remote"):
        known(f"[[numba]]\n{row}\n")


def test_modules_come_in_the_order_of_the_table(tmp_path: Path) -> None:
    for name in ("test_z", "test_a", "test_b"):
        (tmp_path / "lib" / "tests").mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / "tests" / f"{name}.py").touch()
    modules = '["tests/test_z.py", "tests/test_*.py"]'
    text = f'[some]\nrequirements=[]\nroot="l*"\nkind="unittest"\nmodules={modules}\n'
    assert clients(text)["some"].names(tmp_path) == ["tests.test_z", "tests.test_a", "tests.test_b"]
