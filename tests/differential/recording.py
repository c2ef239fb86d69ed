"""What every program of tests/programs says on this machine's device, natively and through gpuferry.

`python -m tests.differential.recording FILE` writes it as JSON. It judges nothing: recordings of real
GPUs, in bench/results/gpu, are read where the simulated device or the guest may do otherwise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.facts.recording import device
from tests.helpers import programs, toolchain
from tests.helpers.monitor import monitor
from tests.helpers.running import Outcome, native_environment, run

SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=600.0, help="then no other program is begun")
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    recorded: dict[str, Any] = {"device": device(), "programs": {}}
    with monitor("--pool", "2", "--log-level", "warning") as server, ThreadPoolExecutor(given.jobs) as pool:

        def one(program: programs.Program) -> tuple[str, Any]:
            if time.monotonic() > until:
                return program.name, "left out"
            try:
                built = toolchain.program(program.source, program.flags)
            except toolchain.CompileError as error:
                return program.name, {"compiler": str(error)[-3000:]}
            native = said(lambda: run([built], native_environment(), SECONDS))
            remote = said(lambda: server.run([built], timeout=SECONDS))
            return program.name, {"natively": native, "remotely": "the same" if native == remote else remote}

        recorded["programs"] = dict(pool.map(one, programs.programs()))
    given.file.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def said(work: Callable[[], Outcome]) -> Any:
    try:
        outcome = work()
    except subprocess.TimeoutExpired as late:
        return {"status": "hung", "stdout": (late.stdout or b"").decode(errors="replace").splitlines()}
    found: dict[str, Any] = {"status": outcome.status, "stdout": outcome.stdout.splitlines()}
    return found | ({"stderr": outcome.stderr[-1000:]} if outcome.status else {})


if __name__ == "__main__":
    main()
