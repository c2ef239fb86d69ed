"""The promises file and the rows that are held against it."""

from __future__ import annotations

import re

import pytest

from bench import rows
from tests.helpers.paths import ROOT


def test_every_row_has_a_promise_and_every_promise_a_row() -> None:
    source = (ROOT / "bench" / "__main__.py").read_text()
    measured = set(re.findall(r'\b(?:cost|rate)\(\s*"(\w+)"', source))
    assert measured == rows.promises().keys()


def test_a_cost_holds_up_to_its_target() -> None:
    target = rows.promises()["launch"].target
    row = rows.cost("launch", value=target * 2.0, floor=2.0, unit="µs")
    assert (row.ratio, row.holds) == (target, True)
    assert not rows.cost("launch", value=target * 2.1, floor=2.0, unit="µs").holds


def test_a_rate_below_its_floor_costs_more() -> None:
    row = rows.rate("h2d", value=2.0, floor=8.0, unit="GB/s")
    assert row.ratio == 4.0
    assert row.holds == (row.target >= 4.0)


def test_an_unknown_row_is_an_error() -> None:
    with pytest.raises(KeyError):
        rows.cost("no_such_row", 1.0, 1.0, "s")
