"""`make demo`: an unmodified CUDA program on this machine's device and through gpuferry, compared.

Then once more, moved to another device while it runs. Writes build/demo/quantised.png, migration.png
and result.json; fails if the runs differ.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.table import Table

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import BUILD, GPUFERRY, ROOT
from tests.helpers.running import real_gpu

from . import picture, timeline

OUT = BUILD / "demo"
SOURCE = ROOT / "bench" / "workloads" / "kmeans" / "kmeans.cu"
FEW = 10  # iterations of the short run, which tells set-up from steady state

console = Console(highlight=False)
progress = Console(stderr=True, highlight=False)


class Failed(Exception):
    """Raised by a run that did not end well."""


@dataclass(frozen=True)
class Run:
    """One run of the k-means program."""

    report: str
    image: bytes
    seconds: float
    stats: dict[str, Any]

    @property
    def iterations(self) -> int:
        """Iterations of k-means, from the program's report."""
        found = re.search(r"(\d+) iterations", self.report)
        return int(found[1]) if found else 0

    @property
    def launches(self) -> int:
        """Kernels that were launched, by the guest's own count."""
        calls: dict[str, int] = self.stats["functions"]
        return sum(count for name, count in calls.items() if name.startswith("cuLaunchKernel"))


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    photograph = picture.photograph()
    photograph.save(OUT / "photograph.ppm")
    with step("compiling kmeans.cu with nvcc and its defaults"):
        kmeans = toolchain.program(SOURCE)
    link = OUT / "kmeans"  # for those who go on by hand
    link.unlink(missing_ok=True)
    link.symlink_to(kmeans)
    try:
        with step(f"running it natively on {'this GPU' if real_gpu() else 'the simulated device'}"):
            native = run([] if real_gpu() else [GPUFERRY, "sim", "--"], kmeans, "native")
        with ExitStack() as stack:
            with step("starting a monitor with an API server on each device"):
                two = {} if real_gpu() else {"GPUFERRY_SIM_DEVICES": "2"}
                options = ("--pool", "1", "--log-level", "warning")
                server = stack.enter_context(monitor(*options, environment=two))
            devices = server.status()["devices"]
            with step("running it through gpuferry"):
                remote = run_remote(server, kmeans, "remote")
            with step(f"once more, {FEW} iterations only, to tell set-up from steady state"):
                few = run_remote(server, kmeans, "few", str(FEW))
            moved, moves = None, timeline.Timeline()
            if len(devices) > 1:
                with (
                    step("and once more, moved to the other device on the way"),
                    timeline.follow_and_move(server, remote.launches // 3) as moves,
                ):
                    moved = run_remote(server, kmeans, "moved")
    except Failed as failure:
        progress.print(f"[red]demo failed:[/] {failure}")
        return 1
    quantised = Image.open(OUT / "remote.ppm")
    quantised.save(OUT / "quantised.png")
    palette = picture.colours(remote.report)
    picture.side_by_side(photograph, quantised, palette).save(OUT / "comparison.png")
    result = summary(str(devices[0]["name"]), native, remote, few)
    if moved:
        result["migration"] = migration(native, moved, moves)
        title = f"k-means on {result['device']}, moved while it runs"
        timeline.draw(OUT / "migration.png", moves, title)
    (OUT / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    show(result, palette)
    return 0 if result["identical"] and (not moved or result["migration"]["identical"]) else 1


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is going on within this context: live on a terminal, as a line elsewhere."""
    began = time.monotonic()
    if progress.is_terminal:
        with progress.status(f"{what} …"):
            yield
    else:
        yield
    progress.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {what}")


def run(
    prefix: Sequence[str | Path],
    kmeans: Path,
    name: str,
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    stats: Path | None = None,
) -> Run:
    """Run the program on the photograph, to its end. Raises Failed."""
    output = OUT / f"{name}.ppm"
    output.unlink(missing_ok=True)
    command = [*prefix, kmeans, OUT / "photograph.ppm", output, *arguments]
    environment = {**os.environ, **(settings or {})}
    began = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    if done.returncode != 0:
        raise Failed(f"{name} run: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return Run(done.stdout, output.read_bytes(), seconds, json.loads(stats.read_text()) if stats else {})


def run_remote(server: Monitor, kmeans: Path, name: str, *arguments: str) -> Run:
    """Run the program through the monitor, as `gpuferry run` does. Raises Failed."""
    stats = OUT / f"{name}.stats.json"
    return run(
        [GPUFERRY, "run", "--stats", stats, "--"],
        kmeans,
        name,
        *arguments,
        settings=server.settings(),
        stats=stats,
    )


def summary(device: str, native: Run, remote: Run, few: Run) -> dict[str, Any]:
    """What result.json holds of the runs that did not move."""
    stats = remote.stats
    steps = remote.iterations - few.iterations
    return {
        "device": device,
        "identical": native.report == remote.report and native.image == remote.image,
        "iterations": remote.iterations,
        "calls": stats["calls"],
        "round_trips": {
            "total": stats["round_trips"],
            "per_iteration": (stats["round_trips"] - few.stats["round_trips"]) / max(steps, 1),
            "by_function": stats["round_trips_by_function"],
        },
        "bytes": stats["bytes"],
        "seconds": {"native": native.seconds, "remote": remote.seconds, **stats["seconds"]},
    }


def migration(native: Run, moved: Run, moves: timeline.Timeline) -> dict[str, Any]:
    """What result.json holds of the run that moved."""
    reports = [move.report for move in moves.moves]
    return {
        "identical": bool(reports) and native.report == moved.report and native.image == moved.image,
        "devices": sorted({look.device for look in moves.looks}),
        "seconds": moved.seconds,
        "moves": [
            {
                "pause_ms": report.pause_seconds * 1000,
                "ms": report.seconds * 1000,
                "bytes_mapped": report.mapped_bytes,
                "bytes_copied": report.copied_bytes,
                "bytes_in_pause": report.pause_bytes,
            }
            for report in reports
        ],
    }


def show(result: dict[str, Any], palette: list[str]) -> None:
    """Print what was compared: results, calls, round trips, bytes and times."""
    calls, trips, seconds, size = (result[key] for key in ("calls", "round_trips", "seconds", "bytes"))
    verdict = "[bold green]identical[/]" if result["identical"] else "[bold red]NOT identical[/]"
    console.print()
    if console.is_terminal:
        console.print("".join(f"[on {colour}]    [/]" for colour in palette))
    console.print(
        f"k-means on {result['device']}: the native and the remote result are {verdict}.", end="\n\n"
    )

    table = facts("Driver calls of the remote run")
    table.add_row("answered by the guest itself", f"{calls['local']:,}")
    table.add_row("sent without waiting", f"{calls['async']:,}")
    table.add_row("answered by the server", f"{calls['sync']:,}")
    table.add_row("not supported", f"{calls['unsupported']:,}")
    table.add_row("blocking round trips", f"{trips['total']:,}")
    for name, count in sorted(trips["by_function"].items(), key=lambda entry: -entry[1]):
        table.add_row(f"  {name}", f"[dim]{count:,}[/]")
    table.add_row("  per iteration of the loop", f"[dim]{trips['per_iteration']:.2f}[/]")
    table.add_row("bytes to the server", f"{size['sent']:,}")
    table.add_row("bytes from the server", f"{size['received']:,}")
    console.print(table)

    table = facts("Where the time went")
    spent = {
        "connecting": seconds["connect"],
        "waiting for the device": seconds["waiting"],
        "writing to the socket": seconds["writing"],
    }
    table.add_row("native run", f"{seconds['native']:.3f} s")
    table.add_row("remote run", f"{seconds['remote']:.3f} s")
    for name, value in {
        **spent,
        "the program and its start": seconds["remote"] - sum(spent.values()),
    }.items():
        table.add_row(f"  {name}", f"[dim]{value:.3f} s[/]")
    console.print(table)
    if "migration" in result:
        moved = result["migration"]
        table = facts("Moved to the other device while it ran")
        table.add_row("result", "identical" if moved["identical"] else "NOT identical")
        for move in moved["moves"]:
            table.add_row("pause", f"{move['pause_ms']:.1f} ms")
            table.add_row("migration", f"{move['ms']:.1f} ms")
            table.add_row("bytes copied", f"{move['bytes_copied']:,}")
        console.print(table)
    else:
        console.print("One device only, so the session had nowhere to move to.")
    console.print(
        f"{(OUT / 'quantised.png').relative_to(ROOT)}; beside it: comparison.png, migration.png, result.json"
    )


def facts(title: str) -> Table:
    """A table of two columns: what, and how much."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(min_width=30)
    table.add_column(justify="right")
    return table


if __name__ == "__main__":
    sys.exit(main())
