"""An API server that fails where the test wants it, at a phase of `gpuferry.migration.source.Source`.

What to do lies in the file `fault` of the folder GPUFERRY_TEST_FAULTS: `STEP:raise`, `STEP:kill` or
`STEP:wait`, with a STEP like `rebuild` or `after_take_over`. With `wait` it says so by a file `reached` and
stands still until there is a file `go`. What that file holds, if anything, is its patience from there on.
Beside the phases there is the step `after_serve`: the session is over, and the server has yet to hear of it.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuferry.apiserver import server
from gpuferry.apiserver.__main__ import main
from gpuferry.migration import source

LIMITS = {name: getattr(source, name) for name in ("REBUILD_PATIENCE", "RUN_PATIENCE", "PAUSE_PATIENCE")}
RUNNING = ("prepare", "snapshot", "rebuild", "precopy")
PAUSED = ("hold", "drain", "catch_up", "verify", "take_over", "leave")
FAULTS = Path(os.environ["GPUFERRY_TEST_FAULTS"])


def fail_if_wanted(step: str) -> None:
    fault = FAULTS / "fault"
    wanted, _, action = (fault.read_text() if fault.exists() else "").partition(":")
    if wanted != step:
        return
    fault.unlink()
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "raise":
        raise OSError("a fault that a test wanted")
    else:
        (FAULTS / "reached").touch()
        while not (FAULTS / "go").exists():
            time.sleep(0.005)
        if patience := (FAULTS / "go").read_text():
            limit_patience(dict.fromkeys(LIMITS, float(patience)))


def limit_patience(limits: dict[str, float]) -> None:
    for name, seconds in limits.items():
        setattr(source, name, seconds)


def make_breakable(owner: type, name: str) -> None:
    works: Callable[..., Any] = getattr(owner, name)
    step = name.removeprefix("_")

    @functools.wraps(works)
    def breakable(*arguments: Any) -> Any:
        if step == "prepare":
            limit_patience(LIMITS)
        fail_if_wanted(step)
        result = works(*arguments)
        fail_if_wanted(f"after_{step}")
        return result

    setattr(owner, name, breakable)


if __name__ == "__main__":
    for each in RUNNING + PAUSED:
        make_breakable(source.Source, f"_{each}")
    make_breakable(server.Session, "serve")
    status = main()
    sys.stderr.flush()
    os._exit(status)
