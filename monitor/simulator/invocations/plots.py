"""What a page draws of runs: distribution of latencies, misses, fairness over time, and what GPUs do."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...policy.invocations import Start
from ..paper import Row
from .result import Result
from .runs import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOW = 10.0  # seconds of service that are compared
POINTS = 400
TIMELINE = 60.0  # seconds of the first GPUs
GPUS = 6
SPAN = 1000.0  # seconds of the fairness that is drawn


def pictures(shown: Shown) -> list[tuple[str, str]]:
    """(caption, PNG as base64) of each picture."""
    drawn = (
        ("How many answers came within how many seconds", _latencies(shown.results)),
        ("Starts that were not warm, of all", _misses(shown.results)),
        (
            "Most less least service of the functions that called, in windows of 10 s",
            _fairness(shown.results),
        ),
        (
            "The first minute: starts pale, execution dark, a colour for each function",
            _timeline(shown.results),
        ),
    )
    return [(caption, png(figure)) for caption, figure in drawn]


def compared(rows: Sequence[Row]) -> str:
    """Published numbers beside simulated ones with their intervals, as a PNG in base64."""
    figure = _figure(9, 1 + 0.35 * len(rows))
    axes = figure.subplots()
    places = [float(number) for number in range(len(rows))]
    axes.barh([place - 0.2 for place in places], [row.published for row in rows], 0.4, label="published")
    simulated = [row.simulated for row in rows]
    halves = [row.interval for row in rows]
    axes.barh([place + 0.2 for place in places], simulated, 0.4, xerr=halves, label="simulated")
    axes.set_yticks(places, [row.name for row in rows], fontsize="small")
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    return png(figure)


def _figure(width: float, height: float) -> Figure:
    """An empty picture of this size, in inches."""
    from matplotlib.figure import Figure  # a second to import, which only those who draw should wait for

    return Figure(figsize=(width, height), layout="constrained")


def png(figure: Figure) -> str:
    """The figure as a PNG in base64."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=90)
    return base64.b64encode(out.getvalue()).decode()


def _latencies(results: Mapping[str, Result]) -> Figure:
    figure = _figure(6, 3.6)
    axes = figure.subplots()
    for name, result in results.items():
        latencies = result.latencies()
        step = max(1, len(latencies) // POINTS)
        few = latencies[::step]
        axes.plot(few, [(number * step + 1) / len(latencies) for number in range(len(few))], label=name)
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("part of the invocations")
    axes.legend(fontsize="small")
    return figure


def _misses(results: Mapping[str, Result]) -> Figure:
    figure = _figure(6, 3.6)
    axes = figure.subplots()
    axes.bar(list(results), [result.summary().miss for result in results.values()])
    axes.tick_params(axis="x", rotation=30)
    axes.set_ylabel("miss ratio")
    return figure


def gaps(result: Result) -> list[float]:
    """For each window of time, the most less the least service that functions had which called then."""
    windows = int(min(result.ended, SPAN) / WINDOW) + 1
    had: list[dict[str, float]] = [{} for _ in range(windows)]
    for record in result.done():
        last = min(windows - 1, int(record.finished / WINDOW))
        for number in range(int(record.arrived / WINDOW), last + 1):
            begin, end = number * WINDOW, (number + 1) * WINDOW
            service = max(0.0, min(record.finished, end) - max(record.began, begin))
            had[number][record.function] = had[number].get(record.function, 0.0) + service
    return [max(here.values()) - min(here.values()) if here else 0.0 for here in had]


def _fairness(results: Mapping[str, Result]) -> Figure:
    figure = _figure(6, 3.6)
    axes = figure.subplots()
    for name, result in results.items():
        found = gaps(result)
        axes.plot([number * WINDOW for number in range(len(found))], found, label=name, linewidth=1)
    axes.set_xlabel("seconds")
    axes.set_ylabel("seconds of service")
    axes.legend(fontsize="small")
    return figure


def _timeline(results: Mapping[str, Result]) -> Figure:
    figure = _figure(12, 0.9 + 1.1 * len(results))
    rows = figure.subplots(len(results), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, result) in zip(rows, results.items(), strict=True):
        names = sorted(result.by_function())
        bars: dict[tuple[int, int, bool], list[tuple[float, float]]] = {}
        for record in result.done():
            if record.decided > TIMELINE or record.gpu >= GPUS:
                continue
            colour = names.index(record.function) % 10
            if record.start is not Start.WARM:
                pale = bars.setdefault((record.gpu, colour, True), [])
                pale.append((record.decided, record.began - record.decided))
            dark = bars.setdefault((record.gpu, colour, False), [])
            dark.append((record.began, record.finished - record.began))
        for (gpu, colour, pale_one), spans in bars.items():
            axes.broken_barh(spans, (gpu - 0.4, 0.8), color=f"C{colour}", alpha=0.3 if pale_one else 1.0)
        axes.set_ylabel(name, rotation=0, ha="right", fontsize="small")
        axes.set_yticks([])
        axes.set_xlim(0, TIMELINE)
    rows[-1].set_xlabel("seconds")
    return figure
