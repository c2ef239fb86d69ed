"""Counting what a family of functions takes: lines of its entries, and lines by hand on either side."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen import __main__ as command
from codegen import coverage, family, load, written

ROOT = Path(__file__).parents[2]

ENTRIES = """\
functions:
  one:
    variants:
      - symbol: one   # the first
        # a comment does not count

        args:
          a: {kind: scalar}
      - symbol: two
"""


def test_an_entry_ends_where_the_next_begins(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ENTRIES)
    assert [family.entry_lines("a.yaml", line, tmp_path) for line in (2, 4, 8)] == [6, 3, 1]


def test_lines_by_hand_of_the_engine(tmp_path: Path) -> None:
    spec = load.load()
    (tmp_path / "a.pxi").write_text(
        "cdef int sessionFence_call(Session *s,\n        Frame *f) noexcept nogil:\n    return 1\n\n\n"
        "cdef int on_sessionLoadImage(Session *s) noexcept nogil:\n    pass\n"
    )
    found = written.of_server(spec, tmp_path)
    assert {name: lines for name, lines in found.items() if lines} == {
        "sessionFence": 3,
        "sessionLoadImage": 2,
    }


def test_a_family_has_its_objects_functions_and_own_operations() -> None:
    rows = {row.name: row for row in family.rows(load.load(), ["cuMemCreate", "cuMemMap", "cuMemUnmap"])}
    # sessionMemMap is everybody's, sessionMemAlias nobody else's.
    wanted = ["object memory_allocation", "cuMemCreate", "cuMemMap", "cuMemUnmap"]
    assert [*rows] == [*wanted, "sessionMemAlias", "sessionMemUnalias"]
    assert rows["cuMemMap"].guest == "by hand"
    assert rows["cuMemMap"].by_hand > 0
    assert rows["sessionMemAlias"].server > 0


def test_a_name_that_matches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["coverage", "--functions", "cuNothing*"]) == 1
    assert capsys.readouterr().err == "no group or function 'cuNothing*'\n"


def test_the_readmes_table_ends_as_the_commands() -> None:
    """What is refused was generated in one of them."""
    *_, last, _ = coverage.as_text(load.load()).splitlines()
    carried, _, *written_so = map(int, last.split()[1:])
    (row,) = (
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| **all** |")
    )
    told = [int(cell) for cell in row.split("|")[2:-1]]
    assert sum(told[:4]) == carried
    assert told[5:] == written_so
