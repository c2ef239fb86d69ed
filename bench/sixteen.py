"""16 programs that fill a device 1.6 times, always busy: all at once, beside one after the other, and beside
the copies of what came and went.

    python -m bench.sixteen [--size 1GiB] [--turns 8] [--sharing free] [--away-memory 2GiB]
                            [--disk-folder FOLDER] [--record]

Every page of a program is written and different from others', and each program looks at all of its words at
the end. By default the copies are in 2 GiB of host memory and on a disk, so that 1 GiB each needs 12 GiB.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuferry.guest.units import parse_size

from tests.helpers.monitor import Monitor, monitor
from tests.residency.lodgers import lodgers

from .residency import copy_seconds
from .tables import RESULTS, sixteen

PROGRAMS = 16
FULL = 10  # so many of them fit on the device
FLOOR_BYTES = 256 << 20


def main() -> None:
    """Measure, and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=parse_size, default=1 << 30)
    parser.add_argument(
        "--turns", type=int, default=8, help="kernels over all of its memory, of each program"
    )
    parser.add_argument("--sharing", default="free")
    parser.add_argument("--away-memory", default="2GiB")
    parser.add_argument("--disk-folder", default=tempfile.gettempdir())
    parser.add_argument("--record", action="store_true", help="keep it for NUMBERS.md")
    chosen = parser.parse_args()
    with _crowd(chosen) as server:
        alone = sum(_run(server, chosen, 1) for _ in range(PROGRAMS))
        before = _copies(server)
        together = _run(server, chosen, PROGRAMS)
        copied, seconds = (now - then for now, then in zip(_copies(server), before, strict=True))
    floor = copied / FLOOR_BYTES * min(copy_seconds(FLOOR_BYTES) for _ in range(5))
    found = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "programs": PROGRAMS,
        "size": chosen.size,
        "full": FULL,
        "turns": chosen.turns,
        "alone": alone,
        "together": together,
        "copied": copied,
        "copying": seconds,
        "copies": floor,
    }
    if chosen.record:
        (RESULTS / "policy" / "sixteen.json").write_text(json.dumps(found, indent=1) + "\n")
    print(sixteen(found))


@contextmanager
def _crowd(chosen: argparse.Namespace) -> Iterator[Monitor]:
    device = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": str(FULL * chosen.size)}
    options = ["--oversubscribe", "2", "--pool", str(PROGRAMS), "--sharing", chosen.sharing]
    options += ("--away-memory", chosen.away_memory, "--disk", str(PROGRAMS * chosen.size))
    with monitor(*options, "--disk-folder", chosen.disk_folder, environment=device) as server:
        yield server


def _run(server: Monitor, chosen: argparse.Namespace, programs: int) -> float:
    """Seconds until all of them are over, and were right."""
    began = time.perf_counter()
    with lodgers(server, [chosen.size] * programs, str(chosen.turns)) as found:
        for one in found:
            one.finish()
    return time.perf_counter() - began


def _copies(server: Monitor) -> tuple[int, float]:
    """Bytes that left or came back, and the seconds that this took, as the monitor's log has them."""
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    moves: list[dict[str, Any]] = [line for line in lines if "copied" in line and "seconds" in line]
    return sum(int(one["copied"]) for one in moves), sum(float(one["seconds"]) for one in moves)


if __name__ == "__main__":
    main()
