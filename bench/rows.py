"""The rows of a benchmark run: a value, its floor, and the promise that binds them."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

PROMISES = Path(__file__).with_name("promises.toml")


@dataclass(frozen=True)
class Promise:
    """One entry of promises.toml: what a row must cost at most."""

    title: str
    floor: str
    target: float = 0.0  # times the floor
    plus: float = 0.0  # and so much more, in the row's own unit
    limit: float = 0.0  # or in the row's own unit, whatever the floor
    headline: bool = False  # README shows it

    def times(self, floor: float) -> float:
        """The most that the row may cost, as a multiple of its floor."""
        return self.target + self.plus / floor if self.target else self.limit / floor


@dataclass(frozen=True)
class Row:
    """One measurement; `ratio` is how many times the floor it costs."""

    name: str
    value: float
    unit: str
    floor: float
    ratio: float
    target: float
    holds: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def promises() -> dict[str, Promise]:
    """The promises of promises.toml by the names of their rows; an unknown key is an error."""
    return {name: Promise(**entry) for name, entry in tomllib.loads(PROMISES.read_text()).items()}


def cost(name: str, value: float, floor: float, unit: str) -> Row:
    """The row of a time, in `unit`: less is better."""
    return _row(name, value, floor, unit, value / floor)


def rate(name: str, value: float, floor: float, unit: str) -> Row:
    """The row of a bandwidth, in `unit`: more is better."""
    return _row(name, value, floor, unit, floor / value)


def _row(name: str, value: float, floor: float, unit: str, ratio: float) -> Row:
    target = promises()[name].times(floor)
    return Row(name, value, unit, floor, ratio, target, ratio <= target)
