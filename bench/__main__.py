"""`make bench`: measurements, each with its floor from the same run: a table and build/bench/results.json."""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import BUILD, ROOT
from tests.helpers.running import Outcome, native_environment, real_gpu, run

from . import (
    checked,
    decision,
    functions,
    gpu,
    invocations,
    jail,
    lease,
    matrices,
    migration,
    picture,
    residency,
    secure,
    sharing,
    warps,
)
from .probe import ALL, SECONDS, measured, probe, require
from .rows import Row, cost, promises, rate

OUT = BUILD / "bench"
MICRO = ROOT / "bench" / "micro"
HELLO, WELCOME = 336, 1536  # about what the handshake sends each way
CALL, REPLY = 96, 24  # about what a waiting call sends each way
BATCH = 64 << 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Each measurement beside its floor.")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    chosen = parser.parse_args().only or (ON_A_GPU if real_gpu() else ON_THE_SIMULATED)
    OUT.mkdir(parents=True, exist_ok=True)
    device, rows = "gpu" if real_gpu() else "simulated", []
    for name in chosen:
        with Console(stderr=True).status(f"measuring: {name} …"):
            rows += SECTIONS[name]()
        # Kept after each: a run on a lent machine may be cut off.
        results = {"device": device, "rows": [row.as_json() for row in rows]}
        (OUT / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    show(rows, device)
    return 0


def calls() -> list[Row]:
    """Single calls and copies, and a whole program."""
    with monitor("--pool", "1", "--log-level", "warning") as server:
        return [*micro(server), kmeans(server)]


# What `--only` can name; the order is that of the table.
SECTIONS: dict[str, Callable[[], list[Row]]] = {
    "calls": calls,
    "lease": lease.rows,
    "decision": decision.rows,
    "invocations": invocations.rows,
    "functions": functions.rows,
    "tls": secure.rows,
    "migration": migration.rows,
    "residency": residency.rows,
    "gpu": gpu.rows,
    "checked": checked.rows,
    "warps": warps.rows,
    "matrices": matrices.rows,
    "jail": jail.rows,
    "sharing": sharing.rows,
}
# Not `migration` and `residency`, whose floors are copies within this machine's memory: `gpu` has them there.
ON_A_GPU = ("calls", "lease", "decision", "invocations", "tls", "gpu", "sharing")
ON_THE_SIMULATED = tuple(name for name in SECTIONS if name != "gpu")


def micro(server: Monitor) -> list[Row]:
    """Rows of single driver calls and copies, measured from inside a program."""
    twin = toolchain.program(MICRO / "twin.c")
    names = [name for name in ALL if not (name == "contexts" and real_gpu())]  # each takes 100 ms there
    native = measured(run(probe(*names), native_environment(), SECONDS))
    remote = measured(server.run(probe(*names), timeout=SECONDS))
    copied = int(remote["copy_bytes"])
    launched = 20000
    written = floor(twin, "up", launched * int(remote["launch_bytes"]), BATCH) / launched
    round_trip = floor(twin, "pingpong", 20000, CALL, REPLY)
    gigabytes, image = copied / 1e9, int(remote["image_bytes"])
    connected = min(measured(server.run(probe("first_call")))["first_call"] for _ in range(9))
    rows = [
        cost("sync_call", remote["sync_call"] * 1e6, round_trip + native["sync_call"] * 1e6, "µs"),
        cost("small_d2h", remote["small_d2h"] * 1e6, round_trip + native["small_d2h"] * 1e6, "µs"),
        cost("event_query", remote["event_query"] * 1e6, native["event_query"] * 1e6, "µs"),
        cost("idle_sync", remote["idle_sync"] * 1e6, native["idle_sync"] * 1e6, "µs"),
        cost("async_call", remote["async_call"] * 1e6, native["async_call"] * 1e6, "µs"),
        cost("launch", remote["launch"] * 1e6, native["launch"] * 1e6, "µs"),
        cost("launch_enqueue", remote["launch_enqueue"] * 1e6, written * 1e6, "µs"),
        cost("alloc_free", remote["alloc_free"] * 1e6, native["alloc_free"] * 1e6, "µs"),
        cost("teardown", remote["teardown"] * 1e3, 10 * remote["teardown_tenth"] * 1e3, "ms"),
        rate("h2d", gigabytes / remote["h2d"], gigabytes / floor(twin, "up", copied, 4 << 20), "GB/s"),
        rate("d2h", gigabytes / remote["d2h"], gigabytes / floor(twin, "down", copied, 4 << 20), "GB/s"),
        cost("load", remote["load"] * 1e3, (native["load"] + hashing(image)) * 1e3, "ms"),
        cost("first_call", connected * 1e6, floor(twin, "connect", 500, HELLO, WELCOME), "µs"),
    ]
    if "contexts" in names:
        rows.append(cost("contexts", remote["contexts"] * 1e3, 10 * remote["contexts_tenth"] * 1e3, "ms"))
    return rows


def kmeans(server: Monitor) -> Row:
    """The row of a whole program: k-means on a quarter of the demo's photograph."""
    photograph = picture.photograph()
    source = OUT / "photograph.ppm"
    photograph.resize((photograph.width // 2, photograph.height // 2)).save(source)
    program = toolchain.program(ROOT / "bench" / "workloads" / "kmeans" / "kmeans.cu")
    command: list[str | Path] = [program, source, OUT / "quantised.ppm", "10"]
    native = timed(lambda: run(command, native_environment()))
    return cost("kmeans", timed(lambda: server.run(command)), native, "s")


def timed(go: Callable[[], Outcome]) -> float:
    """Seconds of the second of two runs: the first one compiles its kernels."""
    require(go())
    began = time.perf_counter()
    require(go())
    return time.perf_counter() - began


def hashing(size: int) -> float:
    """Seconds in which OpenSSL hashes so many bytes: the best of five."""
    data, took = bytes(size), []
    for _ in range(5):
        began = time.perf_counter()
        hashlib.sha256(data).digest()
        took.append(time.perf_counter() - began)
    return min(took)


def floor(twin: Path, *arguments: object) -> float:
    """Seconds that the C twin needs for the least that anyone could do: the best of three runs."""
    command = [str(word) for word in (twin, *arguments)]
    return min(float(subprocess.check_output(command, text=True)) for _ in range(3))


def show(rows: list[Row], device: str) -> None:
    """Print one line per row, and below it what its floor is."""
    table = Table(title=f"gpuferry on the {device} device of this machine", title_justify="left", box=None)
    table.add_column("measured", no_wrap=True)
    for column in ("value", "floor", "times", "target", "holds"):
        table.add_column(column, justify="right", no_wrap=True)
    promised = promises()
    for row in rows:
        promise = promised[row.name]
        table.add_row(
            promise.title,
            f"{row.value:.3g} {row.unit}",
            f"{row.floor:.3g} {row.unit}",
            f"{row.ratio:.2f}",
            f"{row.target:.3g}",
            "[green]yes[/]" if row.holds else "[red]no[/]",
        )
        table.add_row(f"[dim]  of {promise.floor}[/]")
    Console(width=150).print(table)


if __name__ == "__main__":
    sys.exit(main())
