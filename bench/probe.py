"""The probe, a program that measures driver calls from inside (micro/probe.c), and what it says."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.helpers import toolchain
from tests.helpers.paths import ROOT
from tests.helpers.running import Outcome

SECONDS = 300.0  # for everything that it measures
ALL = (
    "sync_call",
    "small_d2h",
    "event_query",
    "idle_sync",
    "async_call",
    "launch",
    "launch_enqueue",
    "alloc_free",
    "teardown",
    "contexts",
    "h2d",
    "d2h",
    "load",
)


def probe(*names: str) -> list[str | Path]:
    """The command that measures what has these names."""
    return [toolchain.program(ROOT / "bench" / "micro" / "probe.c"), *names]


def measured(outcome: Outcome) -> dict[str, float]:
    """Values by name from a program's lines `measured NAME VALUE`."""
    require(outcome)
    lines = (line.split() for line in outcome.stdout.splitlines())
    return {words[1]: float(words[2]) for words in lines if words[:1] == ["measured"]}


def require(outcome: Outcome) -> None:
    """Ends the benchmark if a measured program failed."""
    if outcome.status != 0:
        sys.exit(f"a measured program failed ({outcome.status}):\n{outcome.stdout}{outcome.stderr}")
