"""Policies by name, as options and configuration files spell them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import names
from .benefit import Benefit
from .fit import BEST, EXCLUSIVE, FIRST, KUBESHARE, WORST, Fit
from .holdings import Shares, unlimited
from .mover import Mover, Trigger
from .queues import Backfill, Fcfs, Queue
from .scheduler import Scheduler

FITS: Mapping[str, Fit] = dict(zip(names.FITS, (BEST, WORST, FIRST, EXCLUSIVE, KUBESHARE), strict=True))
QUEUES: Mapping[str, Callable[[], Queue]] = dict(zip(names.QUEUES, (Fcfs, Backfill), strict=True))
MOVERS: Mapping[str, Callable[[], Mover | None]] = dict(
    zip(names.MOVERS, (lambda: None, Trigger, Benefit), strict=True)
)


def build(
    fit: str = "best-fit", queue: str = "fcfs", migration: str = "off", shares: Shares = unlimited
) -> Scheduler:
    """A policy by the names of its parts. Raises KeyError if there is no such name."""
    return Scheduler(QUEUES[queue], FITS[fit], MOVERS[migration](), shares)
