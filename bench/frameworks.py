"""What models in PyTorch cost through gpuferry, on a GPU: `python -m bench.frameworks PYTHON FILE`.

PYTHON is one that has the framework. Each script of workloads/frameworks runs natively and through a monitor
on the same machine, over a Unix socket and over TCP; FILE is JSON with the seconds of each step.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.helpers.monitor import monitor
from tests.helpers.running import Outcome, native_environment, run

from .probe import measured

SCRIPTS = Path(__file__).parent / "workloads" / "frameworks"
SECONDS = 120.0  # for a script

Steps = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.frameworks", description=__doc__)
    parser.add_argument("python", help="that has the framework")
    parser.add_argument("file", type=Path, help="for the results")
    given = parser.parse_args()
    found: dict[str, dict[str, Steps]] = {}
    with monitor("--pool", "1", "--log-level", "warning") as server:
        for script in sorted(SCRIPTS.glob("*.py")):
            command = [given.python, str(script)]
            ways = {
                "native": lambda: run(command, native_environment(), SECONDS),  # noqa: B023
                "unix": lambda: server.run(command, "unix", timeout=SECONDS),  # noqa: B023
                "tcp": lambda: server.run(command, "tcp", timeout=SECONDS),  # noqa: B023
            }
            found[script.stem] = {way: _steps(go) for way, go in ways.items()}
            given.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            _show(script.stem, found[script.stem])
    return 0


def _steps(go: Callable[[], Outcome]) -> Steps:
    """What a script says, and how long all of it took."""
    began = time.perf_counter()
    outcome = go()
    return measured(outcome) | {"whole program": time.perf_counter() - began}


def _show(name: str, ways: dict[str, Steps]) -> None:
    table = Table(title=name, title_justify="left", box=None)
    table.add_column("step", no_wrap=True)
    for column in ("native", "unix socket", "times", "TCP", "times"):
        table.add_column(column, justify="right", no_wrap=True)
    for step, native in ways["native"].items():
        row = [f"{1000 * native:.3f} ms"]
        for way in ("unix", "tcp"):
            row += [f"{1000 * ways[way][step]:.3f} ms", f"{ways[way][step] / native:.2f}"]
        table.add_row(step, *row)
    Console(width=110).print(table)


if __name__ == "__main__":
    raise SystemExit(main())
