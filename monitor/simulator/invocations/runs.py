"""Policies over the same workload with several seeds, and what is drawn of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ...policy.invocations import build
from ..paper import Row
from .engine import Simulation
from .result import Result, Summary
from .workload import Calls

Advance = Callable[[str], None]  # told what is done, for a progress bar


@dataclass
class Shown:
    """Runs of one workload that a page shows, by policy: what is drawn, and the numbers of all seeds."""

    title: str
    results: Mapping[str, Result]
    numbers: Mapping[str, Sequence[Summary]]


@dataclass
class Report:
    """What came of a paper or a trace: its rows, remarks on rows that are out of tolerance, and plots.
    `pictures`: captions with PNGs as base64.
    """

    title: str
    rows: list[Row] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)  # by the name of the row
    shown: list[Shown] = field(default_factory=list)
    pictures: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Variant:
    """A policy with its options, and the name under which it is compared."""

    name: str
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)


def plain(*names: str, **options: Any) -> list[Variant]:
    """Policies under their own names, with the same options."""
    return [Variant(name, name, options) for name in names]


class Comparison:
    """Runs variants over a workload of each seed; remembers numbers of all, and results of the first."""

    def __init__(
        self,
        make: Callable[[int], Calls],
        variants: Sequence[Variant],
        seeds: Sequence[int],
        advance: Advance,
        watched: str | None = None,
    ) -> None:
        self.first: dict[str, Result] = {}
        self.numbers: dict[str, list[Summary]] = {variant.name: [] for variant in variants}
        self.copies: dict[str, list[float]] = {variant.name: [] for variant in variants}
        self.title = ""
        for seed in seeds:
            calls = make(seed)
            self.title = calls.name
            for variant in variants:
                policy = build(variant.policy, **variant.options)
                result = Simulation(policy, calls, watched=watched).run()
                self.first.setdefault(variant.name, result)
                self.numbers[variant.name].append(result.summary())
                if watched:
                    counts = result.copies.get(watched, [0])
                    self.copies[variant.name].append(sum(counts) / len(counts))
                advance(f"{calls.name}, {variant.name}")

    def each(self, variant: str, figure: str) -> list[float]:
        """A figure of the summary, of each seed."""
        return [float(getattr(summary, figure)) for summary in self.numbers[variant]]

    def against(self, variant: str, other: str, figure: str) -> list[float]:
        """A variant's figure of each seed, in multiples of what another has on average."""
        theirs = fmean(self.each(other, figure))
        return [mine / theirs if theirs else 1.0 for mine in self.each(variant, figure)]

    def best(self, figure: str, others: Sequence[str]) -> str:
        """That one of these variants which has the least of the figure on average."""
        return min(others, key=lambda name: fmean(self.each(name, figure)))

    def shown(self) -> Shown:
        """Return the numbers of all runs and the first one with its title, for the page that shows them."""
        return Shown(self.title, self.first, self.numbers)
