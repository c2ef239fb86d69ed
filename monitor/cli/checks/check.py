"""A finding, and the child processes that findings come from."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

SECONDS = 60.0


@dataclass(frozen=True)
class Check:
    """One finding of `gpuferry doctor`: what was looked at, how it is, and what to do about it."""

    name: str
    result: str  # ok, note or failed
    detail: str
    next_step: str = ""


def python(code: str, environment: dict[str, str], interpreter: str = sys.executable) -> tuple[int, str]:
    """Run Python code as a child process. Returns its exit status and what it printed; if it failed, what
    the guest library said, else the last line.
    """
    try:
        done = subprocess.run(
            [interpreter, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",  # the names of files may be no text
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:  # whose text is all of the code
        return 1, f"it did not end within {SECONDS:g} s"
    except OSError as error:
        return 1, str(error)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return done.returncode, next((line for line in lines if line.startswith("gpuferry[")), lines[-1])
    return 0, done.stdout.strip()
