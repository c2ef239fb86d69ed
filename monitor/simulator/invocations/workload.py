"""What a simulation of invocations is given: functions, calls, and the GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...policy.invocations import Function


@dataclass(frozen=True)
class Profile:
    """A function, and what it costs in truth. Seconds."""

    function: Function
    run: float  # of an invocation on a warm replica that has the GPU for itself
    cold: float  # before that, without a replica
    back: float | None = None  # before that, with a replica that is away; None: by the GPUs' bandwidth
    share: float = 1.0  # of a GPU's throughput while it has one for itself


@dataclass(frozen=True)
class Server:
    """The GPUs that a policy schedules."""

    gpus: int = 1
    memory: int = 16 << 30  # bytes of each
    bandwidth: float = 12e9  # bytes a second at which memory comes back
    write_back: float = math.inf  # bytes a second at which memory leaves; infinite: a copy is there already
    tick: float = 0.2


@dataclass(frozen=True)
class Calls:
    """Functions and who calls them: at given times, or as soon as the last answer is there."""

    name: str
    profiles: Mapping[str, Profile]
    arrivals: Sequence[tuple[float, str]] = ()  # (seconds, function), in order
    closed: Mapping[str, int] = field(default_factory=dict)  # functions that always have so many calls open
    until: float = math.inf  # seconds after which nobody calls again
    server: Server = Server()
