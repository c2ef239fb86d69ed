"""Utilisation and queue over time, one column per policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .report import Run
from .workload import Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(path: Path, workload: Workload, runs: Sequence[Run]) -> None:
    """Write the policies' utilisation and queues over time, as `drawn` draws them, to a PNG."""
    drawn(workload, runs).savefig(path, format="png", dpi=110)


def drawn(workload: Workload, runs: Sequence[Run]) -> Figure:
    """A column for each policy: above, each GPU's utilisation as shades of a row; below, how many wait."""
    from matplotlib.figure import Figure  # a second to import, which only those who draw should wait for
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(1.5 + 4.5 * len(runs), 6), layout="constrained")
    figure.suptitle(workload.name)
    axes = figure.subplots(2, len(runs), sharex=True, sharey="row", squeeze=False)
    for column, run in enumerate(runs):
        samples = run.result.samples
        edges = [0.0, *(sample.time for sample in samples)]
        above, below = axes[:, column]
        above.set_title(run.name)
        below.set_xlabel("seconds")
        if samples:
            rows = list(zip(*(sample.utilisation for sample in samples), strict=True))
            borders = [gpu - 0.5 for gpu in range(len(rows) + 1)]
            shades = above.pcolormesh(edges, borders, rows, vmin=0, vmax=1, cmap="viridis")
            below.stairs([sample.waiting for sample in samples], edges, fill=True)
            if run is runs[-1]:
                figure.colorbar(shades, ax=above, label="utilisation")
    axes[0, 0].set_ylabel("GPU")
    axes[0, 0].yaxis.set_major_locator(MaxNLocator(integer=True))
    axes[1, 0].set_ylabel("waiting requests")
    return figure
