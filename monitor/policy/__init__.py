"""Scheduling policies: objects without I/O, clock or chance, run by the monitor and the simulator."""

from .build import FITS, MOVERS, QUEUES, build
from .gpu import Gpu
from .holdings import Share
from .interface import Decision, Migrate, Place, Policy, Refuse, Request, Seat, Standing
from .portion import PLAIN, Portion
from .scheduler import Scheduler

__all__ = [
    "FITS",
    "MOVERS",
    "PLAIN",
    "QUEUES",
    "Decision",
    "Gpu",
    "Migrate",
    "Place",
    "Policy",
    "Portion",
    "Refuse",
    "Request",
    "Scheduler",
    "Seat",
    "Share",
    "Standing",
    "build",
]
