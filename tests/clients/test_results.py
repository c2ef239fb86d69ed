"""What is an error: failures that nobody explains, and explanations of what passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .recorder import FAILED, PASSED
from .results import Outcomes, Summary, errors, miscounted, stale
from .table import Known, clients, known

NATIVE: Outcomes = {"m.a": (PASSED, ""), "m.b": (FAILED, "801"), "m.c": (PASSED, ""), "": (PASSED, "")}
REMOTE: Outcomes = {"m.a": (PASSED, ""), "m.b": (FAILED, "801"), "m.c": (FAILED, "719"), "": (PASSED, "")}
SASS = Known("m.b", "native", "needs machine code", machine_code=True)
REMOTELY = Known("m.c", "remote", "not carried", most=1)


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
    assert errors([Known("m.*", "remote", "why", most=2)], NATIVE, REMOTE) == ["m.b: fails (native): 801"]


def test_an_entry_that_passes_is_an_error() -> None:
    (line,) = stale([Known("m.[ab]", "remote", "not carried", most=2)], NATIVE, REMOTE)
    assert "m.a passes (remote)" in line
    assert len(stale([Known("m.c", "native", "needs machine code", machine_code=True)], NATIVE, REMOTE)) == 1


def test_an_entry_by_what_a_failure_says() -> None:
    entry = Known("m.*", "native", "no such call", says="80?", most=1)
    assert errors([entry], NATIVE, REMOTE) == ["m.c: passes natively, fails remotely: 719"]
    assert stale([entry], NATIVE, REMOTE) == []


def test_an_entry_covers_as_many_as_it_says() -> None:
    """Of all modules together; what is machine code is the client's affair."""
    entry = Known("m.*", "native", "no such call", most=2)
    assert miscounted([entry], [(NATIVE, REMOTE)], True) == []
    assert miscounted([entry], [(NATIVE, REMOTE)] * 2, True) == [
        "known.toml: 4 fail by the entry 'm.*' (remote), which says 2 (no such call)"
    ]
    machine_code = Known("m.*", "native", "cuBLAS", machine_code=True)
    assert miscounted([machine_code], [(NATIVE, REMOTE)] * 9, True) == []


def test_a_failure_counts_for_one_entry() -> None:
    """The first that explains it; of all modules, an entry that explains none is an error."""
    entries = [Known("m.?", "native", "this", most=2), Known("m.b", "native", "that", most=1)]
    assert miscounted(entries, [(NATIVE, REMOTE)], False) == []
    assert miscounted(entries, [(NATIVE, REMOTE)], True) == [
        "known.toml: nothing fails by the entry 'm.b' (that)"
    ]


def test_a_client_passes_but_for_machine_code() -> None:
    many = {f"m.{i}": (PASSED, "") for i in range(97)}
    summary = Summary()
    summary.add({**many, **NATIVE}, {**many, **REMOTE}, [SASS, REMOTELY])
    assert summary.few() == []
    assert (summary.share("native"), summary.share("remote")) == (1.0, 98 / 99)
    summary.add({}, {"m.d": (FAILED, "")}, [])
    assert summary.few() == []
    summary.add({}, {"m.e": (FAILED, "")}, [])
    assert summary.few() == ["97.0% pass (remote), of 101 that want no machine code"]


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


@pytest.mark.parametrize("bound", ["", "most=1\nmachine_code=true"])
def test_an_entry_says_how_many(bound: str) -> None:
    with pytest.raises(ValueError, match="most says how many"):
        known(f"[[numba]]\ntests='a*'\nwhere='native'\nwhy='b'\n{bound}\n")


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


def test_a_pattern_that_matches_no_module_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    text = '[some]\nrequirements=[]\nkind="pytest"\nmodules=["test_moved.py"]\n'
    with pytest.raises(SystemExit, match=r"some: .* has no test_moved\.py"):
        clients(text)["some"].names(tmp_path)
