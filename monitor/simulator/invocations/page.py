"""The page of a simulation: tables of published and simulated numbers, and pictures, in one file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import fmean

from ..paper import interval
from .plots import pictures
from .result import Summary
from .runs import Report, Shown

STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}
td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}
.no{color:#a00;font-weight:600}
figure{display:inline-block;margin:.5em}
figcaption{color:#555;font-size:.9em}
img{max-width:100%}
"""
COLUMNS = (
    *("mean", "p50", "p90", "p99", "between", "miss", "cold", "false_miss", "throughput", "utilisation"),
    "refused",
)
HEADS = ("what", "published", "simulated", "95 %", "tolerance", "within", "why not")


def write(folder: Path, report: Report) -> Path:
    """Write `index.html` into this folder, which is made. Returns its path; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    title = escape(report.title)
    parts = [f"<h1>{title}</h1>"]
    if report.rows:
        parts.append(_published(report))
    parts += _figures(report.pictures)
    parts += [_shown(shown) for shown in report.shown]
    head = f'<meta charset="utf-8"><title>gpuferry: {title}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    path.write_text(f'<!doctype html><html lang="en"><head>{head}</head>\n{body}</html>\n', encoding="utf-8")
    return path


def remark(report: Report, name: str) -> str:
    """Why a row is out of tolerance, as far as it is known."""
    return next((why for begin, why in report.remarks.items() if name.startswith(begin)), "")


def _row(cells: list[str], cell: str = "td") -> str:
    return "<tr>" + "".join(f"<{cell}>{text}</{cell}>" for text in cells) + "</tr>"


def _published(report: Report) -> str:
    lines = ["<table>", _row(list(HEADS), "th")]
    for row in report.rows:
        high = "" if row.high == math.inf else f"{row.high:.3g}"
        why = "" if row.holds else escape(remark(report, row.name))
        holds = "yes" if row.holds else '<span class="no">no</span>'
        half = f"± {row.interval:.3f}" if row.interval else "exact"
        tolerance = f"{row.low:.3g} to {high}"
        simulated = f"{row.simulated:.3f}"
        lines.append(_row([escape(row.name), row.stated, simulated, half, tolerance, holds, why]))
    return "\n".join([*lines, "</table>"])


def _shown(shown: Shown) -> str:
    seeds = max((len(numbers) for numbers in shown.numbers.values()), default=1)
    of_all = (
        ""
        if seeds == 1
        else f"<p>Mean of {seeds} seeds, and half of its 95 % interval; drawn is the first.</p>"
    )
    figures = "".join(_figures(pictures(shown)))
    return f"<h2>{escape(shown.title)}</h2>{of_all}{_summaries(shown.numbers)}{figures}"


def _figures(pictures: Sequence[tuple[str, str]]) -> list[str]:
    figures = []
    for caption, data in pictures:
        image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        figures.append(f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>")
    return figures


def _summaries(summaries: Mapping[str, Sequence[Summary]]) -> str:
    lines = ["<table>", _row(["policy", *(name.replace("_", " ") for name in COLUMNS)], "th")]
    for name, numbers in summaries.items():
        cells = []
        for column in COLUMNS:
            samples = [float(getattr(summary, column)) for summary in numbers]
            half = interval(samples)
            cells.append(f"{fmean(samples):.3f}" + (f" ± {half:.3f}" if half else ""))
        lines.append(_row([escape(name), *cells]))
    return "\n".join([*lines, "</table>"])
