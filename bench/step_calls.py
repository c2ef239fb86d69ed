"""Which driver calls a step of training a network makes, and which of them wait:
`python -m bench.step_calls PYTHON`.

PYTHON is one that has PyTorch and pytest. No kernel runs (the null driver): what is counted are calls. The
guest counts those of a program (GPUFERRY_STATS); a step is a program of six less one of five. README tells
what bench/results/clients/step_calls.json keeps.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers.monitor import Monitor, monitor

SCRIPT = Path(__file__).parent / "workloads" / "resnet18_steps.py"
RECORD = Path(__file__).parent / "results" / "clients" / "step_calls.json"
NULL_DRIVER = {"GPUFERRY_SIM_CODE": "skip"}
STEPS = 6
SECONDS = 600.0  # for a program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.step_calls", description=__doc__)
    parser.add_argument("python", help="that has PyTorch and pytest")
    given = parser.parse_args()
    with monitor(
        "--pool", "1", "--device", "sim", "--log-level", "warning", environment=NULL_DRIVER
    ) as server:
        version, fewer = _counted(server, given.python, STEPS - 1)
        _, more = _counted(server, given.python, STEPS)
    functions = _less(more["functions"], fewer["functions"])
    # How loading waits depends on what was loaded before, by either program.
    trips = _less(more["round_trips_by_function"], fewer["round_trips_by_function"])
    step = {
        "date": datetime.date.today().isoformat(),
        "torch": version,
        "calls": _less(more["calls"], fewer["calls"]),
        "functions": functions,
        "round_trips": {name: count for name, count in trips.items() if name in functions},
    }
    RECORD.write_text(json.dumps(step, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(step, indent=1))
    return 0


def _counted(server: Monitor, python: str, steps: int) -> tuple[str, dict[str, Any]]:
    """The version of PyTorch, and what the guest counted of so many steps."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "stats.json")
        stats = {"GPUFERRY_STATS": str(file)}
        outcome = server.run([python, str(SCRIPT), str(steps)], "unix", stats, SECONDS)
        if outcome.status != 0:
            raise SystemExit(outcome.stdout + outcome.stderr)
        return outcome.stdout.split()[-1], json.loads(file.read_text(encoding="utf-8"))


def _less(more: dict[str, int], fewer: dict[str, int]) -> dict[str, int]:
    return {name: count - fewer.get(name, 0) for name, count in more.items() if count > fewer.get(name, 0)}


if __name__ == "__main__":
    raise SystemExit(main())
