"""KubeShare's figure 6 for real: three programs that are always busy share one simulated device by time.

    python -m bench.figure6 [--record]

A requests 0.3 of the GPU and may have 0.6, B 0.4 and 0.6, C 0.3 and 0.5. Kernels occupy the device without
computing. A phase begins when a program comes or goes. What it had is measured over 90 s, which begin two
windows later; beside that stands how long the window took to show the published shares.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import ROOT
from tests.helpers.running import guest_environment

from .timeline import Control, control

SOURCE = ROOT / "bench" / "workloads" / "function" / "function.cu"
RESULTS = ROOT / "bench" / "results" / "policy" / "figure6.json"
WINDOW, QUOTA = 10.0, 0.1
SETTLING, MEASURED = 2 * WINDOW, 90.0
TOLERANCE = 0.03
WISHES = {"a": (0.3, 0.6), "b": (0.4, 0.6), "c": (0.3, 0.5)}
PHASES = ({"a": 0.6}, {"a": 0.5, "b": 0.5}, {"a": 0.3, "b": 0.4, "c": 0.3}, {"a": 0.5, "b": 0.5})


@dataclass(frozen=True)
class Phase:
    """One phase: what each program had of 90 s, and after how many seconds the window showed that."""

    published: dict[str, float]
    measured: dict[str, float]
    settled: float | None

    @property
    def holds(self) -> bool:
        near = all(abs(self.measured[name] - share) <= TOLERANCE for name, share in self.published.items())
        return near and self.settled is not None and self.settled <= SETTLING


@dataclass(frozen=True)
class Look:
    """What each program has had at one moment."""

    time: float
    used: dict[str, float]  # seconds in all
    shares: dict[str, float]  # of the window


class Watch:
    """Looks at the monitor ten times a second."""

    def __init__(self) -> None:
        self.looks: list[Look] = []

    def follow(self, port: Control) -> None:
        """Read the arbiter's figures until the control port is closed."""
        for status in port.watch():
            turns = {one.function: one.turns for one in status.sessions}
            used = {name: one.used_seconds for name, one in turns.items()}
            shares = {name: one.share for name, one in turns.items()}
            self.looks.append(Look(time.monotonic(), used, shares))

    def phase(self, begin: float, published: dict[str, float]) -> Phase:
        """What came of a phase that began at this time."""
        looks = [look for look in self.looks if look.time >= begin and published.keys() <= look.used.keys()]
        measured = [look for look in looks if look.time >= begin + SETTLING]
        first, last = measured[0], measured[-1]
        span = last.time - first.time
        settled = next((look.time - begin for look in looks if _near(look.shares, published)), None)
        return Phase(
            published,
            {name: round((last.used[name] - first.used[name]) / span, 4) for name in published},
            None if settled is None else round(settled, 1),
        )


def _near(shares: dict[str, float], published: dict[str, float]) -> bool:
    return all(abs(shares[name] - share) <= TOLERANCE for name, share in published.items())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.figure6", description="KubeShare's figure 6 for real"
    )
    parser.add_argument("--record", action="store_true", help=f"keep the result in {RESULTS.name}")
    options = parser.parse_args()
    phases = measure()
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "window": WINDOW,
        "quota": QUOTA,
        "seconds": MEASURED,
        "phases": [asdict(phase) | {"holds": phase.holds} for phase in phases],
    }
    show(phases)
    if options.record:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(phase.holds for phase in phases) else 1


def measure() -> list[Phase]:
    """All phases, one after the other."""
    stated = ",".join(f"{name}={r * 1000:.0f}:{m * 1000:.0f}" for name, (r, m) in WISHES.items())
    options = ("--sharing", "time", "--window", str(WINDOW), "--quota", str(QUOTA), "--pool", "3")
    running: dict[str, subprocess.Popen[bytes]] = {}
    watch, found = Watch(), []
    with (
        monitor(
            *options, "--jail", "off", "--log-level", "warning", environment={"GPUFERRY_SHARES": stated}
        ) as server,
        watching(server, watch),
    ):
        for published in PHASES:
            for name in running.keys() - published.keys():
                running[name].kill()
                running.pop(name).wait()
            for name in published.keys() - running.keys():
                running[name] = start(server, name)
            begin = time.monotonic()
            time.sleep(SETTLING + MEASURED)
            found.append(watch.phase(begin, published))
        for process in running.values():
            process.kill()
            process.wait()
    return found


def start(server: Monitor, name: str) -> subprocess.Popen[bytes]:
    """A program that is busy for longer than all of this lasts."""
    environment = guest_environment({**server.settings(), "GPUFERRY_FUNCTION": name})
    return subprocess.Popen([str(toolchain.program(SOURCE)), "0", "100000", "1.0", "1"], env=environment)


@contextmanager
def watching(server: Monitor, watch: Watch) -> Iterator[None]:
    """Within this context the monitor is looked at."""
    with ThreadPoolExecutor(1) as threads:
        with control(server) as port:
            done = threads.submit(watch.follow, port)
            yield
        done.result()


def show(phases: list[Phase]) -> None:
    """Print the shares of each phase beside the published ones."""
    table = Table(title="Figure 6: shares over 90 s", title_justify="left", box=None)
    for column in ("published", "measured", "settled after", "holds"):
        table.add_column(column, no_wrap=True)
    for phase in phases:
        table.add_row(text(phase.published), text(phase.measured), f"{phase.settled} s", str(phase.holds))
    Console().print(table)


def text(shares: dict[str, Any]) -> str:
    """Return the parts of the GPU's time as text: `A 0.300 B 0.400`."""
    return " ".join(f"{name.upper()} {share:.3f}" for name, share in shares.items())


if __name__ == "__main__":
    sys.exit(main())
