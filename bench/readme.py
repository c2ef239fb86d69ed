"""Fills the generated blocks of documents.

README.md tells what is carried (from the spec), the calls of a step of training and the numbers that people
ask for first, specs/cuda/REFUSED.md what is not and why, bench/NUMBERS.md all that was measured
(bench/results/), codegen/DESIGN.md what three families of functions take.

python -m bench.readme            rewrite them
python -m bench.readme --check    exit 1 if one is not up to date
python -m bench.readme --record   keep build/bench/results.json as this kind of device's numbers
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import tables
from .rows import promises

ROOT = Path(__file__).parent.parent
OTHER_HEADERS = "graphics_api"  # the group whose functions cuda.h does not declare
MEASURED = ROOT / "build" / "bench" / "results.json"
STEP = tables.RESULTS / "clients" / "step_calls.json"
FAMILIES = {
    "Linking at run time": ("link",),
    "The program's own virtual memory": (
        "cuMemAddress*",
        "cuMemCreate",
        "cuMemRelease",
        "cuMemMap",
        "cuMemUnmap",
        "cuMem[GS]etAccess",
        "cuMemGetAllocation*",
        "cuMemRetainAllocationHandle",
    ),
    "Memory pools": ("memory_pool", "*MemPool", "cuMemAlloc*Async", "cuMemFreeAsync"),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.readme", description="the generated blocks of documents"
    )
    parser.add_argument("--check", action="store_true", help="only say whether they are up to date")
    parser.add_argument(
        "--record", action="store_true", help="keep build/bench/results.json in bench/results/"
    )
    options = parser.parse_args()
    if options.record:
        record()
    stale = False
    for name, blocks in DOCUMENTS.items():
        old = (ROOT / name).read_text()
        new = filled(old, name, blocks)
        if options.check and new != old:
            print(f"{name} is not up to date: run python -m bench.readme", file=sys.stderr)
            stale = True
        elif not options.check:
            (ROOT / name).write_text(new)
    return int(stale)


def filled(text: str, name: str, blocks: dict[str, Callable[[], str]]) -> str:
    """`text`, of the document `name`, with the inside of each of these blocks made anew."""
    for title, block in blocks.items():
        pattern = re.compile(rf"(<!-- generated: {title} -->\n).*?(<!-- end -->)", re.DOTALL)
        inside = block()
        text, count = pattern.subn(lambda match, inside=inside: match[1] + inside + match[2], text)  # type: ignore[misc]
        if count != 1:
            sys.exit(f"{name} has {count} blocks `<!-- generated: {title} -->`, wanted 1")
    return text


def codegen(*arguments: str) -> str:
    """What `python -m codegen` prints for these arguments."""
    return subprocess.check_output([sys.executable, "-m", "codegen", *arguments], cwd=ROOT, text=True)


@functools.cache
def functions() -> dict[str, dict[str, Any]]:
    """What `python -m codegen coverage --json` says of each function, by symbol."""
    found: dict[str, dict[str, Any]] = json.loads(codegen("coverage", "--json"))["functions"]
    return found


def step() -> str:
    """What a step of training costs in calls (python -m bench.step_calls)."""
    found = json.loads(STEP.read_text())
    calls, trips = found["calls"], found["round_trips"]
    told = (
        f"A step of training ResNet-18 makes {sum(calls.values()):,} driver calls (PyTorch {found['torch']}, "
        f"{found['date']}): {calls['local']:,} are answered in the guest, {calls['async']:,} sent and not "
        f"waited for, {calls['sync']:,} are such as may wait, and {sum(trips.values()):,} of these make a "
        f"round trip: {', '.join(f'`{name}` {count}' for name, count in sorted(trips.items()))}."
    )
    return "\n".join(textwrap.wrap(told, 120, break_on_hyphens=False)) + "\n"


def coverage() -> str:
    """Per group of the driver API: how many functions there are, and how they are carried."""
    classes = ("local", "async", "sync", "absent", "refused")
    written = ("generated", "custom", "steps", "lines")
    groups: dict[str, dict[str, int]] = {}
    total = dict.fromkeys((*classes, *written), 0)
    for function in functions().values():
        for counts in (groups.setdefault(function["group"], dict.fromkeys(total, 0)), total):
            counts[function["class"]] += 1
            counts["steps"] += len(function["guest_steps"])
            counts["lines"] += function["lines_by_hand"]
            if function["guest"] in written and function["class"] != "refused":
                counts[function["guest"]] += 1
    lines = [
        "| group | in the guest | sent, not waited for | waited for | as without it | refused "
        "| generated | by hand | steps by hand | lines by hand |",
        "|---" + "|--:" * 9 + "|",
    ]
    carried = {name: counts for name, counts in groups.items() if any(counts[c] for c in classes[:4])}
    missing = {name: counts for name, counts in groups.items() if name not in carried}
    rest = {key: sum(counts[key] for counts in missing.values()) for key in total}
    rows = [*sorted(carried.items()), (", ".join(sorted(missing)), rest), ("**all**", total)]
    lines += [
        "| " + " | ".join([name, *(str(n or "") for n in counts.values())]) + " |" for name, counts in rows
    ]
    other = groups[OTHER_HEADERS]
    own = {c: total[c] - other[c] for c in classes}
    does, absent, refused = sum(own[c] for c in classes[:3]), own["absent"], own["refused"]
    others = sum(other[c] for c in classes)
    told = (
        f"Of the {does + absent + refused} symbols of cuda.h {does + absent} are carried: {does} do what "
        f"CUDA does, {absent} answer what CUDA answers where a device lacks what they are for, as the "
        f"device's attributes say. {refused} are refused, and all {others} of cudaGL.h, "
        "cudaEGL.h and cudaVDPAU.h: [REFUSED](specs/cuda/REFUSED.md) gives the reason for each."
    )
    lines += ["", *textwrap.wrap(told, 120, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def reasons(kind: str, title: str) -> str:
    """The functions of a kind by the reason that the spec gives for them."""
    found: dict[str, list[str]] = {}
    for symbol, function in functions().items():
        if function["class"] == kind:
            found.setdefault(function["why"], []).append(symbol)
    rows = [f"| {why} | {', '.join(f'`{symbol}`' for symbol in symbols)} |" for why, symbols in found.items()]
    return "\n".join([f"| {title} | functions |", "|---|---|", *rows]) + "\n"


def families() -> str:
    """Per function of three families: lines in the spec, and by hand on either side."""
    return "\n".join(
        f"{title}:\n\n{codegen('coverage', '--functions', *names)}" for title, names in FAMILIES.items()
    )


def record() -> None:
    """Copies the last measurement, with what is needed to read it later. It must be whole: who measured a few
    sections alone, or was cut off, would lose the others' rows.
    """
    measured = json.loads(MEASURED.read_text())
    device = str(measured["device"])
    file = tables.RESULTS / f"{re.sub(r'[^a-z0-9]+', '-', device.lower())}.json"
    before = json.loads(file.read_text())["rows"] if file.exists() else []
    gone = {row["name"] for row in before} & promises().keys() - {row["name"] for row in measured["rows"]}
    if gone:
        sys.exit(f"{MEASURED} lacks what {file.name} has, {', '.join(sorted(gone))}: measure all of it")
    kept = {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "machine": f"{platform.machine()}, {len(_cpus())} cores",
        "rows": measured["rows"],
    }
    tables.RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(kept, indent=1) + "\n")


def _cpus() -> list[str]:
    return re.findall(r"^processor", Path("/proc/cpuinfo").read_text(), re.MULTILINE)


DOCUMENTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"step": step, "coverage": coverage, "numbers": tables.headlines},
    "specs/cuda/REFUSED.md": {
        "refused": lambda: reasons("refused", "why"),
        "absent": lambda: reasons("absent", "what the device lacks"),
    },
    "bench/NUMBERS.md": {"numbers": tables.numbers},
    "codegen/DESIGN.md": {"families": families},
}

if __name__ == "__main__":
    sys.exit(main())
