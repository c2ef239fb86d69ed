"""Frameworks that another Python of this machine has, natively and remotely: the same output is wanted.

`python -m tests.clients.installed PYTHON FILE` runs each script of the folder `installed`, and writes what
they said and how long they took as JSON. It needs a GPU that runs the machine code that frameworks come with.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.monitor import monitor
from tests.helpers.running import Outcome, native_environment, run

SECONDS = 40.0
HERE = Path(__file__).parent / "installed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("file", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--option", action="append", default=[], help="of the monitor")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with monitor("--pool", "1", *given.option) as server:
        for script in sorted(HERE.glob("*.py")):
            if given.only not in (None, script.stem):
                continue
            command = [given.python, str(script)]
            native = timed(functools.partial(run, command, native_environment(), SECONDS))
            remote = timed(functools.partial(server.run, command, "unix", timeout=SECONDS))
            same = native["status"] == remote["status"] == 0 and native["stdout"] == remote["stdout"]
            found[script.stem] = {"same": same, "native": native, "remote": remote}
            print(
                script.stem, "same" if same else "DIFFERENT", native["seconds"], remote["seconds"], flush=True
            )
            if not same:
                print(json.dumps(found[script.stem], indent=1), flush=True)
        print(server.log.read_text(errors="replace")[-5000:], file=sys.stderr)
    given.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(each["same"] for each in found.values()) else 1


def timed(work: Callable[[], Outcome]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        outcome = work()
    except subprocess.TimeoutExpired as late:
        outcome = Outcome(-1, str(late.stdout)[-2000:], str(late.stderr)[-2000:])
    seconds = round(time.monotonic() - began, 2)
    return {
        "status": outcome.status,
        "stdout": outcome.stdout[-3000:],
        "stderr": outcome.stderr[-3000:],
        "seconds": seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
