"""The promises file and the rows that are held against it."""

from __future__ import annotations

import re

import pytest

from bench import rows
from tests.helpers.paths import ROOT


def test_every_row_has_a_promise_and_every_promise_a_row() -> None:
    sources = [path.read_text() for path in (ROOT / "bench").glob("*.py")]
    measured = {name for text in sources for name in re.findall(r'\b(?:cost|rate)\(\s*"(\w+)"', text)}
    assert measured == rows.promises().keys()


def test_a_cost_holds_up_to_its_target() -> None:
    target = rows.promises()["launch"].times(2.0)
    row = rows.cost("launch", value=target * 2.0, floor=2.0, unit="µs")
    assert (row.ratio, row.holds) == (target, True)
    assert not rows.cost("launch", value=target * 2.1, floor=2.0, unit="µs").holds


def test_a_rate_below_its_floor_costs_more() -> None:
    row = rows.rate("h2d", value=2.0, floor=8.0, unit="GB/s")
    assert row.ratio == 4.0
    assert row.holds == (row.target >= 4.0)


def test_a_limit_holds_whatever_the_floor() -> None:
    limit = rows.promises()["lease_median"].limit
    assert rows.cost("lease_median", value=limit, floor=1.0, unit="µs").holds
    assert not rows.cost("lease_median", value=limit * 1.1, floor=limit, unit="µs").holds


def test_what_comes_on_top_is_the_same_for_every_floor() -> None:
    promise = rows.promises()["migrate_stop_1g"]
    for floor in (10.0, 1000.0):
        most = promise.target * floor + promise.plus
        assert rows.cost("migrate_stop_1g", value=most, floor=floor, unit="ms").holds
        assert not rows.cost("migrate_stop_1g", value=most * 1.001, floor=floor, unit="ms").holds


def test_a_promise_is_one_number() -> None:
    for promise in rows.promises().values():
        assert (promise.target > 0) != (promise.limit > 0), promise.title
        assert not (promise.plus and promise.limit), promise.title


def test_an_unknown_row_is_an_error() -> None:
    with pytest.raises(KeyError):
        rows.cost("no_such_row", 1.0, 1.0, "s")
