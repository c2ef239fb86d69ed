"""Fills the README's generated blocks: what is carried (from the spec), what was measured (bench/results/).

python -m bench.readme            rewrite README.md
python -m bench.readme --check    exit 1 if it is not up to date
python -m bench.readme --record   keep build/bench/results.json as this kind of device's numbers
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from .rows import promises

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
MEASURED = ROOT / "build" / "bench" / "results.json"
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.readme", description="the README's generated blocks"
    )
    parser.add_argument("--check", action="store_true", help="only say whether README.md is up to date")
    parser.add_argument(
        "--record", action="store_true", help="keep build/bench/results.json in bench/results/"
    )
    options = parser.parse_args()
    if options.record:
        record()
    old = README.read_text()
    new = filled(old)
    if options.check:
        if new != old:
            print("README.md is not up to date: run python -m bench.readme", file=sys.stderr)
        return int(new != old)
    README.write_text(new)
    return 0


def filled(text: str) -> str:
    """`text` with the inside of every generated block made anew."""
    for name, block in {"coverage": coverage, "numbers": numbers}.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, block=block: match[1] + block() + match[2], text)  # type: ignore[misc]
        if count != 1:
            sys.exit(f"README.md has {count} blocks `<!-- generated: {name} -->`, wanted 1")
    return text


def coverage() -> str:
    """Per group of the driver API: how many functions there are, and how they are carried."""
    command = [sys.executable, "-m", "codegen", "coverage", "--json"]
    spec = json.loads(subprocess.check_output(command, cwd=ROOT, text=True))
    classes = ("local", "async", "sync", "unsupported")
    written = ("generated", "custom", "steps", "lines")
    groups: dict[str, dict[str, int]] = {}
    total = dict.fromkeys((*classes, *written), 0)
    for function in spec["functions"].values():
        for counts in (groups.setdefault(function["group"], dict.fromkeys(total, 0)), total):
            counts[function["class"]] += 1
            counts["steps"] += len(function["guest_steps"])
            counts["lines"] += function["lines_by_hand"]
            if function["guest"] in written:
                counts[function["guest"]] += 1
    lines = [
        "| group | in the guest | sent, not waited for | waited for | not supported "
        "| generated | by hand | steps by hand | lines by hand |",
        "|---" + "|--:" * 8 + "|",
    ]
    rows = [*sorted(groups.items(), key=lambda item: not any(item[1][c] for c in classes[:3]))]
    rows.append(("**all**", total))
    lines += [
        "| " + " | ".join([name, *(str(n or "") for n in counts.values())]) + " |" for name, counts in rows
    ]
    return "\n".join(lines) + "\n"


def numbers() -> str:
    """One table for each kind of device that was measured."""
    blocks = [_table(json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]
    blocks += [_figure8(json.loads(path.read_text())) for path in RESULTS.glob("policy/figure8.json")]
    return "\n".join(blocks) or "Nothing measured yet.\n"


def _table(results: dict[str, Any]) -> str:
    titles = promises()
    lines = [
        f"{results['device']}, {results['date']}, {results['machine']} (`make bench`):",
        "",
        "| measured | value | floor | times the floor | target |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in results["rows"]:
        promise = titles[row["name"]]
        value, floor = (f"{row[key]:.3g} {row['unit']}" for key in ("value", "floor"))
        verdict = "" if row["holds"] else ", missed"
        lines.append(
            f"| {promise.title} | {value} | {floor} ({promise.floor}) "
            f"| {row['ratio']:.2f} | {row['target']:.3g}{verdict} |"
        )
    return "\n".join(lines) + "\n"


def _figure8(results: dict[str, Any]) -> str:
    def spread(seconds: dict[str, float]) -> str:
        return f"{seconds['median']:.1f} ({seconds['least']:.1f} to {seconds['most']:.1f})"

    lines = [
        f"DGSF's figure 8 on four simulated devices, {results['date']}, {results['machine']} "
        f"(`python -m bench.figure8`); seconds, median of {results['rounds']} rounds "
        f"(least to most); in real time, with memory of {results['memory']}:",
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


def record() -> None:
    """Copies the last measurement, with what is needed to read it later."""
    measured = json.loads(MEASURED.read_text())
    device = str(measured["device"])
    kept = {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "machine": f"{platform.machine()}, {len(_cpus())} cores",
        "rows": measured["rows"],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{re.sub(r'[^a-z0-9]+', '-', device.lower())}.json").write_text(
        json.dumps(kept, indent=1) + "\n"
    )


def _cpus() -> list[str]:
    return re.findall(r"^processor", Path("/proc/cpuinfo").read_text(), re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
