"""Policies by name, as options and configuration files spell them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .benefit import Benefit
from .fit import BEST, EXCLUSIVE, FIRST, WORST, Fit
from .migration import Mover, Trigger
from .queues import Backfill, Fcfs, Queue
from .scheduler import Scheduler

FITS: Mapping[str, Fit] = {"best-fit": BEST, "worst-fit": WORST, "first-fit": FIRST, "exclusive": EXCLUSIVE}
QUEUES: Mapping[str, Callable[[], Queue]] = {"fcfs": Fcfs, "backfill": Backfill}
MOVERS: Mapping[str, Callable[[], Mover | None]] = {"off": lambda: None, "dgsf": Trigger, "auto": Benefit}


def build(fit: str = "best-fit", queue: str = "fcfs", migration: str = "off") -> Scheduler:
    """A policy of the usual settings; KeyError if there is no such name."""
    return Scheduler(QUEUES[queue](), FITS[fit], MOVERS[migration]())
