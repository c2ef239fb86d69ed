"""What a simulation is given: jobs, and the GPU server that they run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Job:
    """One call of a function. Times in seconds, sizes in bytes."""

    launch: float
    function: str
    memory: int  # what it asks for
    work: float  # on a GPU that it has for itself
    before: float = 0.0  # between its launch and its asking for a GPU
    content: int | None = None  # what there is to move in a migration, if not all that it asked for
    load: float = 0.75  # of a GPU's throughput while it has one for itself; two such slow each other by half
    devices: int = 1
    labels: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Server:
    """One GPU server, and how its GPUs behave."""

    gpus: int = 4
    memory: int = 12000 * MIB  # of each, to be promised
    workers: int = 2  # of each
    intensity: float = 0.46  # utilisation of a GPU that has no time to spare
    bandwidth: float = 6400.0 * MIB  # of a migration, bytes a second
    tick: float = 0.25
    launch_gap: float = 0.01  # between two kernel launches of a function


@dataclass(frozen=True)
class Workload:
    """Jobs, and the server they are meant for."""

    name: str
    jobs: Sequence[Job]
    server: Server = Server()
