"""`gpuferry simulate --paper` and `--trace`: policies over invocations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from . import terminal
from .choice import check_known
from .errors import CliError, Exit, reason

if TYPE_CHECKING:
    from ..simulator.azure import Slice
    from ..simulator.invocations.runs import Advance, Report, Variant
    from ..simulator.invocations.workload import Server

COMPARED = ("fcfs", "lalbo3", "mqfq", "auto")


def compare_with(paper: str, seeds: Sequence[int], folder: Path, as_json: bool) -> None:
    """A paper's numbers beside the simulator's, on the terminal and as a page in this folder."""
    from ..simulator.paper import as_json as rows_as_json
    from ..simulator.paper import table
    from ..simulator.papers import PAPERS

    check_known("--paper", paper, PAPERS, "paper")
    with _progress() as advance:
        report = PAPERS[paper](seeds, advance)
    page = _write(folder, report)
    if as_json:
        print(json.dumps(rows_as_json(paper, seeds, report.rows) | {"page": str(page)}, indent=2))
        return
    terminal.console().print(table(f"{report.title}, {len(seeds)} seeds", report.rows))
    print(f"pictures, and why rows are out of tolerance: {page}", file=sys.stderr)


def variants(policies: Sequence[str], of_all: Mapping[str, str], pairs: Sequence[str]) -> list[Variant]:
    """The policies with their options. `of_all`: those that each must have; `pairs`: NAME=VALUE, of whichever
    have it.
    """
    from ..policy.invocations import POLICIES, build
    from ..policy.invocations.build import options_of, read_options
    from ..simulator.invocations.runs import Variant

    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (equals and name):
            raise CliError(Exit.USAGE, f"--option {pair}: NAME=VALUE is wanted")
        given[name] = text
    found = []
    for policy in policies:
        check_known("--policy", policy, POLICIES)
        has = options_of(policy)
        mine = {name: text for name, text in given.items() if name in has or len(policies) == 1}
        try:
            values = read_options(policy, {**of_all, **mine})
            build(policy, **values)
        except ValueError as error:
            raise CliError(Exit.USAGE, f"--policy {policy}: {error}") from None
        found.append(Variant(policy, policy, values))
    for name in given:
        if not any(name in options_of(policy) for policy in policies):
            has_each = "; ".join(f"{policy}: {', '.join(options_of(policy))}" for policy in policies)
            raise CliError(Exit.USAGE, f"--option {name}: none of these policies has it", has_each)
    return found


def replay(
    trace: Path,
    part: Slice,
    server: Server,
    compared: Sequence[Variant],
    seeds: Sequence[int],
    folder: Path,
    files: Mapping[str, Path | None],
    as_json: bool,
) -> None:
    """Policies over a user's trace. `files`: durations and memory."""
    from dataclasses import replace
    from statistics import fmean

    from rich.table import Table

    from ..simulator.azure import TraceError
    from ..simulator.invocations.runs import Comparison, Report
    from ..simulator.invocations.trace import replay as read
    from ..simulator.paper import interval

    try:
        with _progress() as advance:
            done = Comparison(
                lambda seed: read(trace, replace(part, seed=seed), server, **files), compared, seeds, advance
            )
    except (OSError, TraceError) as error:
        raise CliError(Exit.FAILED, f"cannot read the trace: {reason(error)}") from None
    page = _write(folder, Report(done.title, shown=[done.shown()]))
    figures = ("mean", "p50", "p99", "between", "miss", "throughput", "refused")
    if as_json:
        runs = {name: [one.as_json() for one in numbers] for name, numbers in done.numbers.items()}
        shown = {"schema": "gpuferry.simulate.trace/1", "trace": done.title, "seeds": list(seeds)}
        print(json.dumps(shown | {"runs": runs, "page": str(page)}, indent=2))
        return
    shown_table = Table(title=f"{done.title}: mean of {len(seeds)} seeds", title_justify="left", box=None)
    shown_table.add_column("policy", no_wrap=True)
    for figure in (*figures, "95 % of mean"):
        shown_table.add_column(figure, justify="right", no_wrap=True)
    for name in done.numbers:
        cells = [f"{fmean(done.each(name, figure)):.3f}" for figure in figures]
        shown_table.add_row(name, *cells, f"± {interval(done.each(name, 'mean')):.3f}")
    terminal.console().print(shown_table)
    print(f"pictures: {page}", file=sys.stderr)


def _write(folder: Path, report: Report) -> Path:
    from ..simulator.invocations.page import write

    try:
        return write(folder, report)
    except OSError as error:
        raise CliError(Exit.FAILED, f"cannot write the page: {reason(error)}") from None


@contextmanager
def _progress() -> Iterator[Advance]:
    """A line on a terminal's stderr that says what is done; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:.0f} runs"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda what: bar.update(task, advance=1, description=what)
