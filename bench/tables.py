"""Tables of what was measured, as documents show them (bench/results/)."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from .rows import promises

RESULTS = Path(__file__).parent / "results"


def headlines() -> str:
    """For each kind of device: what people ask for first, and how many of all promises hold."""
    return "\n".join(_headlines(results) for results in _measured()) or "Nothing measured yet.\n"


def _headlines(results: dict[str, Any]) -> str:
    promised = promises()
    rows = results["rows"]
    missed = [promised[row["name"]].title for row in rows if not row["holds"]]
    verdict = f" Missed: {'; '.join(missed)}." if missed else ""
    holding = _prose(f"{len(rows) - len(missed)} of {len(rows)} promises hold.{verdict}")
    return f"{_table(results, [row for row in rows if promised[row['name']].headline])}\n{holding}\n"


def numbers() -> str:
    """One table for each kind of device that was measured, and the papers' experiments in real time."""
    blocks = [_table(results, results["rows"]) for results in _measured()]
    blocks += [_figure8(json.loads(path.read_text())) for path in RESULTS.glob("policy/figure8.json")]
    blocks += [_figure6(json.loads(path.read_text())) for path in RESULTS.glob("policy/figure6.json")]
    blocks += [_invoked(json.loads(path.read_text())) for path in RESULTS.glob("policy/invoked.json")]
    blocks += [sixteen(json.loads(path.read_text())) for path in RESULTS.glob("policy/sixteen.json")]
    return "\n".join(blocks) or "Nothing measured yet.\n"


def _measured() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def _table(results: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    promised = promises()
    lines = [
        f"{results['device']}, {results['date']}, {results['machine']} (`make bench`):",
        "",
        "| measured | value | floor | times the floor | target |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        promise = promised[row["name"]]
        value, floor = (f"{_digits(row[key])} {row['unit']}" for key in ("value", "floor"))
        verdict = "" if row["holds"] else ", missed"
        lines.append(
            f"| {promise.title} | {value} | {floor} ({promise.floor}) "
            f"| {row['ratio']:.2f} | {row['target']:.3g}{verdict} |"
        )
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    """The text in lines of at most 120 characters, as documents have them."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _digits(value: float) -> str:
    """Three of them, and never an exponent where people read."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _figure8(results: dict[str, Any]) -> str:
    def spread(seconds: dict[str, float]) -> str:
        return f"{seconds['median']:.1f} ({seconds['least']:.1f} to {seconds['most']:.1f})"

    lines = [
        _prose(
            f"DGSF's figure 8 on four simulated devices, {results['date']}, {results['machine']} "
            f"(`python -m bench.figure8`); seconds, median of {results['rounds']} rounds "
            f"(least to most); in real time, with memory of {results['memory']}:"
        ),
        "",
        "| placement, migration | published | simulated | measured | sum of all functions | migrations |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in results["configurations"]:
        lines.append(
            f"| {row['policy']}, {row['migration']} | {row['published'] or ''} | {row['simulated']:.1f} "
            f"| {spread(row['end_to_end'])} | {spread(row['total'])} "
            f"| {', '.join(map(str, row['migrations']))} |"
        )
    return "\n".join(lines) + "\n"


def _figure6(results: dict[str, Any]) -> str:
    lines = [
        _prose(
            f"KubeShare's figure 6 on a simulated device, {results['date']}, {results['machine']} "
            f"(`python -m bench.figure6`): programs that are always busy, {results['seconds']:g} s of each "
            f"phase, window {results['window']:g} s, quota {results['quota']:g} s:"
        ),
        "",
        "| published shares | measured | settled after |",
        "|---|---|--:|",
    ]
    for phase in results["phases"]:
        published, measured = (
            ", ".join(f"{name.upper()} {share:.{digits}f}" for name, share in phase[key].items())
            for key, digits in (("published", 1), ("measured", 3))
        )
        verdict = "" if phase["holds"] else " (missed)"
        lines.append(f"| {published} | {measured}{verdict} | {phase['settled']} s |")
    return "\n".join(lines) + "\n"


def _invoked(results: dict[str, Any]) -> str:
    lines = [
        _prose(
            f"Functions invoked for real on four simulated devices, {results['date']}, {results['machine']} "
            "(`python -m bench.invoked`), with loads and runs of a tenth to a fifth of the papers'; in "
            "brackets the same calls simulated:"
        ),
        "",
        "| workload | policy | latency, s | of the calls load | calls a second | most / least service |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in results["rows"]:
        cells = [
            f"{row['measured'][key]:.3g} ({row['simulated'][key]:.3g})" for key in ("latency", "cold", "rate")
        ]
        uneven = f"{row['measured']['uneven']:.2f}" if row["paper"] == "mqfq" else ""
        cells += [f"{uneven} ({row['simulated']['uneven']:.2f})" if uneven else ""]
        lines.append(f"| {row['what']} | {row['policy']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def sixteen(found: dict[str, Any]) -> str:
    """More programs at once than a device holds: what bench/sixteen.py found."""
    size = f"{found['size'] >> 20} MiB"
    return (
        _prose(
            f"{found['programs']} programs of {size} each on a simulated device that holds {found['full']}, "
            f"{found['date']}, {found['machine']} (`python -m bench.sixteen`); {found['turns']} kernels over "
            "all of its memory each, and every word looked at in the end: "
            f"{found['alone']:.1f} s one after the other, {found['together']:.1f} s all at once. Meanwhile "
            f"{found['copied'] / 2**30:.1f} GiB left or came back; that took {found['copying']:.1f} s beside "
            f"the programs' work, by host memory and a disk, and takes {found['copies']:.1f} s as plain "
            "copies on a machine that does nothing else."
        )
        + "\n"
    )
