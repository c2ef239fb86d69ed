"""A paper's numbers beside the simulator's: which are within tolerance, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from rich.table import Table

SCHEMA = "gpuferry.simulate.paper/1"
# Of Student's distribution, two-sided, 95 %, by the number of samples.
STUDENT = {
    2: 12.706,
    3: 4.303,
    4: 3.182,
    5: 2.776,
    6: 2.571,
    7: 2.447,
    8: 2.365,
    9: 2.306,
    10: 2.262,
    11: 2.228,
    12: 2.201,
    13: 2.179,
    14: 2.16,
    15: 2.145,
    16: 2.131,
    17: 2.12,
    18: 2.11,
    19: 2.101,
    20: 2.093,
}


@dataclass(frozen=True)
class Row:
    """One number of the paper, and what the simulator has for it: mean and half of the 95 % interval."""

    name: str
    published: float
    simulated: float
    interval: float
    low: float  # what counts as within tolerance
    high: float

    @property
    def holds(self) -> bool:
        """Whether it is within tolerance."""
        return self.low <= self.simulated <= self.high

    @property
    def stated(self) -> str:
        """The published number as a table shows it."""
        return "–" if math.isnan(self.published) else f"{self.published:.3g}"


def row(name: str, published: float, samples: Sequence[float], low: float, high: float) -> Row:
    """The row of these samples. `published`: NaN where the paper prints no number."""
    return Row(name, published, fmean(samples), interval(samples), low, high)


def interval(samples: Sequence[float]) -> float:
    """Half of the 95 % interval of their mean; a single one is exact, for nothing in it is random."""
    return STUDENT[len(samples)] * stdev(samples) / math.sqrt(len(samples)) if len(samples) > 1 else 0.0


def table(title: str, rows: Sequence[Row]) -> Table:
    """The rows for a terminal."""
    shown = Table(title=title, title_justify="left", box=None)
    shown.add_column("what", no_wrap=True)
    for column in ("published", "simulated", "95 %", "tolerance", "within"):
        shown.add_column(column, justify="right", no_wrap=True)
    for each in rows:
        high = "" if each.high == math.inf else f"{each.high:.3g}"
        shown.add_row(
            each.name,
            each.stated,
            f"{each.simulated:.3f}",
            f"± {each.interval:.3f}" if each.interval else "exact",
            f"{each.low:.3g} to {high}",
            "yes" if each.holds else "no",
        )
    return shown


def as_json(paper: str, seeds: Sequence[int], rows: Sequence[Row]) -> dict[str, Any]:
    """The rows for scripts."""
    return {
        "schema": SCHEMA,
        "paper": paper,
        "seeds": list(seeds),
        "rows": [
            {name: _finite(value) for name, value in asdict(each).items()} | {"holds": each.holds}
            for each in rows
        ],
    }


def _finite(value: Any) -> Any:
    """The value; None for an infinity or NaN, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
